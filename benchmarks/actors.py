"""Compare the actors with the bare loop below them, with asyncio.Queue, and with other actor libraries, all in one run.

Tables go to stdout, progress to stderr; the last line of stdout is one JSON object. Look at the ratios: the machine may be slow, or shared.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import shlex
import sys
from pathlib import Path

# A script's own directory comes first on the path, and `actors` would be this file.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks._measure import Results, run, steps
from benchmarks._plan import PLAN
from benchmarks._report import summary, tables, targets, write_markdown

ROUNDS = 11
QUICK = 3
WIDTH = 190


def main() -> None:
    """Run the benchmark as the command line says."""
    options = _parse()
    # Undelivered messages are part of a case; writing about them is not.
    logging.getLogger("actors").setLevel(logging.ERROR)
    # The modules of all contenders are nobody's garbage: no collection is to go through them.
    gc.collect()
    gc.freeze()
    results = _measure(QUICK if options.quick else options.rounds)
    figures = summary(results)
    # A pipe has no width, and a table in a file must not be squeezed into 80 columns.
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
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one round is needed")
    return number


def _measure(rounds: int) -> Results:
    results = Results()
    todo = list(steps(PLAN, rounds))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    # It is refreshed between the cases, never by a thread of its own that would run into them.
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
