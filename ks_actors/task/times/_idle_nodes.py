"""Closes by the wall clock, for nodes that no record reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.processors.api import IdleNode
    from ks_actors.records import TopicPartition
    from ks_actors.task._record_queue import RecordQueue

PACE_MS: Final = 100
"""The least time between two closes of one node: those due in between happen together."""


@final
class _Watched:
    """One node, with the time (ms, monotonic) of its last record, and stream time by then.

    `due` is the time of the next look at it, None while there is nothing to close.
    """

    __slots__ = ("after", "base", "due", "last", "node")

    def __init__(self, after_ms: int, node: IdleNode, now: float) -> None:
        self.node: IdleNode = node
        self.after: int = after_ms
        self.last: float = now
        self.base: int = node.stream_time
        self.due: float | None = now + after_ms

    def note(self, now: float) -> None:
        """Start the wait anew if a record has come."""
        if self.node.touched:
            self.node.touched = False
            self.last, self.base = now, self.node.stream_time
            self.due = now + self.after

    def moment(self) -> float | None:
        """Return the time of the next close."""
        close = self.node.next_close()
        return None if close is None else self.last + max(self.after, close - self.base)

    def close(self, now: float, silent_until: float) -> None:
        """Close as if stream time had gone on from the last record to then."""
        self.node.close_until(self.base + int(silent_until - self.last))
        moment = self.moment()
        self.due = None if moment is None else max(moment, now + PACE_MS)


@final
class IdleNodes:
    """The nodes of a task whose stream time goes on by the wall clock when they are idle.

    A node is idle when no record has reached it for its time of patience. From then on its stream
    time is that of its last record plus the time since, for as long as no record comes. Times are
    of a monotonic clock, and begin anew when the task starts.

    A record that waits in the log, or in an asynchronous processor, is no silence. So before a
    close, `asks` is set: the task's owner looks up the end offsets of the partitions and tells
    them to `answer`. The close happens when the task has processed all records before them.
    """

    def __init__(self, queues: Mapping[TopicPartition, RecordQueue]) -> None:
        self.asks: bool = False
        self._queues = queues
        self._nodes: list[_Watched] = []
        self._asked: float | None = None
        self._ends: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def add(self, after_ms: int, node: IdleNode, now: float) -> None:
        """Watch a node that is idle after `after_ms` without a record."""
        self._nodes.append(_Watched(after_ms, node, now))

    def clear(self) -> None:
        """Forget all nodes."""
        self._nodes.clear()
        self.forget_ends()

    def forget_ends(self) -> None:
        """Forget the end offsets: the next look asks for them anew."""
        self.asks, self._asked = False, None
        self._ends.clear()

    def note(self, now: float) -> None:
        """Look for records that have reached nodes since the last call."""
        for watched in self._nodes:
            watched.note(now)

    def answer(self, partition: TopicPartition, end: int) -> None:
        """Note the end offset of a partition, looked up since the task asked for it."""
        if self._asked is not None:
            self._ends[partition] = end

    def ready(self, now: float) -> bool:
        """Return whether `act` has work."""
        if not any(watched.due is not None and watched.due <= now for watched in self._nodes):
            return False
        if self._asked is None:
            return not self.asks
        return self._ends.keys() == self._queues.keys() and all(
            self._queues[partition].position >= end for partition, end in self._ends.items()
        )

    def wakes_at(self, now: float) -> float | None:
        """Return the time after `now` at which `ready` may turn true by time alone."""
        dues = (watched.due for watched in self._nodes)
        return min((due for due in dues if due is not None and due > now), default=None)

    def asked(self, now: float) -> None:
        """Note that the end offsets are being looked up."""
        self.asks, self._asked = False, now

    def act(self, now: float) -> bool:
        """Close nodes that are due, or ask for the end offsets first; return whether a node closed.

        Call it only when `ready`.
        """
        answered, closed = self._asked, False
        self.forget_ends()
        for watched in self._nodes:
            if watched.due is None or watched.due > now:
                continue
            moment = watched.moment()
            if moment is None or moment > now:
                watched.due = moment
            elif answered is None or answered < moment:
                self.asks = True
            else:
                # Not until `now`: a record may have been written meanwhile.
                watched.close(now, answered)
                closed = True
        return closed
