"""Compare the actors with the plain loop, asyncio.Queue, and other actor libraries, in one run.

Tables go to stdout, progress to stderr; the last line of stdout is one JSON object. Look at the
ratios: the machine may be slow, or shared.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# A script's directory comes first on the path, where `actors` is this file.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks._measure import Results, run, steps
from benchmarks._plan import PLAN, scaled
from benchmarks._report import summary, tables, targets, write_markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks._plan import Metric

ROUNDS = 11
QUICK = 3
WIDTH = 190


def main() -> None:
    """Run the benchmark with the options of the command line."""
    options = _parse()
    # Undelivered messages are part of a case; logging them is not.
    logging.getLogger("actors").setLevel(logging.ERROR)
    # The contenders' modules are no garbage, so keep them out of collections.
    gc.collect()
    gc.freeze()
    plan = [metric for metric in scaled(options.share) if not options.only or metric.key in options.only]
    results = _measure(plan, QUICK if options.quick else options.rounds)
    figures = summary(results)
    # A pipe has no width; do not squeeze a table in a file into 80 columns.
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(*tables(results), targets(figures), sep="\n")
    if options.markdown is not None:
        write_markdown(options.markdown, results, shlex.join(["python", "benchmarks/actors.py", *sys.argv[1:]]))
    print(json.dumps(figures), flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=_positive, default=ROUNDS, help=f"how often to measure everything (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds only")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables between the marks in FILE")
    parser.add_argument("--only", nargs="+", metavar="METRIC", choices=[metric.key for metric in PLAN], help="these only: tell_64, ask, ...")
    parser.add_argument("--share", type=float, default=1.0, help="of the operations of each case (default 1.0: all of them)")
    options = parser.parse_args()
    if not 0 < options.share <= 1:
        parser.error(f"--share {options.share:g} is to be above 0, and at most 1")
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one round is needed")
    return number


def _measure(plan: Sequence[Metric], rounds: int) -> Results:
    results = Results()
    todo = list(steps(plan, rounds))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    # Refresh between cases, as a refresh thread would disturb them.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        task = progress.add_task("", total=len(todo))
        for metric, loop, case in todo:
            progress.update(task, description=f"{metric.title}: {case.contender}, {loop}", refresh=True)
            results.add(metric.key, loop, case.contender, run(case, loop))
            progress.advance(task)
        progress.update(task, description="done", refresh=True)
    return results


if __name__ == "__main__":
    main()
