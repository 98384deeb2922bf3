"""Forward only the first of several equal records."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import SerializationError
from ks_actors.processors.api import Bound, Clock
from ks_actors.processors.stateless import Inline
from ks_actors.serdes import Serde, checked_serializer, with_default

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Headers

_LENGTH = struct.Struct(">i")
_PLACE = struct.Struct(">qi")


@final
@dataclass(frozen=True, kw_only=True)
class Distinct(Inline):
    """Forward a record unless an equal record has been forwarded.

    Two records are equal when their keys, and the results of `by(value)`, are equal, and their
    timestamps are no more than `within_ms` apart. Records that are later than `grace_ms` are
    dropped, and so are records without key or with a `by` of None. `store` has the timestamps of
    forwarded records, with their places in the log. So under at-least-once, a record that is
    processed again after a failure is not a duplicate of itself.
    """

    store: str
    within_ms: int
    grace_ms: int
    by: Callable[[Any], Any] | None = None

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        store = context.store(self.store)
        fetch, put = store.fetch_entries, store.put_entry
        forward, metadata = context.forward, context.record_metadata
        clock = Clock(context, self.store)
        within, grace, by = self.within_ms, self.grace_ms, self.by
        # The place of the current source record, and the identities forwarded for it so far.
        here, passed = b"", list[Any]()

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal here
            part = None if by is None or key is None else by(value)
            if key is None or (by is not None and part is None):
                context.dropped()
                return
            identity = key if by is None else (key, part)
            clock.time = max(clock.time, timestamp)
            if timestamp < clock.time - grace:
                context.dropped()
                return
            place = _place(metadata())
            if place != here:
                here = place
                passed.clear()
            found = fetch(identity, max(0, timestamp - within), timestamp + within)
            if not found:
                put(identity, timestamp, (place, timestamp))
            elif not place or identity in passed or all(entry[0] != place for _, entry in found):
                return
            passed.append(identity)
            forward(key, value, timestamp, headers)

        return Bound(process)


def _place(metadata: tuple[str, int, int] | None) -> bytes:
    """Return topic, partition and offset as bytes; none without a source record."""
    if metadata is None:
        return b""
    topic, partition, offset = metadata
    return _PLACE.pack(offset, partition) + topic.encode()


@final
class IdentitySerde(Serde[tuple[Any, Any]]):
    """A key and a part of the value: the length of the key (int32, big-endian), and both."""

    def __init__(self, inner: Serde[Any] | None, part: Serde[Any]) -> None:
        self.inner: Serde[Any] | None = inner
        self._part = part
        self.immutable: bool = inner is not None and inner.immutable and part.immutable

    def or_default(self, default: Serde[Any] | None) -> IdentitySerde:
        """Return this serde, with the app's default if the serde of keys is unknown."""
        return IdentitySerde(with_default(self.inner, default), self._part)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[tuple[Any, Any]], bytes]:
        """Return the function for `topic`, around the inner serdes'."""
        first = checked_serializer(self._known_serde(), topic, is_key=is_key)
        second = checked_serializer(self._part, topic, is_key=is_key)

        def serialize(identity: tuple[Any, Any]) -> bytes:
            key, part = first(identity[0]), second(identity[1])
            return b"%b%b%b" % (_LENGTH.pack(len(key)), key, part)

        return serialize

    def deserializer(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[bytes], tuple[Any, Any]]:
        """Return the function for `topic`, around the inner serdes'."""
        first = self._known_serde().deserializer(topic, is_key=is_key)
        second = self._part.deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> tuple[Any, Any]:
            head = _LENGTH.size
            if len(data) < head or len(data) < (end := head + _LENGTH.unpack_from(data)[0]):
                raise SerializationError(f"an identity begins with the length of its key: {data!r}")
            return first(data[head:end]), second(data[end:])

        return deserialize

    def _known_serde(self) -> Serde[Any]:
        if self.inner is None:
            raise SerializationError(
                "no serde is known for the keys of distinct records: give it in Consumed, or set "
                "the app's default serdes"
            )
        return self.inner

    def __repr__(self) -> str:
        return f"<Serde of identities, {self.inner!r} and {self._part!r}>"
