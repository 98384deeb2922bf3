"""The stream time of each task, and the partition that holds it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.task import RecordQueue, Task


class PartitionTime(msgspec.Struct, frozen=True):
    """The time of a partition in a task, in ms; None while it is unknown.

    `time` is the highest timestamp that was processed, `next_time` that of the next record in
    memory. `state` is `buffered` (records are in memory), `fetching` (the log has more, or its end
    is unknown) or `idle` (all is processed).
    """

    partition: str
    time: int | None
    next_time: int | None
    buffered: int
    lag: int | None
    state: str


class StreamTime(msgspec.Struct, frozen=True):
    """The stream time of a task, in ms; None before the first record.

    `held_by` is the partition that holds it back: the empty one that the others wait for
    (`waits`), else the one with the earliest next record. It is None if the task has no records in
    memory, or a single partition.
    """

    task: str
    time: int | None
    held_by: str | None
    waits: bool
    partitions: tuple[PartitionTime, ...]


def stream_times(tasks: Iterable[Task]) -> tuple[StreamTime, ...]:
    """Return the stream times of active tasks, in order; call it on the event loop."""
    return tuple(map(_of, sorted(tasks, key=lambda task: task.id)))


def _of(task: Task) -> StreamTime:
    # A thread may be processing the task: then the next record changes meanwhile.
    still = task.thread_guard.since is None
    queues = sorted(task.group.queues.values(), key=lambda queue: queue.partition)
    times = tuple(_time_of(queue, still=still) for queue in queues)
    held_by, waits = None, False
    if len(queues) > 1 and task.group.buffered:
        empty = task.group.awaited()
        if waits := empty is not None:
            held_by = str(empty.partition)
        else:
            ahead = [one for one in times if one.next_time is not None]
            held_by = min(ahead, key=_next_time).partition if ahead else None
    return StreamTime(str(task.id), _known(task.stream_time), held_by, waits, times)


def _next_time(one: PartitionTime) -> int:
    return one.next_time or 0


def _time_of(queue: RecordQueue, *, still: bool) -> PartitionTime:
    lag = queue.lag
    state = "buffered" if queue.buffered else "idle" if lag == 0 else "fetching"
    return PartitionTime(
        str(queue.partition),
        _known(queue.partition_time),
        queue.next_time if still else None,
        queue.buffered,
        lag,
        state,
    )


def _known(time: int) -> int | None:
    return None if time < 0 else time
