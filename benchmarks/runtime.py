"""Measure the runtime: throughput, the pause of a commit, async calls, startup, and a real job.

The table goes to stdout, progress to stderr; the last line of stdout is one JSON object. Every run
is its own process. On a shared machine look at the CPU time per record: it varies less than the
clock's.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks._runtime_plan import Case, plan
from benchmarks._runtime_report import Samples, summary, table, write_markdown

ROUNDS = 5
QUICK_SHARE = 0.2
WIDTH = 190


def main() -> None:
    """Run the benchmark with the options of the command line."""
    options = _parse()
    cases = [case for case in plan(options.share) if not options.only or case.key in options.only]
    if not cases:
        raise SystemExit(f"there are {', '.join(case.key for case in plan(1.0))}")
    samples = _measure(cases, options.rounds)
    # A pipe has no width; do not squeeze a table in a file into 80 columns.
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    command = shlex.join(["python", "benchmarks/runtime.py", *sys.argv[1:]])
    console.print(table(cases, samples, command))
    if options.markdown is not None:
        write_markdown(options.markdown, cases, samples, command)
    print(json.dumps(summary(cases, samples)), flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often to measure everything (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help=f"once, with {QUICK_SHARE:.0%} of the records: to see that it works")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these only: map, map_eos, count, count_eos, pause, ...")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="also write the table between the markers of this page")
    parser.add_argument("--share", type=float, default=1.0, help="of the records (default 1.0: all of them)")
    options = parser.parse_args()
    if not 0 < options.share <= 1:
        parser.error(f"--share {options.share:g} is to be above 0, and at most 1")
    if options.quick:
        options.share, options.rounds = min(options.share, QUICK_SHARE), 1
    return options


def _measure(cases: list[Case], rounds: int) -> Samples:
    samples = Samples()
    todo = [case for number in range(rounds) for case in cases if number % case.every == 0]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Refresh between cases, as a refresh thread would disturb them.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        task = progress.add_task("", total=len(todo))
        for case in todo:
            progress.update(task, description=case.key, refresh=True)
            samples.add(case, case.run())
            progress.advance(task)
        progress.update(task, description="done", refresh=True)
    return samples


if __name__ == "__main__":
    main()
