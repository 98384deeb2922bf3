"""Tables whose changes are held back until a row is final, or for some time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors._errors import ProcessingFailed, SerializationError
from ks_actors.processors.api import (
    ALL_CLOSED,
    LATEST_MS,
    Bound,
    Clock,
    buffered_records,
    idle_mark,
    unreadable,
)
from ks_actors.processors.stateless import Inline
from ks_actors.processors.tables._views import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import BufferForOperators, NodeContext, Origin
    from ks_actors.processors.tables._views import View
    from ks_actors.records import Headers

_new = tuple.__new__  # A named tuple's own constructor calls this.


class BufferedChange(NamedTuple):
    """The latest change of a row that has been held back since `time` (ms).

    `prior` is the value that was last sent downstream. `origin` is the origin of the change's
    record, None when unknown.
    """

    time: int
    prior: Any
    old: Any
    new: Any
    timestamp: int
    headers: Headers
    origin: Origin = None


@final
@dataclass(frozen=True, kw_only=True)
class Suppress(Inline):
    """Hold changes back in `store`, the latest of each key, for `wait_ms` of stream time.

    Changes are forwarded by time and then key. The time is the time of the first held-back change
    of a key. With `until_close` it is the end of the key's window, and deletes are not forwarded.
    If there are more than `max_records`, or `max_bytes` as the store writes them, the first changes
    are forwarded early; with `shut_down`, processing ends instead.

    With `end_included`, for sessions and sliding windows, a window closes after its last instant,
    and so 1 ms later. (Kafka Streams does not add this ms, so a record that is not late may cause a
    second result of a window.)

    With `idle_after_ms` the wall clock also forwards the changes, as if stream time had advanced,
    when no change has come for that time. With `until_close`, changes of windows that the wall
    clock has closed are dropped and counted: each window has one result.
    """

    store: str
    wait_ms: int
    until_close: bool = False
    end_included: bool = False
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down: bool = False
    idle_after_ms: int | None = None

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        buffer = _Buffer(self, context)
        if self.idle_after_ms is not None:
            context.when_idle(self.idle_after_ms, buffer)
        return Bound(buffer.process)


class _Buffer:
    """The held-back changes of one task."""

    def __init__(self, suppress: Suppress, context: NodeContext) -> None:
        self._context = context
        self._store: BufferForOperators = context.store(suppress.store)
        self._origins = context.origins()
        later = suppress.end_included and suppress.until_close and not context.kafka_streams_faults
        self._wait = suppress.wait_ms + later
        self._until_close = suppress.until_close
        # No record comes after a window that ends at the last possible time: only the wall clock
        # closes such a window.
        self._last_due = LATEST_MS - suppress.until_close
        self._shut_down = suppress.shut_down
        self._max_records = suppress.max_records
        self._max_bytes = suppress.max_bytes
        self._size: Callable[[Any, BufferedChange], int] | None = (
            self._store.entry_bytes if suppress.max_bytes is not None else None
        )
        self._limited = suppress.max_records is not None or suppress.max_bytes is not None
        # The origins of records that the store has as bytes only.
        self._known: dict[Any, Origin] | None = {} if self._store.mutable else None
        self._clock = Clock(context, suppress.store)
        self.touched: bool = False
        # The latest end of a window that was closed by the wall clock, if there may be any.
        self._mark: str | None = (
            idle_mark(context, suppress.store)
            if suppress.until_close and suppress.idle_after_ms is not None
            else None
        )
        self._bytes = 0
        self._queue: list[tuple[int, bytes, Any]] | None = None

    def process(self, key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        queue = self._queue
        if queue is None:
            queue = self._queue = self._restored()
        clock = self._clock
        if timestamp > clock.time:  # noqa: PLR1730 - `max` takes five times as long
            clock.time = timestamp
        self.touched = True
        if (mark := self._mark) is not None and _end(key) <= self._context.progress.get(mark, -1):
            if change[0] is not None:
                self._context.dropped()
            return
        self._hold(queue, key, change, timestamp, headers)
        due = min(clock.time - self._wait, self._last_due)
        if (queue and queue[0][0] <= due) or self._limited:
            here = self._origins.here()
            try:
                self._release_all(queue, due)
            finally:
                self._origins.back(here)

    @property
    def stream_time(self) -> int:
        """The node's stream time."""
        return self._clock.time

    def next_close(self) -> int | None:
        """Return the stream time at which the next change is due; None when there is none."""
        if self._queue is None:
            self._queue = self._restored()
        return min(self._queue[0][0] + self._wait, LATEST_MS) if self._queue else None

    def close_until(self, time: int) -> None:
        """Forward the changes that are due by stream time `time`."""
        queue = self._queue
        assert queue is not None
        due = max(
            (buffered for buffered, _, _ in queue if min(buffered + self._wait, LATEST_MS) <= time),
            default=None,
        )
        if due is None:
            return
        here = self._origins.here()
        try:
            self._release_all(queue, due)
        finally:
            self._origins.back(here)
        if self._mark is not None:
            self._context.progress[self._mark] = due if due < LATEST_MS else ALL_CLOSED

    def _release_all(self, queue: list[tuple[int, bytes, Any]], due: int) -> None:
        while queue and queue[0][0] <= due:
            self._release(queue)
        while self._limited and self._too_much(queue):
            if self._shut_down:
                raise ProcessingFailed(
                    f"{self._context.node} buffers {len(queue)} changes ({self._bytes} bytes), but "
                    f"the limits are {self._limits()}: raise the limits of its BufferConfig, or "
                    "let it emit early when it is full"
                )
            self._release(queue)

    def _restored(self) -> list[tuple[int, bytes, Any]]:
        """Return the store's rows with the times of their release."""
        queue = []
        for key, buffered in buffered_records(self._context, self._origins, self._store):
            queue.append((buffered.time, self._store.key_bytes(key), key))
            if self._size is not None:
                self._bytes += self._size(key, buffered)
        heapq.heapify(queue)
        return queue

    def _hold(
        self,
        queue: list[tuple[int, bytes, Any]],
        key: Any,
        change: tuple[Any, Any],
        timestamp: int,
        headers: Headers,
    ) -> None:
        new, old = change
        store, size = self._store, self._size
        # Encode the key once.
        index = store.index(key)
        before = self._before(queue, key, index, change)
        origin = self._origins.origin()
        if before is None:
            time, prior = min(_end(key), LATEST_MS) if self._until_close else timestamp, old
        else:
            time, prior = before.time, before.prior
        buffered = _new(BufferedChange, (time, prior, old, new, timestamp, headers, origin))
        store.put_at(index, buffered)
        if self._known is not None:
            self._known[index] = origin
        if before is None:
            heapq.heappush(queue, (time, *store.own_key(key, index)))
        if size is not None:
            self._bytes += size(key, buffered) - (0 if before is None else size(key, before))

    def _before(
        self, queue: list[tuple[int, bytes, Any]], key: Any, index: Any, change: tuple[Any, Any]
    ) -> BufferedChange | None:
        """Return the held-back change of a key; if it is unreadable, only its time is known."""
        try:
            return self._store.get_at(index)  # type: ignore[no-any-return]
        except SerializationError as error:
            time = next(time for time, _, other in queue if self._store.index(other) == index)
            unreadable(self._context, self._origins, error, key, time)
            return BufferedChange(time, change[1], change[1], change[1], time, ())

    def _release(self, queue: list[tuple[int, bytes, Any]]) -> None:
        time, encoded, key = queue[0]
        index = self._store.index_of(encoded, key)
        try:
            buffered: BufferedChange = self._store.get_at(index)
        except SerializationError as error:
            unreadable(self._context, self._origins, error, key, time)
            buffered = BufferedChange(time, None, None, None, time, ())
            self._forget(queue, key, index, buffered)
            return
        if buffered.new is not None or not self._until_close:
            origin = (
                buffered.origin if self._known is None else self._known.get(index, buffered.origin)
            )
            self._origins.go_to(origin, buffered.timestamp, buffered.headers)
            # The row is still in the store, so that readers of the table see the prior value
            # meanwhile.
            self._context.forward(
                key, (buffered.new, buffered.old), buffered.timestamp, buffered.headers
            )
        self._forget(queue, key, index, buffered)

    def _forget(
        self, queue: list[tuple[int, bytes, Any]], key: Any, index: Any, buffered: BufferedChange
    ) -> None:
        heapq.heappop(queue)
        if self._known is not None:
            self._known.pop(index, None)
        if self._size is not None:
            self._bytes -= self._size(key, buffered)
        self._store.put_at(index, None)

    def _too_much(self, queue: list[tuple[int, bytes, Any]]) -> bool:
        return (self._max_records is not None and len(queue) > self._max_records) or (
            self._max_bytes is not None and self._bytes > self._max_bytes
        )

    def _limits(self) -> str:
        limits = ((self._max_records, "changes"), (self._max_bytes, "bytes"))
        return " and ".join(f"{limit} {unit}" for limit, unit in limits if limit is not None)


def _end(key: Any) -> int:
    """Return the end of a key's window. Raises TypeError for another key."""
    try:
        return key.window.end  # type: ignore[no-any-return]
    except AttributeError:
        raise TypeError(
            f"key {key!r} has no window, so no end to wait for: keep keys of type Windowed up to "
            "suppress, or suppress before the keys lose their windows"
        ) from None


@final
@dataclass(frozen=True)
class SuppressView:
    """Another view, with the prior values of the changes that a store holds back."""

    parent: View
    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        """The store, and the stores of the parent."""
        return tuple(dict.fromkeys((self.store, *self.parent.stores)))

    @property
    def record_context(self) -> bool:
        """Whether reading the parent's rows needs the record context."""
        return self.parent.record_context

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        below, close, _ = self.parent.bind(context)
        buffered_change = context.store(self.store).get

        def get(key: Any) -> tuple[Any, int] | None:
            buffered: BufferedChange | None = buffered_change(key)
            if buffered is None:
                return below(key)
            return None if buffered.prior is None else (buffered.prior, -1)

        return Reader(get, close)
