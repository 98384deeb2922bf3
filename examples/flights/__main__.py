"""Run the job from the command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import signal
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ks_actors import tune_gc

from . import data
from .job import Options, run
from .progress import progress
from .report import show

if TYPE_CHECKING:
    from collections.abc import Iterator


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description="Delays of the flights that left New York in 2013.")
    parser.add_argument("--directory", type=Path, help="where topics and state are kept: what was killed goes on there (default: a temporary one)")
    parser.add_argument("--in-memory", action="store_true", help="keep topics and state in memory")
    parser.add_argument("--guarantee", choices=("exactly_once_v2", "at_least_once"), default="exactly_once_v2", help="default: %(default)s")
    parser.add_argument("--commit-interval-ms", type=int, default=100, metavar="MS", help="default: %(default)s")
    parser.add_argument("--page", action="store_true", help="serve the app's page while it runs, and print where; needs the extra web")
    parser.add_argument(
        "--processes", type=int, default=0, metavar="N",
        help="run the job in N processes, on a Kafka that is started for it; Ctrl-C and SIGTERM end all of them, SIGKILL does not",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, default=data.FLIGHTS, metavar="N", help="take the first N flights only")
    parser.add_argument("--progress-seconds", type=float, default=1.0, metavar="S", help="between two lines of progress, where there is no terminal")
    given = parser.parse_args()
    if given.processes and given.in_memory:
        parser.error("--processes needs a Kafka, and --in-memory has none")
    return given


@contextmanager
def kafka(directory: Path) -> Iterator[str]:
    """Run a broker during the block, and yield its address."""
    from tests.kafka.broker import Broker, missing_tools  # noqa: PLC0415 - it needs what the job does without

    if (missing := missing_tools()) is not None:
        raise SystemExit(f"there can be no broker: {missing}")
    # SIGTERM, and SIGHUP at the end of the terminal, end the broker and the members as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    broker = Broker(directory)
    try:
        broker.start()
        yield broker.bootstrap
    finally:
        broker.stop()


def main() -> None:
    """Run the job, and print its results."""
    given = arguments()
    tune_gc()
    logging.basicConfig(level=logging.ERROR)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.directory or Path(temporary)
        with kafka(directory / "kafka") if given.processes else nullcontext("") as servers, progress(console, given.progress_seconds) as bars:
            options = Options(
                directory, given.guarantee, given.limit, given.commit_interval_ms, given.in_memory, given.page, servers, given.processes
            )
            outcome = asyncio.run(run(options, bars, lambda link: console.print(f"the page: {link}", highlight=False, soft_wrap=True)))
    show(console, outcome.results)
    rate = outcome.flights / outcome.seconds
    how = f"in {given.processes} processes" if given.processes else f"{memory():.0f} MB of memory at most"
    console.print(f"{outcome.flights:,} flights in {outcome.seconds:.1f} s: {rate:,.0f} flights/s, {how}", highlight=False)


def memory() -> float:
    """Return the peak memory of this process, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage on Linux includes the parent process
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


if __name__ == "__main__":
    main()
