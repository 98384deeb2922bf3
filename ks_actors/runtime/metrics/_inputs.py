"""The lag of each input partition, in records and seconds, and the figures of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.metrics import NOT_MEASURED
from ks_actors.metrics.families import inputs as f
from ks_actors.runtime.metrics._queries import InputLag, QueryFigures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.metrics import MetricSource, Readings
    from ks_actors.records import TopicPartition
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics
    from ks_actors.runtime.watch import PartitionState


class _Inputs:
    """The positions and times of partitions, as last seen outside of threads."""

    def __init__(self, metrics: Metrics, watched: Watched) -> None:
        self._watched = watched
        self._queries = QueryFigures(metrics, watched)
        self._seen: dict[TopicPartition, tuple[int, int | None]] = {}

    def read(self) -> Iterator[Readings]:
        """Read all input partitions of the tasks here, and the queries."""
        if (started := self._watched.started()) is None:
            return
        instance, parts = started
        before, self._seen = self._seen, {}
        now = instance.wall_time()
        lags: list[InputLag] = []
        for place in parts.places(instance.known_ends):
            position, time = self._seen_at(place, before)
            end = place.end
            lag = None if end is None or position < 0 else max(0, end - position)
            seconds = NOT_MEASURED
            if lag == 0:
                seconds = 0.0
            elif lag is not None and time is not None:
                seconds = max(0.0, (now - time) / 1000)
            known = NOT_MEASURED if lag is None else lag
            lags.append(InputLag(place.task_id, known, seconds))
            yield (
                {
                    "client-id": self._watched.config.client_id,
                    "task-id": str(place.task_id),
                    "topic": place.partition.topic,
                    "partition": str(place.partition.partition),
                },
                [
                    (f.LAG, known),
                    (f.LAG_SECONDS, seconds),
                    (f.BUFFERED, place.buffered),
                    (f.POSITION, position if position >= 0 else NOT_MEASURED),
                    (f.END_OFFSET, NOT_MEASURED if end is None else end),
                ],
            )
        yield from self._queries.read(lags, parts)

    def _seen_at(
        self, place: PartitionState, before: dict[TopicPartition, tuple[int, int | None]]
    ) -> tuple[int, int | None]:
        """Return the position, and the time from which the lag follows."""
        partition = place.partition
        # A thread moves the queue at this moment.
        if place.absent is not None and partition in before:
            found = before[partition]
        elif place.task is None:
            found = (-1 if place.position is None else place.position, None)
        else:
            queue = place.task.group.queues[partition]
            time = queue.next_time if place.absent is None else None
            if time is None and queue.partition_time >= 0:
                time = queue.partition_time
            found = (-1 if place.position is None else place.position, time)
        self._seen[partition] = found
        return found


def input_source(metrics: Metrics, watched: Watched) -> MetricSource:
    """Return the source of the metrics of input partitions and of queries."""
    return _Inputs(metrics, watched).read
