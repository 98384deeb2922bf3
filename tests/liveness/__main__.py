"""The command line of the liveness test: see README.md."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from tests.liveness.layers import LAYERS

_CHUNK = 10
# Two hundred times what a seed takes: beyond it something turns in a circle.
_LONGEST_S = 300.0


class Outcome(NamedTuple):
    """The outcome of a seed: its error, or None when all was well, and the seconds of CPU that it took."""

    seed: int
    error: str | None
    seconds: float


def attempt(layer: str, seed: int, *, told: bool = False) -> Outcome:
    """Run one seed; with `told` the error has all that is known of the run."""
    began = time.process_time()
    error: str | None = None
    try:
        with _at_most(_LONGEST_S):
            LAYERS[layer](seed)
    except Exception as failure:  # noqa: BLE001 - whatever it is, it is told
        notes = "\n".join(("", *getattr(failure, "__notes__", ()))) if told else ""
        error = f"{type(failure).__name__}: {failure}{notes}"
    return Outcome(seed, error, time.process_time() - began)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError when the block has taken so many seconds of CPU: a run that turns in a circle never ends, and is a miss."""

    def end(*_: object) -> None:
        raise TimeoutError(f"still at it after {seconds:g} s of CPU: something turns in a circle")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main(arguments: Sequence[str]) -> int:
    """Run the seeds; return 1 when one fails."""
    parser = ArgumentParser(prog="python -m tests.liveness", description="Look for standstills: random apps, input and faults, in virtual time.")
    parser.add_argument(
        "--layer",
        choices=sorted(LAYERS),
        default="app",
        help="whole apps on the embedded log, those with more operations and faults, or the fetcher of Kafka alone",
    )
    parser.add_argument("--seed", type=int, help="run this one alone, and tell all of it")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        outcome = attempt(options.layer, options.seed, told=True)
        print(f"seed {outcome.seed}: {outcome.error or 'all is well'} ({outcome.seconds:.2f} s of CPU)")  # noqa: T201 - a report for people
        return int(outcome.error is not None)
    seeds = range(options.start, options.start + options.seeds)
    failed: list[int] = []
    seconds = 0.0
    with ProcessPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(partial(attempt, options.layer), seeds, chunksize=_CHUNK):
            seconds += outcome.seconds
            if outcome.error is not None:
                failed.append(outcome.seed)
                print(f"seed {outcome.seed}: {outcome.error}", flush=True)  # noqa: T201 - a report for people
    print(f"{len(seeds)} seeds from {options.start} on, {len(failed)} failed, {seconds / max(1, len(seeds)):.3f} s of CPU each")  # noqa: T201 - a report for people
    return int(bool(failed))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts have an order of their own in each process: a seed is to give the same run in all.
        os.execve(sys.executable, [sys.executable, "-m", "tests.liveness", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 - the same program again
    sys.exit(main(sys.argv[1:]))
