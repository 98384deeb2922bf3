"""A join of two streams: records match when their timestamps are near enough."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors.processors.api import LATEST_MS, Bound, buffered_records
from ks_actors.processors.joins._join_time import JoinTime
from ks_actors.processors.stateless import Inline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import (
        BufferForOperators,
        JoinWindowsForOperators,
        NodeContext,
        Origin,
        Process,
    )
    from ks_actors.records import Headers


_key = attrgetter("key")


class PendingKey(NamedTuple):
    """The key of unmatched records: all records of one side (True: left), time and key."""

    timestamp: int
    left: bool
    key: Any


@final
@dataclass(frozen=True, kw_only=True)
class JoinWindow(Inline):
    """Store one side's records for the other side. They are joined before they are stored.

    A record is late, and dropped and counted, if its own window has closed: the stream time of both
    sides, shared as `time`, has passed its timestamp by more than `late_ms`. (Kafka Streams accepts
    such a record, KAFKA-16123.)
    """

    store: str
    time: str
    late_ms: int

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        store: JoinWindowsForOperators = context.store(self.store)
        put, kept = store.put_entry, store.kept
        forward, dropped = context.forward, context.dropped
        if context.kafka_streams_faults:
            shared, late_ms = JoinTime(-1, None), LATEST_MS
        else:
            shared, late_ms = JoinTime.of(context, self.time), self.late_ms

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            now = shared.time
            if timestamp > now:
                shared.time = timestamp
            elif timestamp + late_ms < now:
                dropped()
                return
            if key is None or value is None:
                forward(key, value, timestamp, headers)
                if key is not None:
                    put(key, timestamp, None)
                return
            row = kept(key, value)  # Copy the value now: the joiner may change it.
            forward(key, value, timestamp, headers)
            put(key, timestamp, (row, timestamp))

        return Bound(process)


@final
@dataclass(frozen=True, kw_only=True)
class StreamJoinSide(Inline):
    """Join records of one side with those of the `other` store.

    From the left side's view, a record is joined with records from `before_ms` before to `after_ms`
    after its time. Values are `joiner(left, right)`, or `joiner(key, left, right)` if it is
    `keyed`; the later timestamp is the result's. Records without key or value are dropped.

    Unmatched records of an `outer` side are forwarded with None for the other side. Records without
    key are forwarded at once. Other records wait in the store `pending`, which both sides share,
    until their window is closed: stream time, shared as `time`, has passed the last instant of a
    possible match by more than the grace period. They are forwarded by time, right before left, and
    key. From then on they match nothing, so each record has either matches or one unmatched result.

    With `NodeContext.kafka_streams_faults` there is no grace period for a record out of order
    (KAFKA-19536), and a forwarded record may match others. The wait may be longer if `before_ms`
    and `after_ms` differ (KAFKA-15417).
    """

    other: str
    joiner: Callable[..., Any]
    before_ms: int
    after_ms: int
    grace_ms: int
    left: bool
    time: str
    outer: bool = False
    other_outer: bool = False
    keyed: bool = False
    pending: str | None = None

    @property
    def late_ms(self) -> int:
        """The lag (ms) behind stream time beyond which a record's own window is closed.

        A window that ends before its record does not make the record late.
        """
        return max(0, self.after_ms if self.left else self.before_ms) + self.grace_ms

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        if not self.outer and self.pending is None:
            return Bound(self._inner(context))
        pending: BufferForOperators | None = (
            None if self.pending is None else context.store(self.pending)
        )
        shared = JoinTime.of(context, self.time)
        # Both sides share the pending records, so only stream time of both together closes windows.
        shared.keep_pending(context, self.time)
        return Bound(_Side(self, context, pending, shared).process)

    def _inner(self, context: NodeContext) -> Process:
        """Return the record form of an inner join, in which no record waits."""
        forward, joiner, keyed, left = context.forward, self.joiner, self.keyed, self.left
        rows: JoinWindowsForOperators = context.store(self.other)
        fetch = rows.fetch_entries
        before, after = (self.before_ms, self.after_ms) if left else (self.after_ms, self.before_ms)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                context.dropped()
                return
            since, until = timestamp - before, timestamp + after
            for time, (other, _) in fetch(key, max(0, since), max(0, until)):
                left_value, right_value = (value, other) if left else (other, value)
                joined = (
                    joiner(key, left_value, right_value)
                    if keyed
                    else joiner(left_value, right_value)
                )
                forward(key, joined, max(timestamp, time), headers)

        return process


class _Side:
    """One side in one task."""

    def __init__(
        self,
        join: StreamJoinSide,
        context: NodeContext,
        pending: BufferForOperators | None,
        tracker: JoinTime,
    ) -> None:
        self._context = context
        self._forward = context.forward
        rows: JoinWindowsForOperators = context.store(join.other)
        self._fetch = rows.fetch_entries
        self._pending = pending
        self._origins = context.origins()
        self._tracker = tracker
        self._joiner = join.joiner
        self._keyed = join.keyed
        self._left = join.left
        self._outer = join.outer
        self._before, self._after = (
            (join.before_ms, join.after_ms) if join.left else (join.after_ms, join.before_ms)
        )
        self._waits = {True: join.after_ms + join.grace_ms, False: join.before_ms + join.grace_ms}
        self._faults = context.kafka_streams_faults
        # The store is read as soon as a record of either side may be due.
        self._wait = self._waits[join.left] if self._faults else min(self._waits.values())
        self._grace = 0 if self._faults else join.grace_ms
        self._closes = join.other_outer and not self._faults

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        tracker = self._tracker
        tracker.time = max(tracker.time, timestamp)
        # Without a key nothing can match, so there is nothing to wait for.
        if self._outer and key is None and value is not None:
            self._forward(key, self._join(key, value, None), timestamp, headers)
            return
        if key is None or value is None:
            self._context.dropped()
            return
        pending = self._pending
        # Only the latest record can have advanced stream time, and so closed a window.
        if pending is not None and timestamp == tracker.time:
            self._release(pending, headers)
        until = max(0, timestamp + self._after)
        since = max(0, timestamp - self._before)
        if self._closes:
            # Earlier records were already forwarded as unmatched.
            since = max(since, tracker.time - self._waits[not self._left])
        met = self._fetch(key, since, until)
        for time, (other, _) in met:
            if pending is not None:
                # The other record has a match now, so it must not be forwarded as unmatched.
                place = PendingKey(time, not self._left, key)
                if (values := pending.get(place)) is not None:
                    pending.put(place, None)
                    self._forget(pending.index(place), len(values))
            self._forward(key, self._join(key, value, other), max(timestamp, time), headers)
        if self._outer and not met:
            # No match can come any more.
            if pending is None or until + self._grace < tracker.time:
                self._forward(key, self._join(key, value, None), timestamp, headers)
            else:
                self._note(timestamp, left=self._left)
                place = PendingKey(timestamp, self._left, key)
                values = pending.get(place) or ()
                pending.put(place, (*values, (self._left, value)))
                tracker.origins[pending.index(place), len(values)] = self._origins.origin()

    def _forget(self, index: Any, count: int) -> None:
        """Forget the origins of pending records; `index` is the dict key of their place."""
        for number in range(count):
            self._tracker.origins.pop((index, number), None)

    def _note(self, timestamp: int, *, left: bool) -> None:
        """Note that a record is pending, so that the store is read only when the record is due."""
        if not self._faults:
            timestamp += self._waits[left] - self._wait
        since = self._tracker.pending_since
        self._tracker.pending_since = timestamp if since is None else min(since, timestamp)

    def _release(self, pending: BufferForOperators, headers: Headers) -> None:
        """Forward pending records that cannot match any more."""
        tracker = self._tracker
        since = tracker.pending_since
        if since is None or (since >= 0 and since + self._wait >= tracker.time):
            return
        tracker.pending_since = None
        waiting = {True: False, False: False}
        for place, values in buffered_records(self._context, self._origins, pending, _key):
            is_open = place.timestamp + self._waits[place.left] >= tracker.time
            for number, (of_left, value) in enumerate(values):
                if self._faults:
                    # Kafka Streams keeps the time of the last record that it checked, though
                    # earlier records may be left. Two records of one key are enough to stop it.
                    tracker.pending_since = place.timestamp
                elif is_open and not waiting[place.left]:
                    self._note(place.timestamp, left=place.left)
                if waiting[True] and waiting[False]:
                    return
                if is_open:
                    waiting[place.left] = True
                    continue
                origin = self._tracker.origins.pop((pending.index(place), number), None)
                self._let_go(place, origin, value, headers, of_left=of_left)
            if not is_open:
                pending.put(place, None)

    def _let_go(
        self,
        place: PendingKey,
        origin: Origin | None,
        value: Any,
        headers: Headers,
        *,
        of_left: bool,
    ) -> None:
        """Forward an unmatched record with the releasing record's headers.

        Kafka Streams does the same.
        """
        here = self._origins.here()
        self._origins.go_to(origin, place.timestamp, headers)
        try:
            left, right = (value, None) if of_left else (None, value)
            joined = (
                self._joiner(place.key, left, right) if self._keyed else self._joiner(left, right)
            )
            self._forward(place.key, joined, place.timestamp, headers)
        except BaseException as error:  # noqa: BLE001 - the handler decides about this record
            self._context.failed(error, place.key, value, place.timestamp, ())
        finally:
            self._origins.back(here)

    def _join(self, key: Any, this: Any, other: Any) -> Any:
        left, right = (this, other) if self._left else (other, this)
        return self._joiner(key, left, right) if self._keyed else self._joiner(left, right)
