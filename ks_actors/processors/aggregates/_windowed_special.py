"""Aggregations per window with final results only, or with a window without end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates._idle_windows import IdleWindows
from ks_actors.processors.api import Bound, Clock, forward_closed
from ks_actors.processors.stateless import Inline
from ks_actors.records import Window, Windowed

if TYPE_CHECKING:
    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.api import NodeContext, WindowsForOperators
    from ks_actors.records import Headers

LAST_INSTANT = 2**63 - 1


@final
class FinalWindowedAggregate(Inline):
    """Aggregate into a window store and forward each window's result once, when it has closed.

    A window closes when stream time has passed its end by the grace period. A record that moves
    stream time forwards all windows that it closes, by start and then key. They have the timestamps
    of their results and the record's headers. This happens before the record is put into its own
    windows: a store that keeps no more than window and grace has forgotten none of them by then.
    (Kafka Streams reads its store afterwards, and loses results there unless the retention is
    longer.)

    The time up to which results have been forwarded is committed along with the offsets. So a task
    that takes over forwards none again, and drops records that are late for them. Results come from
    no single source record: a downstream error names none, least of all the record that closes the
    window.

    With `idle_after_ms` windows also close by the wall clock, when no record has come for that
    time: stream time goes on to the last close.
    """

    def __init__(self, aggregation: WindowAggregation, *, idle_after_ms: int | None = None) -> None:
        self.aggregation: WindowAggregation = aggregation
        self.idle_after_ms: int | None = idle_after_ms

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        aggregation = self.aggregation
        store: WindowsForOperators = context.store(aggregation.store)
        get = store.get_entry
        put = store.put_entry
        fold = aggregation.fold(context, send_old=False)
        size = aggregation.size_ms
        advance = aggregation.advance_ms
        grace = aggregation.grace_ms
        closes = _Closes(context, aggregation)
        emit, idle = closes.emit, closes.idle_after(self.idle_after_ms)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                context.dropped()
                return
            closes.now = now = max(closes.now, timestamp)
            if idle is not None:
                idle.note(now)
            closed = now - grace
            emit(closed, headers)
            for start in range(
                max(0, timestamp - size + advance) // advance * advance, timestamp + 1, advance
            ):
                if start + size <= closed:
                    context.dropped()
                    continue
                entry = get(key, start)
                _, new = fold(key, value, entry)
                put(
                    key,
                    start,
                    None
                    if new is None
                    else (new, timestamp if entry is None else max(timestamp, entry[1])),
                )
                if idle is not None:
                    idle.add(start)

        return Bound(process)


class _Closes:
    """The closed windows of one task, and stream time `now`: a forwarded window stays closed."""

    def __init__(self, context: NodeContext, aggregation: WindowAggregation) -> None:
        self._context = context
        self._name = aggregation.store
        self._store = context.store(aggregation.store)
        self._origins = context.origins()
        self._progress = context.progress
        self._size = aggregation.size_ms
        self._advance = aggregation.advance_ms
        self._grace = aggregation.grace_ms
        self._stream = aggregation.stream
        self._idle: IdleWindows | None = None
        # The committed number is the time of closes, a grace period before stream time.
        self.now: int = self._progress.get(self._name, -1 - self._grace) + self._grace

    def idle_after(self, after_ms: int | None) -> IdleWindows | None:
        """Close windows by the wall clock, too, unless the time is None."""
        if after_ms is None:
            return None
        clock = Clock(self._context, self._name, self._stream)
        self.now = clock.time = max(clock.time, self.now)

        def emit() -> None:
            self.now = clock.time
            self.emit(self.now - self._grace, ())

        idle = self._idle = IdleWindows(
            self._store, clock, self._size + self._grace, first=self._first_open, emit=emit
        )
        self._context.when_idle(after_ms, idle)
        return idle

    def emit(self, closed: int, headers: Headers) -> None:
        """Forward the windows that end by `closed` and have not been forwarded."""
        if self._progress.get(self._name, -1) >= closed:
            return
        first, last = self._first_open(), min(closed - self._size, LAST_INSTANT)
        if last < 0 or last // self._advance * self._advance < first:
            return  # no window ends in between
        forward_closed(
            self._context,
            self._origins,
            self._store,
            (first, last),
            lambda start: Window(start, start + self._size),
            headers,
        )
        self._progress[self._name] = closed
        if self._idle is not None:
            self._idle.forget_closed()

    def _first_open(self) -> int:
        """Return the least start of a window that has not been forwarded."""
        emitted = self._progress.get(self._name, -1)
        return 0 if emitted < 0 else max(0, emitted - self._size) + 1


@final
class UnlimitedAggregate(Inline):
    """Aggregate all records from `start_ms` on into one window of a window store.

    It forwards `Windowed(key, window)` and `(new, old | None)`. Records before the start are left
    out, those without key are dropped.
    """

    def __init__(self, aggregation: WindowAggregation, start_ms: int) -> None:
        self.aggregation: WindowAggregation = aggregation
        self.start_ms: int = start_ms

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        store: WindowsForOperators = context.store(self.aggregation.store)
        get = store.get_entry
        put = store.put_entry
        forward = context.forward
        send_old = self.aggregation.send_old
        fold = self.aggregation.fold(context, send_old=send_old)
        start = self.start_ms
        window = Window(start, LAST_INSTANT)
        cache = context.cache(self.aggregation.store, send_old=send_old)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                context.dropped()
                return
            if timestamp < start:
                return
            entry = get(key, start)
            old, new = fold(key, value, entry)
            latest = timestamp if entry is None else max(timestamp, entry[1])
            put(key, start, None if new is None else (new, latest))
            forward(Windowed(key, window), (new, old if send_old else None), latest, headers)

        if cache is None:
            return Bound(process)
        hold, kept = cache.hold, cache.before

        def process_cached(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                context.dropped()
                return
            if timestamp < start:
                return
            windowed = Windowed(key, window)
            entry = get(key, start)
            old = None if entry is None else kept(key, entry[0], window)
            _, new = fold(key, value, entry)
            latest = timestamp if entry is None else max(timestamp, entry[1])
            put(key, start, None if new is None else (new, latest))
            hold(windowed, (new, old), timestamp if new is None else latest, headers)

        return Bound(process_cached)
