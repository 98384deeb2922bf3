"""Run the job from the command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from ks_actors import tune_gc

from . import data
from .job import Options, run
from .progress import progress
from .report import show


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description="Delays of the flights that left New York in 2013.")
    parser.add_argument("--directory", type=Path, help="where topics and state are kept: what was killed goes on there (default: a temporary one)")
    parser.add_argument("--in-memory", action="store_true", help="keep topics and state in memory")
    parser.add_argument("--guarantee", choices=("exactly_once_v2", "at_least_once"), default="exactly_once_v2", help="default: %(default)s")
    parser.add_argument("--commit-interval-ms", type=int, default=100, metavar="MS", help="default: %(default)s")
    parser.add_argument("--page", action="store_true", help="serve the app's page while it runs, and print where; needs the extra web")
    parser.add_argument("--limit", type=int, default=data.FLIGHTS, metavar="N", help="take the first N flights only")
    parser.add_argument("--progress-seconds", type=float, default=1.0, metavar="S", help="between two lines of progress, where there is no terminal")
    return parser.parse_args()


def main() -> None:
    """Run the job, and print its results."""
    given = arguments()
    tune_gc()
    logging.basicConfig(level=logging.ERROR)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.directory or Path(temporary)
        options = Options(directory, given.guarantee, given.limit, given.commit_interval_ms, given.in_memory, given.page)
        with progress(console, given.progress_seconds) as bars:
            outcome = asyncio.run(run(options, bars, lambda link: console.print(f"the page: {link}", highlight=False, soft_wrap=True)))
    show(console, outcome.results)
    rate = outcome.flights / outcome.seconds
    console.print(
        f"{outcome.flights:,} flights in {outcome.seconds:.1f} s: {rate:,.0f} flights/s, {memory():.0f} MB of memory at most", highlight=False
    )


def memory() -> float:
    """Return the peak memory of this process, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage on Linux includes the parent process
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


if __name__ == "__main__":
    main()
