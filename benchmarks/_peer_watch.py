"""Progress of an app on Kafka over time, the basis of the peer's figures."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from ks_actors import RestoreListener

if TYPE_CHECKING:
    from benchmarks._peer_apps import Tally
    from ks_actors import App
    from ks_actors.log import TopicPartition

_LOOK_S = 0.005
_SAMPLE_S = 0.02
# A look reads all metrics of the app, so look seldom while nothing begins or ends.
_SELDOM_S = 0.2
_NEAR_END = 0.9


class Sample(NamedTuple):
    """Progress at a moment (s), and the CPU time until then (s)."""

    moment: float
    taken: int
    back: int
    cpu: float


class Watch:
    """Poll an app until it has processed all `expected` and all repartitioned records."""

    def __init__(self, app: App, tally: Tally, expected: int, *, repartitions: bool) -> None:
        self.samples: list[Sample] = []
        self.end: Sample | None = None
        self._app = app
        self._tally = tally
        self._expected = expected
        self._repartitions = repartitions

    async def run(self, timeout_s: float) -> bool:
        """Return whether all was processed in time."""
        deadline = time.perf_counter() + timeout_s
        while (now := self._look()).taken < self._expected or (self._repartitions and now.back < self._tally.words):
            if now.moment > deadline or self._app.error is not None:
                return False
            await asyncio.sleep(self._pause_s(now))
        self.end = now
        return True

    def _pause_s(self, now: Sample) -> float:
        if not self.samples:
            return _LOOK_S
        return _SAMPLE_S if now.taken > self._expected * _NEAR_END else _SELDOM_S

    def _look(self) -> Sample:
        processed = int(self._app.metrics()["process-total"])
        taken = self._tally.lines if self._repartitions else processed
        sample = Sample(time.perf_counter(), taken, processed - taken, time.process_time())
        if taken:
            self.samples.append(sample)
        return sample

    def figures(self, began: float, done: float, cpu_done: float) -> dict[str, object]:
        """Return the figures of a run from `began` to `done`, when it was committed and closed."""
        if self.end is None or not self.samples:
            return {"records": self.samples[-1].taken if self.samples else 0}
        first, end = self.samples[0], self.end
        work = end.taken + end.back
        half = next(sample for sample in self.samples if 2 * (sample.taken + sample.back) >= work)
        rest = end.taken * (work - half.taken - half.back) / work
        steady = end.moment - half.moment
        return {
            "records": end.taken,
            "repartitioned": end.back,
            "first_s": round(first.moment - began, 3),
            "wall_s": round(end.moment - first.moment, 3),
            "total_s": round(done - first.moment, 3),
            "close_s": round(done - end.moment, 3),
            "records_per_s": round(end.taken / (done - first.moment)),
            "processed_per_s": round(end.taken / max(1e-6, end.moment - first.moment)),
            "steady_per_s": round(rest / steady) if steady > 0 else None,
            "cpu_run_s": round(cpu_done - first.cpu, 3),
            "cpu_steady_us_per_record": round((end.cpu - half.cpu) / rest * 1e6, 2) if rest > 0 else None,
            "curve": self._curve(),
        }

    def _curve(self) -> list[tuple[float, int, int]]:
        found: list[tuple[float, int, int]] = []
        for sample in self.samples:
            moment = round(sample.moment - self.samples[0].moment, 3)
            if not found or moment - found[-1][0] >= 1:
                found.append((moment, sample.taken, sample.back))
        return found


class Restoring(RestoreListener):
    """Count the restored records."""

    def __init__(self) -> None:
        self.records: int = 0
        self.first: float | None = None
        self.last: float = 0.0

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Record the start of the first restore."""
        if self.first is None:
            self.first = time.perf_counter()

    def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
        """Count."""
        self.records += count
        self.last = time.perf_counter()

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """Record the time of the last restore."""
        self.last = time.perf_counter()

    def figures(self, began: float, running: float) -> dict[str, object]:
        """Return the figures of an app that began at `began` and was restored at `running`."""
        active = self.last - (began if self.first is None else self.first)
        return {
            "restored": self.records,
            "restore_s": round(running - began, 3),
            "restore_active_s": round(active, 3),
            "records_per_s": round(self.records / (running - began)),
            "active_records_per_s": round(self.records / active) if active > 0 else 0,
        }
