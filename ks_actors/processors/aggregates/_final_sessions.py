"""Aggregations per session that are forwarded once, when the session has closed."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import SerializationError
from ks_actors.processors.aggregates._closing_windows import closing_time
from ks_actors.processors.aggregates._sessions import whole
from ks_actors.processors.aggregates._window_loop import UncommittedClock
from ks_actors.processors.api import LATEST_MS, Bound, Clock
from ks_actors.processors.stateless import Inline
from ks_actors.records import Window, Windowed

if TYPE_CHECKING:
    from ks_actors.processors.aggregates._sessions import SessionAggregation
    from ks_actors.processors.api import NodeContext, SessionsForOperators
    from ks_actors.records import Headers


@final
class FinalSessionAggregate(Inline):
    """Aggregate into a session store and forward each session's result once, when it has closed.

    A session closes when stream time has passed its end by more than gap and grace period. If a
    record advances stream time, all sessions that this closes are forwarded first, before the
    record is put into its own session: so the store still has these sessions. (Kafka Streams reads
    its store afterwards.) Results are in the order of the store's `find_ended_sessions`, with the
    sessions' ends as timestamps and the record's headers.

    The time up to which results have been forwarded is committed along with the offsets. So a task
    that takes over forwards no result again, and drops records that come too late. A record that is
    not dropped may still join a forwarded session: then the longer session is forwarded later.
    Downstream errors name no source record, see FinalWindowedAggregate.

    With `idle_after_ms` sessions also close by the wall clock, when no record has come for that
    time: stream time advances to the last close. Then no record joins a forwarded session: a record
    in time begins another session.
    """

    def __init__(
        self, aggregation: SessionAggregation, *, idle_after_ms: int | None = None
    ) -> None:
        self.aggregation: SessionAggregation = aggregation
        self.idle_after_ms: int | None = idle_after_ms

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        aggregation = self.aggregation
        store: SessionsForOperators = context.store(aggregation.store)
        find, put, remove = store.find_entries, store.put_entry, store.remove_entry
        begin, merge, add = aggregation.fold(context)
        gap = aggregation.gap_ms
        wait = gap + aggregation.grace_ms
        clock = (
            UncommittedClock()
            if self.idle_after_ms is None
            else Clock(context, aggregation.store, aggregation.stream)
        )
        progress = context.progress
        # A forwarded session takes no more records.
        clock.time = max(clock.time, progress.get(aggregation.store, -1 - wait) + wait)
        open_sessions = _OpenSessions(context, aggregation.store, clock, wait)
        closes_idle = self.idle_after_ms is not None
        if self.idle_after_ms is not None:
            context.when_idle(self.idle_after_ms, open_sessions)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                context.dropped()
                return
            open_sessions.touched = True
            if timestamp > clock.time:  # noqa: PLR1730 - `max` takes five times as long
                clock.time = timestamp
            open_sessions.close(clock.time - wait, headers)
            found = find(key, timestamp - gap, timestamp + gap)
            if closes_idle:
                closed = progress.get(aggregation.store, -1)
                found = [session for session in found if session[1] >= closed]
            start, end = whole(timestamp, found)
            if end < clock.time - wait:
                context.dropped()
                return
            aggregate = begin()
            for _first, _last, (other, _at) in found:
                aggregate = merge(key, aggregate, other)
            known = any(first == start and last == end for first, last, _ in found)
            aggregate = add(key, value, aggregate)
            # An error in `prepared` leaves the existing sessions unchanged.
            entry = None if aggregate is None else store.prepared(key, (aggregate, timestamp))
            if start != end or start != timestamp:
                for first, last, _ in found:
                    remove(key, first, last)
            put(key, start, end, entry)
            if not known:
                open_sessions.add(key, start, end)

        return Bound(process)


@final
class _OpenSessions:
    """The sessions of one task that are not forwarded yet, by their ends.

    Some of them may have been merged into others meanwhile. They may also close by the wall clock.
    """

    def __init__(
        self, context: NodeContext, store: str, clock: Clock | UncommittedClock, wait: int
    ) -> None:
        self.touched: bool = False
        self._context = context
        self._clock = clock
        self._wait = wait
        self._name = store
        self._store: SessionsForOperators = context.store(store)
        self._origins = context.origins()
        self._queue: list[tuple[Any, Any, int, int]] | None = None

    def _restored(self) -> list[tuple[Any, Any, int, int]]:
        """Return the sessions in the store that are not forwarded yet."""
        closed = max(0, self._context.progress.get(self._name, 0))
        sessions = self._store.ended_sessions(closed, LATEST_MS) if closed <= LATEST_MS else ()
        # in order: a heap
        return [
            (self._store.end_order(key, start, end), key, start, end)
            for key, start, end in sessions
        ]

    def add(self, key: Any, start: int, end: int) -> None:
        """Queue a session."""
        if self._queue is not None:
            key = self._store.own_key(key)
            heapq.heappush(self._queue, (self._store.end_order(key, start, end), key, start, end))

    @property
    def queue(self) -> list[tuple[Any, Any, int, int]]:
        """The sessions by their ends: a heap."""
        if self._queue is None:
            self._queue = self._restored()
        return self._queue

    @property
    def stream_time(self) -> int:
        """The node's stream time."""
        return self._clock.time

    def next_close(self) -> int | None:
        """Return the stream time at which the next session closes; None when all are closed."""
        end = self._first_end()
        return None if end is None else min(end + self._wait + 1, LATEST_MS)

    def close_until(self, time: int) -> None:
        """Forward the sessions that close by `time`; stream time advances to the last close."""
        wait = self._wait + 1
        ends = [end for _, _, _, end in self.queue if min(end + wait, LATEST_MS) <= time]
        if ends:
            closes = closing_time(max(ends) + wait)
            self._clock.time = max(self._clock.time, closes)
            self.close(closes - self._wait, ())

    def _first_end(self) -> int | None:
        """Return the least end of a session that is open; None when there is none."""
        queue = self.queue
        while queue:
            _, key, start, end = queue[0]
            try:
                if self._store.get_entry(key, start, end) is not None:
                    return end
            except SerializationError:
                return end  # the handler decides when the session is forwarded
            heapq.heappop(queue)
        return None

    def close(self, closed: int, headers: Headers) -> None:
        """Forward the sessions that end before `closed`."""
        queue, progress = self.queue, self._context.progress
        if closed <= max(0, progress.get(self._name, -1)):
            return
        here = self._origins.here()
        try:
            self._forward(queue, closed, headers)
        finally:
            self._origins.back(here)
        progress[self._name] = closed

    def _forward(
        self, queue: list[tuple[Any, Any, int, int]], closed: int, headers: Headers
    ) -> None:
        last: Any = None
        while queue and queue[0][3] < closed:
            order, key, start, end = heapq.heappop(queue)
            self._origins.go_to(None, end, ())
            try:
                # A session may be in the queue twice, and is forwarded once. A merged session is
                # gone.
                entry = self._store.get_entry(key, start, end) if order != last else None
            except SerializationError as error:
                self._context.failed(error, Windowed(key, Window(start, end)), None, end, headers)
                entry = None
            last = order
            if entry is not None:
                self._context.forward(
                    Windowed(key, Window(start, end)), (entry[0], None), end, headers
                )
