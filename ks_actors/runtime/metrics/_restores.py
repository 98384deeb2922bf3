"""Metrics of restoring tasks and of standbys."""

from __future__ import annotations

from math import isnan, nan
from typing import TYPE_CHECKING, Final

from ks_actors.metrics.families import store as f
from ks_actors.metrics.families import task as t

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.metrics import MetricSource, Readings
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics
    from ks_actors.runtime.watch import PartitionStates

_ROLES: Final = {True: "restoring", False: "standby"}


class _Restores:
    """The changelogs that are read, with their speeds since they were first seen."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._thread = {"thread-id": f"{watched.config.client_id}-StateUpdater-1"}
        self._first: dict[tuple[TopicPartition, bool], tuple[float, int]] = {}

    def read(self) -> Iterator[Readings]:
        """Read the figures of the restorer."""
        if (started := self._watched.started()) is None:
            return
        _, parts = started
        restorer = parts.restorer
        tasks = {task: (active, 0.0) for task, active in restorer.roles().items()}
        yield from self._changelogs(parts, tasks)
        restoring = sum(active for active, _ in tasks.values())
        yield (
            self._thread,
            [
                (f.RESTORING_TASKS, restoring),
                (f.UPDATING_TASKS, len(tasks) - restoring),
                (f.RESTORE_RECORDS, restorer.all_records),
                (f.RESTORE_CALLS, restorer.batches),
            ],
        )
        for task, (active, remaining) in tasks.items():
            records = restorer.records.get(task, 0)
            readings = (
                [(t.RESTORE_REMAINING, remaining), (t.RESTORE, records)]
                if active
                else [(t.UPDATE, records)]
            )
            yield self._thread | {"task-id": str(task)}, readings

    def _changelogs(
        self, parts: PartitionStates, tasks: dict[TaskId, tuple[bool, float]]
    ) -> Iterator[Readings]:
        stores = parts.state_manager.status()
        before, self._first = self._first, {}
        now = parts.restorer.ctx.time()
        for task, changelog, active, _, at, known in parts.restorer.reads():
            fetched = stores[task].ends.get(changelog) if task in stores else None
            # A standby reads on beyond the end that its changelog had at first.
            later = fetched is not None and (known is None or (not active and fetched > known))
            end = fetched if later else known
            remaining = nan if end is None else float(max(0, end - at))
            since, begin = self._first[changelog, active] = before.get(
                (changelog, active), (now, at)
            )
            tasks[task] = (active, tasks[task][1] + (0.0 if isnan(remaining) else remaining))
            yield (
                {
                    "client-id": self._watched.config.client_id,
                    "task-id": str(task),
                    "topic": changelog.topic,
                    "partition": str(changelog.partition),
                    "role": _ROLES[active],
                },
                [
                    (f.REMAINING, remaining),
                    (f.TIME_LEFT, _time_left(remaining, at - begin, now - since)),
                    (f.CHANGELOG_POSITION, at),
                ],
            )


def _time_left(remaining: float, read: int, seconds: float) -> float:
    """Return the time (s) for the remaining offsets, by the speed so far."""
    if remaining == 0:
        return 0.0
    return remaining * seconds / read if read > 0 and seconds > 0 else nan


def restore_source(metrics: Metrics, watched: Watched) -> MetricSource:  # noqa: ARG001 - as all
    """Return the source of the metrics of restoring tasks and of standbys."""
    return _Restores(watched).read
