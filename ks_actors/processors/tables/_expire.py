"""Delete keys for which no record has come for some time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.api import Bound, Clock, PunctuationType, buffered_records
from ks_actors.processors.stateless import Inline

if TYPE_CHECKING:
    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Headers

_SOONEST_MS = 100
_LATEST_MS = 60_000
_AHEAD_MS = 1_000
"""Times of keys that are further ahead of the clock are set back to the clock."""


@final
@dataclass(frozen=True, kw_only=True)
class Expire(Inline):
    """Forward records, and a delete of each key that has had none for `after_ms`.

    By event time, a key expires when stream time is `after_ms` past the latest timestamp of its
    records. The delete is forwarded before the record that advances stream time, and has the
    timestamp at which it was due. Deletes are in the order of this time, then of the keys' bytes.
    By the `wall` clock, a key expires `after_ms` after its last record was processed; the delete
    has stream time. If the clock was ahead, times in the future count as now. `store` has the time
    of each key's last record. After a record without value, its key is forgotten.
    """

    store: str
    after_ms: int
    wall: bool

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        keys = _Keys(self, context)
        if not self.wall:
            return Bound(keys.process)
        interval = min(max(self.after_ms // 10, _SOONEST_MS), _LATEST_MS)
        context.schedule(interval, PunctuationType.WALL_CLOCK_TIME, keys.expire_by_wall_clock)
        return Bound(keys.process_by_wall_clock)


class _Keys:
    """The keys of one task, by the time at which they may expire.

    A key is queued when its first record comes. When the key is due, its time is looked up; if
    there were records meanwhile, it is queued again. A key that is deleted and comes again keeps
    its place, unless its new time is earlier.
    """

    def __init__(self, expire: Expire, context: NodeContext) -> None:
        self._context = context
        self._store = context.store(expire.store)
        self._origins = context.origins()
        self._after = expire.after_ms
        self._wall = expire.wall
        self._clock = Clock(context, expire.store)
        self._queue: list[tuple[int, bytes, Any]] | None = None
        # When each queued key is due; entries of the queue at other times are void.
        self._turns: dict[bytes, int] = {}
        # The latest time of all keys, or later: it reveals a clock that has been ahead.
        self._latest: int = -1

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Take a record by event time."""
        if key is None:
            self._context.dropped()
            return
        clock = self._clock
        clock.time = max(clock.time, timestamp)
        self.expire(clock.time)
        if (
            value is not None
            and timestamp + self._after <= clock.time
            and self._store.get(key) is None
        ):
            self._context.dropped()  # it would expire at once
            return
        self._note(key, value, timestamp)
        self._context.forward(key, value, timestamp, headers)

    def process_by_wall_clock(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Take a record by the time at which it comes."""
        if key is None:
            self._context.dropped()
            return
        self._clock.time = max(self._clock.time, timestamp)
        self._note(key, value, self._context.wall_time())
        self._context.forward(key, value, timestamp, headers)

    def expire_by_wall_clock(self, now: int) -> None:
        """Delete the keys that are due at `now`; the clock may have been ahead, or set back."""
        self._queued()
        if self._latest > now + _AHEAD_MS:
            here = self._origins.here()
            try:
                ahead = [
                    key
                    for key, last in buffered_records(self._context, self._origins, self._store)
                    if last > now
                ]
            finally:
                self._origins.back(here)
            for key in ahead:
                self._store.put(key, now)
            self._queue, self._latest = None, now
        self.expire(now)

    def expire(self, now: int) -> None:
        """Delete the keys that are due at `now`."""
        queue = self._queued()
        if not queue or queue[0][0] > now:
            return
        here = self._origins.here()
        try:
            while queue and queue[0][0] <= now:
                self._look_at(queue)
        finally:
            self._origins.back(here)

    def _look_at(self, queue: list[tuple[int, bytes, Any]]) -> None:
        queued, order, key = heapq.heappop(queue)
        if self._turns.get(order) != queued:
            return
        del self._turns[order]
        last = self._store.get(key)
        if last is None:
            return
        due = last + self._after
        if due > queued:  # even if the key is already due: keys due earlier go first
            self._enqueue(queue, due, order, key)
            return
        self._store.put(key, None)
        timestamp = self._clock.time if self._wall else due
        self._origins.go_to(None, timestamp, ())
        self._context.forward(key, None, timestamp, ())

    def _note(self, key: Any, value: Any, time: int) -> None:
        queue, store = self._queued(), self._store
        last = store.get(key)
        self._latest = max(self._latest, time)
        if value is None:
            if last is not None:
                store.put(key, None)
        elif last is None:
            store.put(key, time)
            order, own = store.own_key(key)
            self._enqueue(queue, time + self._after, order, own)
        elif time > last:
            store.put(key, time)

    def _enqueue(
        self, queue: list[tuple[int, bytes, Any]], due: int, order: bytes, key: Any
    ) -> None:
        turn = self._turns.get(order)
        if turn is None or due < turn:
            self._turns[order] = due
            heapq.heappush(queue, (due, order, key))

    def _queued(self) -> list[tuple[int, bytes, Any]]:
        if self._queue is None:
            self._queue = [
                (last + self._after, self._store.key_bytes(key), key)
                for key, last in buffered_records(self._context, self._origins, self._store)
            ]
            heapq.heapify(self._queue)
            self._turns = {order: due for due, order, _ in self._queue}
            latest = max(self._turns.values(), default=0) - self._after
            self._latest = max(self._latest, latest)
        return self._queue
