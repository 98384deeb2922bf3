"""Run the plan, round after round, and compare runs that are close in time."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks._plan import Case, Metric

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Spread(NamedTuple):
    """The summary of many samples."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Summarize samples."""
        return cls(min(samples), median(samples), max(samples))


class Results:
    """All samples, by metric, loop and contender.

    Samples with the same index are neighbors in time.
    """

    def __init__(self) -> None:
        self._samples: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)

    def add(self, metric: str, loop: str, contender: str, sample: float) -> None:
        """Add a sample."""
        self._samples[metric, loop, contender].append(sample)

    def spread(self, metric: str, loop: str, contender: str) -> Spread | None:
        """Summarize the samples of a contender; None when it has no part in the metric."""
        samples = self._samples.get((metric, loop, contender))
        return Spread.of(samples) if samples else None

    def ratio(self, metric: str, loop: str, contender: str, base: str) -> Spread | None:
        """Summarize a contender's time as a multiple of `base`'s, in each round in which that one took any."""
        over, under = self._samples.get((metric, loop, contender)), self._samples.get((metric, loop, base))
        if not over or not under:
            return None
        ratios = [a / b for a, b in zip(over, under, strict=True) if b]
        return Spread.of(ratios) if ratios else None


def steps(plan: Sequence[Metric], rounds: int) -> Iterator[tuple[Metric, str, Case]]:
    """Yield the runs in order.

    Every other round reverses the contenders, so that a drift of the machine favors none.
    """
    for number in range(rounds):
        for metric in plan:
            if number % metric.every:
                continue
            cases = metric.cases[::-1] if number // metric.every % 2 else metric.cases
            for loop in LOOPS if metric.loops else ("asyncio",):
                for case in cases:
                    # Pykka has threads instead of a loop: run it once per round.
                    if loop == "asyncio" or case.contender != "pykka":
                        yield metric, loop, case


def run(case: Case, loop: str) -> float:
    """Run one case on a new event loop, after a garbage collection."""
    gc.collect()
    result = case.run(case.size)
    if isinstance(result, float):
        return result
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(result)
