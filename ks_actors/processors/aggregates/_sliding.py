"""Aggregations per sliding window.

There is one window for every set of records that can be within a given time of each other.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates._closing_windows import ClosingWindows, closing_regular
from ks_actors.processors.aggregates._previous_aggregates import keeper, watched
from ks_actors.processors.api import Bound, Clock
from ks_actors.processors.stateless import ATOMS, Inline
from ks_actors.records import Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.api import Cache, NodeContext, WindowsForOperators
    from ks_actors.records import Headers

    Entry = tuple[Any, int]


@final
class SlidingAggregate(Inline):
    """Aggregate into a window store; windows last the aggregation's `size_ms`, both ends included.

    A record makes the window that ends with this record, and the window that begins right after the
    previous record. If there are later records, it also makes the window that begins right after
    itself. The record is added to all windows that contain it. With `on_close` each window is
    forwarded once, by start and key, when stream time has passed its end by the grace period;
    otherwise every change is forwarded. Late records, and records without key or value, are
    dropped. With `idle_after_ms` windows also close by the wall clock: see FinalWindowedAggregate.
    """

    def __init__(
        self,
        aggregation: WindowAggregation,
        *,
        on_close: bool = False,
        idle_after_ms: int | None = None,
    ) -> None:
        self.aggregation: WindowAggregation = aggregation
        self.on_close: bool = on_close
        self.idle_after_ms: int | None = idle_after_ms

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        sliding = _Sliding(
            context,
            self.aggregation,
            on_close=self.on_close,
            idle_after_ms=self.idle_after_ms,
        )
        return Bound(sliding.process)


@final
@dataclass(slots=True)
class _Record:
    """The current record. Windows that end before `closed` are closed."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    closed: int


class _Sliding:
    """The windows of one task."""

    def __init__(
        self,
        context: NodeContext,
        aggregation: WindowAggregation,
        *,
        on_close: bool,
        idle_after_ms: int | None,
    ) -> None:
        self._context = context
        self._store: WindowsForOperators = context.store(aggregation.store)
        self._name = aggregation.store
        self._length = aggregation.size_ms
        self._grace = aggregation.grace_ms
        self._send_old = aggregation.send_old
        self._mutable = self._store.mutable
        self._kept = keeper(self._store, send_old=aggregation.send_old)
        self._cache = (
            None if on_close else context.cache(aggregation.store, send_old=aggregation.send_old)
        )
        self._initial, self._fold = _functions(context, aggregation)
        # Kafka Streams without a cache sends the aggregate that a new window begins with.
        self._initial_is_sent = context.kafka_streams_faults
        self._clock = Clock(context, self._name, aggregation.stream)
        self._closes: ClosingWindows | None = None
        if not on_close:
            return
        length = aggregation.size_ms
        # A forwarded window takes no more records.
        closed = context.progress.get(self._name, -1 - self._grace)
        self._clock.time = max(self._clock.time, closed + self._grace)
        self._closes = ClosingWindows(
            context,
            aggregation,
            self._clock,
            lambda start: Window(start, start + length),
            closing_regular(length + 1, 1),
            past_end=1,
        )
        if idle_after_ms is not None:
            context.when_idle(idle_after_ms, self._closes)

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            self._context.dropped()
            return
        clock, closes = self._clock, self._closes
        clock.time = max(clock.time, timestamp)
        if closes is not None:
            closes.touched = True
        closed = clock.time - self._grace
        if timestamp + self._length < closed:
            self._context.dropped()
            return
        record = _Record(key, value, timestamp, headers, closed)
        if timestamp < self._length:
            self._process_early(record)
            return
        if closes is not None:
            # Before the record is put: see FinalWindowedAggregate.
            closes.emit(closed, headers)
        self._process(record)

    def _process(self, record: _Record) -> None:
        now, length = record.timestamp, self._length
        # Walk back in time through the windows that this record may change or make.
        starts: set[int] = set()
        left: Entry | None = None
        right: Entry | None = None
        left_exists = right_exists = False
        previous: int | None = None
        for start, entry in reversed(
            self._store.fetch_entries(record.key, max(0, now - 2 * length), now + 1)
        ):
            starts.add(start)
            end = start + length
            # The window right after this record exists already.
            if start == now + 1:
                right_exists = True
            # A window around this record.
            elif end > now:
                right = right or self._taken(entry)
                self._update(record, start, entry)
            # The window that ends with this record.
            elif end == now:
                left_exists = True
                seen = entry[1]
                self._update(record, start, entry)
                if seen >= now:
                    return  # An earlier record with this timestamp has made all of these windows.
                previous = seen
            # The latest window before this record.
            else:
                left = entry
                previous = entry[1]
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + length >= now:
            self._begin(record, previous + 1)
        if not left_exists:
            begun = left is not None and previous is not None and now - length <= previous
            self._begin(record, now - length, left if begun else None)
        if not right_exists and right is not None and right[1] > now:
            self._take_over(record, right)

    def _process_early(self, record: _Record) -> None:
        """Process a record whose own window would begin before the epoch.

        One window from 0 on holds all such records.
        """
        now = record.timestamp
        starts: set[int] = set()
        combined: Entry | None = None
        right: Entry | None = None
        right_exists = False
        previous: int | None = None
        for start, entry in list(self._store.fetch_entries(record.key, 0, now + 1)):
            starts.add(start)
            if start == 0:
                combined = entry
                if entry[1] < now:
                    previous = entry[1]
            elif start <= now:
                right = self._taken(entry)
                self._update(record, start, entry)
            else:
                right_exists = True
        if right is None and combined is not None and combined[1] > now:
            right = self._taken(combined)
        if not right_exists and right is not None and right[1] > now:
            self._take_over(record, right)
        if previous is not None and previous + 1 not in starts:
            self._begin(record, previous + 1)
        if combined is None:
            self._begin(record, 0)
        else:
            self._update(record, 0, combined)

    def _taken(self, entry: Entry) -> Entry:
        """Return an entry with which another window can begin.

        The entry is a copy if in-place changes would affect both windows.
        """
        if self._mutable and type(entry[0]) not in ATOMS:
            return deepcopy(entry[0]), entry[1]
        return entry

    def _begin(self, record: _Record, start: int, other: Entry | None = None) -> None:
        """Make a window with a record; it begins with the aggregate of another window, if any."""
        aggregate = self._initial() if other is None else self._taken(other)[0]
        self._update(record, start, (aggregate, record.timestamp), new_window=True)

    def _update(
        self, record: _Record, start: int, entry: Entry, *, new_window: bool = False
    ) -> None:
        """Add a record to a window that has, or begins with, an entry."""
        end = start + self._length
        if end < record.closed:
            self._context.dropped()
            return
        old, seen = entry
        if self._cache is not None:
            before = self._before(self._cache, record.key, start)
        elif new_window and not self._initial_is_sent:
            before = None
        else:
            before = self._kept(old)
        new = self._fold(record.key, record.value, old)
        latest = record.timestamp if old is None else max(record.timestamp, seen)
        self._store.put_entry(record.key, start, None if new is None else (new, latest))
        if self._closes is not None:
            self._closes.add(start, start + self._length)
        self._forward(record, start, new, before, latest)

    def _take_over(self, record: _Record, entry: Entry) -> None:
        """Make the window right after a record, from the later records."""
        start = record.timestamp + 1
        self._store.put_entry(record.key, start, entry)
        if self._closes is not None:
            self._closes.add(start, start + self._length)
        self._forward(record, start, entry[0], None, entry[1])

    def _forward(self, record: _Record, start: int, new: Any, old: Any, timestamp: int) -> None:
        if self._closes is not None:
            return
        windowed = Windowed(record.key, Window(start, start + self._length))
        if self._cache is not None:
            self._cache.hold(
                windowed, (new, old), record.timestamp if new is None else timestamp, record.headers
            )
        else:
            self._context.forward(
                windowed, (new, old if self._send_old else None), timestamp, record.headers
            )

    def _before(self, cache: Cache, key: Any, start: int) -> Any:
        """Return the window's value in the store, None for a new window."""
        entry = self._store.get_entry(key, start)
        return (
            None
            if entry is None
            else cache.before(key, entry[0], Window(start, start + self._length))
        )


def _functions(
    context: NodeContext, aggregation: WindowAggregation
) -> tuple[Callable[[], Any], Callable[[Any, Any, Any], Any]]:
    """Return the initializer of a window, and the fold of key, value and aggregate."""
    aggregator = aggregation.aggregator
    if aggregator is None:
        return int, _one_more
    if aggregation.initializer is not None:
        return aggregation.initializer, watched(
            context, aggregation.store, aggregator, aggregation.initializer
        )

    def reduce(_: Any, value: Any, old: Any) -> Any:
        return value if old is None else aggregator(old, value)

    return _none, reduce


def _one_more(_: Any, __: Any, count: int) -> int:
    return count + 1


def _none() -> None:
    """Return no initial value."""
