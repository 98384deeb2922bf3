"""A join of two streams: records match when their timestamps are near enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors.processors.api import Bound, held_back, keep
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


_NONE: Final = -2
_key = attrgetter("key")


class PendingKey(NamedTuple):
    """The key of unmatched records: those of one side (True: left), time and key."""

    timestamp: int
    left: bool
    key: Any


class Tracker:
    """The state of one task that both sides of a join share.

    It has stream time, and the time since which records may be pending. Both are committed with the
    offsets. `origins` has the origins of pending records, by place and number there: in memory
    only, so a restarted task knows none.
    """

    __slots__ = ("origins", "pending_since", "time")

    def __init__(self) -> None:
        self.time: int = -1
        self.origins: dict[tuple[Any, int], Origin] = {}
        # At first the store may have some; None: there are none.
        self.pending_since: int | None = -1

    def recall(self, context: NodeContext, store: str) -> None:
        """Restore the committed state, and register it for each commit; call it for each side."""
        since = f"{store}@pending"
        known: Any = context.progress.get(store, -1)
        if known is not self:
            self.time, found = int(known), int(context.progress.get(since, -1))
            self.pending_since = None if found == _NONE else found
        keep(context, store, self)
        keep(context, since, _Since(self))

    def __index__(self) -> int:
        """Return stream time, for each commit to read."""
        return self.time


class _Since:
    """The time since which records may be pending, as a number."""

    __slots__ = ("_tracker",)

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def __index__(self) -> int:
        since = self._tracker.pending_since
        return _NONE if since is None else since


@final
class Trackers:
    """The trackers of a join, by the store of pending records; each task has one such store."""

    def __init__(self) -> None:
        # The value holds the store, so that its id cannot be reused meanwhile.
        self._trackers: dict[int, tuple[BufferForOperators, Tracker]] = {}

    def get(self, store: BufferForOperators) -> Tracker:
        """Return the tracker of both sides."""
        return self._trackers.setdefault(id(store), (store, Tracker()))[1]

    def close(self, store: BufferForOperators | None) -> None:
        """Forget the tracker: the task ends."""
        self._trackers.pop(id(store), None)


@final
@dataclass(frozen=True, kw_only=True)
class JoinWindow(Inline):
    """Store one side's records for the other side. They are joined before they are stored."""

    store: str

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        store: JoinWindowsForOperators = context.store(self.store)
        put, kept = store.put_entry, store.kept
        forward = context.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
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

    It joins with the records from `before_ms` before to `after_ms` after each, as the left side
    sees it. Values are `joiner(left, right)`, or `joiner(key, left, right)` if it is `keyed`; the
    later timestamp is the result's. Records without key or value are dropped.

    Unmatched records of an `outer` side are forwarded with None for the other one. Those without
    key, and those that are too late for a match, are forwarded at once. The others wait in the
    store `pending`, which both sides share. They wait until stream time has passed the last instant
    of a possible match by more than the grace period. They are forwarded by time, right before
    left, key.
    """

    other: str
    joiner: Callable[..., Any]
    before_ms: int
    after_ms: int
    grace_ms: int
    left: bool
    outer: bool = False
    keyed: bool = False
    pending: str | None = None
    trackers: Trackers = field(default_factory=Trackers)

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        if not self.outer and self.pending is None:
            return Bound(self._inner(context))
        pending: BufferForOperators | None = (
            None if self.pending is None else context.store(self.pending)
        )
        tracker = Tracker() if pending is None else self.trackers.get(pending)
        if self.pending is not None:
            tracker.recall(context, self.pending)
        side = _Side(self, context, pending, tracker)
        return Bound(side.process, close=lambda: self.trackers.close(pending))

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
                ours, theirs = (value, other) if left else (other, value)
                joined = joiner(key, ours, theirs) if keyed else joiner(ours, theirs)
                forward(key, joined, max(timestamp, time), headers)

        return process


class _Side:
    """One side in one task."""

    def __init__(
        self,
        join: StreamJoinSide,
        context: NodeContext,
        pending: BufferForOperators | None,
        tracker: Tracker,
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

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        tracker = self._tracker
        tracker.time = max(tracker.time, timestamp)
        if self._outer and key is None and value is not None:
            self._forward(key, self._join(key, value, None), timestamp, headers)
            return
        if key is None or value is None:
            self._context.dropped()
            return
        pending = self._pending
        if pending is not None and timestamp == tracker.time:
            self._release(pending, headers)
        until = max(0, timestamp + self._after)
        met = self._fetch(key, max(0, timestamp - self._before), until)
        for time, (other, _) in met:
            if pending is not None:
                # The other record has a match now, so it must not come out unmatched.
                place = PendingKey(time, not self._left, key)
                if (values := pending.get(place)) is not None:
                    pending.put(place, None)
                    self._forget(pending.index(place), len(values))
            self._forward(key, self._join(key, value, other), max(timestamp, time), headers)
        if self._outer and not met:
            # No match can come any more.
            if pending is None or until < tracker.time:
                self._forward(key, self._join(key, value, None), timestamp, headers)
            else:
                since = tracker.pending_since
                tracker.pending_since = timestamp if since is None else min(since, timestamp)
                place = PendingKey(timestamp, self._left, key)
                values = pending.get(place) or ()
                pending.put(place, (*values, (self._left, value)))
                tracker.origins[pending.index(place), len(values)] = self._origins.origin()

    def _forget(self, index: Any, count: int) -> None:
        """Forget the origins of pending records; `index` is the dict key of their place."""
        for number in range(count):
            self._tracker.origins.pop((index, number), None)

    def _release(self, pending: BufferForOperators, headers: Headers) -> None:
        """Forward pending records that cannot match any more."""
        tracker = self._tracker
        since = tracker.pending_since
        wait = self._waits[self._left]
        if since is None or (since >= 0 and since + wait >= tracker.time):
            return
        tracker.pending_since = None
        waiting = {True: False, False: False}
        for place, values in held_back(self._context, self._origins, pending, _key):
            is_open = place.timestamp + self._waits[place.left] >= tracker.time
            for number, (of_left, value) in enumerate(values):
                # Go one by one, as Kafka Streams' list store does: two records of one key are
                # enough to stop.
                # `pending_since` is the time of the last record examined, not of the first one
                # left. So the rest is forwarded when Kafka Streams sends it, not before.
                tracker.pending_since = place.timestamp
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
        except Exception as error:  # noqa: BLE001 - the handler decides about this record
            self._context.failed(error, place.key, value, place.timestamp, ())
        finally:
            self._origins.back(here)

    def _join(self, key: Any, mine: Any, theirs: Any) -> Any:
        left, right = (mine, theirs) if self._left else (theirs, mine)
        return self._joiner(key, left, right) if self._keyed else self._joiner(left, right)
