"""Closes by the wall clock, for nodes that no record reaches."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, final

from ks_actors.processors.api import LATEST_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.processors.api import IdleNode
    from ks_actors.records import TopicPartition
    from ks_actors.task._record_queue import RecordQueue
    from ks_actors.task.calls import Holder

PACE_MS: Final = 100
"""The least time between two closes of one node: closes that are due in between happen together."""


@final
class _Way:
    """The wait for all records from before an `asked` time, at the holders that lead to a node.

    The wait takes the holders one after the other, upstream first. Later records are not waited
    for: otherwise the wait for a busy holder would not end.
    """

    __slots__ = ("_holders", "_mark", "asked")

    def __init__(self, asked: float, holders: Sequence[Holder]) -> None:
        self.asked: float = asked
        self._holders = list(reversed(holders))
        self._mark: int | None = None

    def passed(self) -> bool:
        """Return whether the records have passed all holders."""
        holders = self._holders
        while holders:
            if self._mark is None:
                self._mark = holders[-1].mark()
            if not holders[-1].passed(self._mark):
                return False
            holders.pop()
            self._mark = None
        return True


@final
class _Watched:
    """One node, with the time (ms, monotonic) of its last record, and the stream time at that time.

    `due` is the time of its next check, None while there is nothing to close. No record from before
    the time `known` is still on its way to the node. If `wants` is set, the node has waited since
    that time for a lookup, and waits then for the records on its `way`, to learn a later `known`
    time.
    """

    __slots__ = ("after", "base", "due", "known", "last", "name", "node", "wants", "way")

    def __init__(self, name: str, after_ms: int, node: IdleNode, now: float) -> None:
        self.name: str = name
        self.node: IdleNode = node
        self.after: int = after_ms
        self.last: float = now
        self.base: int = node.stream_time
        self.due: float | None = now + after_ms
        self.known: float = -inf
        self.wants: float | None = None
        self.way: _Way | None = None

    def note(self, now: float) -> None:
        """Restart the wait if a record has come."""
        if self.node.touched:
            self.node.touched = False
            self.last, self.base = now, self.node.stream_time
            self.due = now + self.after
            self.wants = self.way = None

    def go_on(self) -> None:
        """Check whether the records for which the node waits have passed."""
        if self.way is not None and self.way.passed():
            self.known, self.way = self.way.asked, None

    def waits(self) -> bool:
        """Return whether the node waits for records that may be on their way."""
        return self.wants is not None or self.way is not None

    def moment(self) -> float | None:
        """Return the time of the next close."""
        close = self.node.next_close()
        return None if close is None else self.last + max(self.after, close - self.base)

    def close(self, now: float) -> None:
        """Close as if stream time had advanced from the last record to the known time."""
        # Do not close up to `now`: a record may have been written since the known time.
        self.node.close_until(min(self.base + int(self.known - self.last), LATEST_MS))
        moment = self.moment()
        self.due = None if moment is None else max(moment, now + PACE_MS)


@final
class IdleNodes:
    """The nodes of a task whose stream time advances by the wall clock when they are idle.

    A node is idle when no record has reached it for its idle time. From then on, until the next
    record, its stream time is that of its last record plus the time since. Times are of a monotonic
    clock, and start again with the task.

    A node is not idle while records for it wait in the log, in an asynchronous processor, in a
    cache or in tasks upstream. So before a close, `asks` is set. The task's owner waits for these
    records, looks up the partitions' end offsets and passes them to `answer`. The close happens
    when all records before these ends have been taken, and have passed the `holders` that lead to
    the node. `holders` are pairs (holder, nodes it leads to), upstream first.
    """

    def __init__(self, queues: Mapping[TopicPartition, RecordQueue]) -> None:
        self.asks: bool = False
        self.holders: Sequence[tuple[Holder, frozenset[str]]] = ()
        self._queues = queues
        self.nodes: list[_Watched] = []
        """The nodes that are watched."""
        self._asked: float | None = None
        self._ends: dict[TopicPartition, int] = {}

    def add(self, name: str, after_ms: int, node: IdleNode, now: float) -> None:
        """Watch a node that is idle after `after_ms` without a record."""
        self.nodes.append(_Watched(name, after_ms, node, now))

    def clear(self) -> None:
        """Forget all nodes."""
        self.nodes.clear()
        self.forget_ends()

    def forget_ends(self) -> None:
        """Forget the end offsets: the next check requests them again."""
        self.asks, self._asked = False, None
        self._ends.clear()
        for watched in self.nodes:
            watched.wants = watched.way = None
            watched.known = -inf

    def note(self, now: float) -> None:
        """Check for records that have reached nodes, or passed holders, since the last call."""
        for watched in self.nodes:
            watched.note(now)
        self._go_on()

    def answer(self, partition: TopicPartition, end: int) -> None:
        """Note the end offset of a partition, looked up since the task requested it."""
        if self._asked is not None:
            self._ends[partition] = end

    def ready(self, now: float) -> bool:
        """Return whether `act` has work."""
        self._go_on()
        return any(
            watched.due is not None and watched.due <= now and not watched.waits()
            for watched in self.nodes
        )

    def wakes_at(self, now: float) -> float | None:
        """Return the time after `now` at which `ready` may turn true by time alone."""
        dues = (watched.due for watched in self.nodes)
        return min((due for due in dues if due is not None and due > now), default=None)

    def asked(self, now: float) -> None:
        """Note that the end offsets are being looked up."""
        self.asks, self._asked = False, now
        self._ends.clear()

    def act(self, now: float) -> bool:
        """Close nodes that are due, or ask for the end offsets first; return whether a node closed.

        Call it only when `ready`.
        """
        closed = False
        for watched in self.nodes:
            if watched.due is None or watched.due > now or watched.waits():
                continue
            moment = watched.moment()
            if moment is None or moment > now:
                watched.due = moment
            elif watched.known < moment:
                watched.wants = now
                self.asks = self._asked is None
            else:
                watched.close(now)
                closed = True
        return closed

    def _go_on(self) -> None:
        asked = self._asked
        if asked is not None and self._taken():
            self._asked = None
            for watched in self.nodes:
                if watched.wants is None:
                    continue
                # A node that came to need the end offsets during the lookup has to request them
                # again.
                if watched.wants <= asked:
                    leads = [one for one, reached in self.holders if watched.name in reached]
                    watched.way = _Way(asked, leads)
                watched.wants = None
        for watched in self.nodes:
            watched.go_on()

    def _taken(self) -> bool:
        """Return whether the task has taken all records before the ends."""
        return self._ends.keys() == self._queues.keys() and all(
            self._queues[partition].position >= end for partition, end in self._ends.items()
        )
