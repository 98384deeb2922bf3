"""The figures of each named query."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, NamedTuple, final

from ks_actors.metrics import NOT_MEASURED, joined
from ks_actors.metrics.families import query as f
from ks_actors.runtime.metrics._tasks import in_ns
from ks_actors.topology import REST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ks_actors.metrics import Readings
    from ks_actors.records import TaskId
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics
    from ks_actors.runtime.watch import PartitionStates


class InputLag(NamedTuple):
    """The lag of a partition in records and seconds; NaN if not known."""

    task: TaskId
    records: float
    seconds: float


@final
class QueryFigures:
    """Sum up tasks and partitions by query; there are none if the topology names no queries."""

    def __init__(self, metrics: Metrics, watched: Watched) -> None:
        queries = watched.topology.queries()
        self._queries = queries if queries.keys() - {REST} else {}
        self._metrics = metrics
        self._client_id = watched.config.client_id

    def read(self, lags: Iterable[InputLag], parts: PartitionStates) -> Iterator[Readings]:
        """Read the queries; `lags` are those of all partitions here."""
        if not self._queries:
            return
        lags = tuple(lags)
        tasks = tuple(self._metrics.tasks.values())
        for query, numbers in self._queries.items():
            own = [task for task in tasks if task.id.subtopology in numbers]
            mine = [lag for lag in lags if lag.task.subtopology in numbers]
            known = [lag.records for lag in mine if not isnan(lag.records)]
            processed = sum(task.processed for task in own) + sum(
                self._metrics.processed_before[number] for number in numbers
            )
            yield (
                {"client-id": self._client_id, "query": query},
                [
                    (f.PAUSED, float(query in parts.manager.pauses.queries)),
                    (f.PROCESS, processed),
                    (f.PROCESS_LATENCY, in_ns(joined(task.record_times for task in own))),
                    (f.LAG, sum(known) if known or not mine else NOT_MEASURED),
                    (
                        f.LAG_SECONDS,
                        max(
                            (lag.seconds for lag in mine if not isnan(lag.seconds)),
                            default=NOT_MEASURED,
                        ),
                    ),
                ],
            )
