"""Metrics of workers, and of actors that work for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.metrics.families import thread as f
from ks_actors.runtime.shared import WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.metrics import MetricSource, Readings
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics

_STATES: Final = {state: float(number) for number, state in enumerate(WorkerState)}


def thread_source(metrics: Metrics, watched: Watched) -> MetricSource:
    """Return the source of the workers' metrics, and of the committer's and task manager's."""
    committer = {"thread-id": f"{watched.config.client_id}-Committer"}
    manager = {"thread-id": watched.pool}

    def read() -> Iterator[Readings]:
        for name, state, figures in watched.workers.figures():
            yield (
                (thread := {"thread-id": name}),
                [
                    (f.STATE, state.value),
                    (f.THREAD_START_TIME, figures.started_ms),
                    (f.PROCESS, figures.records),
                    (f.PROCESS_LATENCY, figures.record_times.spread()),
                    (f.PROCESS_RATIO, figures.processing),
                    (f.PROCESS_RECORDS, figures.slice_records.spread()),
                    (f.PUNCTUATE, figures.punctuator_times.count),
                    (f.PUNCTUATE_LATENCY, figures.punctuator_times.spread()),
                    (f.PUNCTUATE_RATIO, figures.punctuating),
                ],
            )
            yield thread | {"process-id": metrics.process_id}, [(f.THREAD_STATE, _STATES[state])]
        times = metrics.commit_times
        yield (
            committer,
            [
                (f.COMMIT, times.count),
                (f.COMMIT_LATENCY, times.spread()),
                (f.COMMIT_RATIO, times.total / 1000),
            ],
        )
        yield (
            manager,
            [
                (f.TASK_CREATED, metrics.tasks_closed + len(metrics.tasks)),
                (f.TASK_CLOSED, metrics.tasks_closed),
            ],
        )

    return read
