"""A stream joined with the past of a table after a grace period (KIP-923).

Records wait until the table has probably seen the rows of their time.
"""

from __future__ import annotations

import heapq
import struct
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors._errors import SerializationError, TopologyError
from ks_actors.processors.api import Bound, buffered_records, unreadable
from ks_actors.processors.stateless import Inline
from ks_actors.processors.tables import BufferedChange
from ks_actors.serdes import Serde, with_default

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import BufferForOperators, NodeContext, Origin
    from ks_actors.processors.tables import AsOf, View
    from ks_actors.records import Headers

_TIME = struct.Struct(">Bq")
_SEQUENCE = struct.Struct(">i")
_LAST_SEQUENCE = 0x7FFF_FFFF
_key = attrgetter("key")
TIME_ALONE: Final = object()
"""The value of a record that only advances the stream time of a buffered join."""


class WaitingKey(NamedTuple):
    """The place of a waiting record: by time, key, and then order of arrival."""

    time: int
    key: Any
    sequence: int


@final
@dataclass(frozen=True, kw_only=True)
class BufferedStreamTableJoin(Inline):
    """Join records with the table's rows as of their time, once stream time is `grace_ms` past it.

    Records are joined in the order of times and then keys. Until then they wait in `store`. Stream
    time is the latest timestamp of a record that has waited, or that has TIME_ALONE as its value. A
    record more than `grace_ms` behind stream time is joined at once. Records are dropped as
    StreamTableJoin drops them.
    """

    view: View
    joiner: Callable[..., Any]
    store: str
    grace_ms: int
    keyed: bool = False
    left: bool = False

    @property
    def record_context(self) -> bool:
        """Whether reading the rows of the table needs the record context."""
        return self.view.record_context

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        _, close, as_of = self.view.bind(context)
        if as_of is None:
            raise TopologyError(
                f"{context.node} joins with a grace period, which needs a table with a versioned "
                "store"
            )
        return Bound(_Waiting(self, context, as_of).process, close=close)


class _Waiting:
    """The waiting records of one task."""

    def __init__(self, join: BufferedStreamTableJoin, context: NodeContext, as_of: AsOf) -> None:
        self._join = join
        self._context = context
        self._as_of = as_of
        self._store: BufferForOperators = context.store(join.store)
        self._origins = context.origins()
        # The origins of records that the store has as bytes only.
        self._known: dict[Any, Origin] = {}
        self._sequence = 0
        self._queue: list[tuple[bytes, WaitingKey]] | None = None

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        join, context = self._join, self._context
        if value is TIME_ALONE:
            self._advance(timestamp)
            return
        if value is None or (key is None and not join.left):
            context.dropped()
            return
        queue = self._queue
        if queue is None:
            queue = self._queue = self._restored()
        now = context.progress.get(join.store, -1)
        if key is None or timestamp < now - join.grace_ms:
            self._emit(key, value, timestamp, headers)
            return
        self._wait(
            queue,
            WaitingKey(timestamp, key, self._sequence),
            BufferedChange(0, None, None, value, timestamp, headers, self._origins.origin()),
        )
        self._advance(timestamp)

    def _advance(self, timestamp: int) -> None:
        """Note stream time, and join the records that have waited long enough."""
        progress, store = self._context.progress, self._join.store
        queue = self._queue
        if queue is None:
            queue = self._queue = self._restored()
        now = progress.get(store, -1)
        if timestamp > now:
            now = progress[store] = timestamp
        while queue and queue[0][1].time <= now - self._join.grace_ms:
            self._release(queue)

    def _restored(self) -> list[tuple[bytes, WaitingKey]]:
        """Return the keys of the waiting records in the store."""
        queue = [
            (self._store.key_bytes(place), place)
            for place, _ in buffered_records(self._context, self._origins, self._store, _key)
        ]
        heapq.heapify(queue)
        # Continue after the highest number, so that no waiting record is overwritten.
        self._sequence = (
            max((place.sequence for _, place in queue), default=-1) + 1
        ) & _LAST_SEQUENCE
        return queue

    def _wait(
        self, queue: list[tuple[bytes, WaitingKey]], place: WaitingKey, buffered: BufferedChange
    ) -> None:
        self._sequence = (self._sequence + 1) & _LAST_SEQUENCE
        self._store.put(place, buffered)
        if self._store.mutable:
            self._known[self._store.index(place)] = buffered.origin
        heapq.heappush(queue, self._store.own_key(place))

    def _release(self, queue: list[tuple[bytes, WaitingKey]]) -> None:
        place = heapq.heappop(queue)[1]
        try:
            buffered: BufferedChange = self._store.get(place)
        except SerializationError as error:
            unreadable(self._context, self._origins, error, place.key, place.time)
            buffered = BufferedChange(0, None, None, None, place.time, ())
        self._store.put(place, None)
        known = (
            self._known.pop(self._store.index(place), buffered.origin)
            if self._known
            else buffered.origin
        )
        if buffered.new is None:
            return  # The record could not be read.
        here = self._origins.here()
        self._origins.go_to(known, buffered.timestamp, buffered.headers)
        try:
            self._emit(place.key, buffered.new, buffered.timestamp, buffered.headers)
        except BaseException as error:  # noqa: BLE001 - the handler decides about this record
            self._context.failed(
                error, place.key, buffered.new, buffered.timestamp, buffered.headers
            )
        finally:
            self._origins.back(here)

    def _emit(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        join = self._join
        entry = None if key is None else self._as_of(key, timestamp)
        if entry is None and not join.left:
            return
        row = None if entry is None else entry[0]
        self._context.forward(
            key,
            join.joiner(key, value, row) if join.keyed else join.joiner(value, row),
            timestamp,
            headers,
        )


@final
class WaitingKeySerde(Serde[WaitingKey]):
    """A zero byte, the time, the key by its own serde, and the sequence number.

    Kafka Streams writes the same format. An inner serde of None must still be set by `or_default`.
    """

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner: Serde[Any] | None = inner
        self.faithful: bool = inner is not None and inner.faithful
        self.immutable: bool = inner is not None and inner.immutable

    def or_default(self, default: Serde[Any] | None) -> WaitingKeySerde:
        """Return this serde, or one with the app's default if the serde of keys is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else WaitingKeySerde(inner)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[WaitingKey], bytes]:
        """Return the function for `topic`, around the inner serde's."""
        write = self._required().serializer(topic, is_key=is_key)

        def serialize(place: WaitingKey) -> bytes:
            return _TIME.pack(0, place[0]) + write(place[1]) + _SEQUENCE.pack(place[2])

        return serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], WaitingKey]:
        """Return the function for `topic`, around the inner serde's."""
        read = self._required().deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> WaitingKey:
            end = len(data) - _SEQUENCE.size
            if end < _TIME.size:
                raise SerializationError(
                    f"a waiting record's key has at least {_TIME.size + _SEQUENCE.size} bytes: "
                    f"{data!r}"
                )
            return WaitingKey(
                _TIME.unpack_from(data)[1],
                read(data[_TIME.size : end]),
                _SEQUENCE.unpack_from(data, end)[0],
            )

        return deserialize

    def _required(self) -> Serde[Any]:
        if self.inner is None:
            raise SerializationError(
                "the keys of a joined stream have no serde: give Joined(key, value), or set the "
                "app's default serdes"
            )
        return self.inner

    def __repr__(self) -> str:
        return f"<Serde of waiting keys of {self.inner!r}>"
