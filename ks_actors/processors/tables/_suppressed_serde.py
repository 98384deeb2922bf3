"""The serde of held-back changes.

The format is that of the changelog of Kafka Streams' suppress buffer (version 3).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import SerializationError
from ks_actors.processors.tables._suppress import BufferedChange
from ks_actors.serdes import Serde, of_serde, with_default

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import Origin
    from ks_actors.records import Headers
    from ks_actors.serdes import AsRead

_PLACE = struct.Struct(">qq")  # timestamp, offset
_COUNTS = struct.Struct(">ii")  # partition, number of headers
_UNKNOWN = ("", -1, -1)
_LENGTH = struct.Struct(">i")
_TIME = struct.Struct(">q")
_NULL, _LIKE_PRIOR = -1, -2
_NULL_LENGTH = _LENGTH.pack(_NULL)


@final
class BufferedChangeSerde(Serde[BufferedChange]):
    """The serde of a held-back change.

    It writes the record's origin (unknown: an empty topic) and headers. Then come the prior, old
    and new value by the table's serde, and the start of the wait. An old value equal to the prior
    value is not written twice. `inner` None is still to be set, by `or_default`.
    """

    reads_back: bool = False

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner: Serde[Any] | None = inner
        self.immutable: bool = inner is not None and inner.immutable
        self.as_read: AsRead | None = None if inner is None else _as_read(of_serde(inner))

    def or_default(self, default: Serde[Any] | None) -> BufferedChangeSerde:
        """Return this serde, or one with the app's default if the values' serde is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else BufferedChangeSerde(inner)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[BufferedChange], bytes]:
        """Return the function for `topic`, around the inner serde's."""
        write = self._known_serde().serializer(topic, is_key=is_key)

        def sized(value: Any) -> bytes:
            return _NULL_LENGTH if value is None else _prefixed(write(value))

        def serialize(buffered: BufferedChange) -> bytes:
            topic, partition, offset = _whence(buffered.origin)
            parts = [
                _PLACE.pack(buffered.timestamp, offset),
                _prefixed(topic.encode()),
                _COUNTS.pack(partition, len(buffered.headers)),
            ]
            for name, data in buffered.headers:
                parts += (
                    _prefixed(name.encode()),
                    _NULL_LENGTH if data is None else _prefixed(data),
                )
            prior, old = sized(buffered.prior), sized(buffered.old)
            parts += (
                prior,
                old if buffered.old is None or old != prior else _LENGTH.pack(_LIKE_PRIOR),
                sized(buffered.new),
                _TIME.pack(buffered.time),
            )
            return b"".join(parts)

        return serialize

    def deserializer(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[bytes], BufferedChange]:
        """Return the function for `topic`, around the inner serde's."""
        read = self._known_serde().deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> BufferedChange:
            try:
                timestamp, offset = _PLACE.unpack_from(data)
                topic, at = _sized(data, _PLACE.size)
                partition, count = _COUNTS.unpack_from(data, at)
                headers, at = _headers(data, at + _COUNTS.size, count)
                prior_data, at = _sized(data, at)
                (length,) = _LENGTH.unpack_from(data, at)
                old_data, at = (
                    (prior_data, at + _LENGTH.size) if length == _LIKE_PRIOR else _sized(data, at)
                )
                new_data, at = _sized(data, at)
                (time,) = _TIME.unpack_from(data, at)
            except struct.error:
                raise SerializationError(
                    f"these bytes are not a suppressed change: {data[:64]!r}"
                ) from None
            prior, old, new = (
                None if part is None else read(part) for part in (prior_data, old_data, new_data)
            )
            return BufferedChange(
                time,
                prior,
                old,
                new,
                timestamp,
                headers,
                (topic.decode(), partition, offset) if topic else None,
            )

        return deserialize

    def _known_serde(self) -> Serde[Any]:
        if self.inner is None:
            raise SerializationError(
                "the values of a suppressed table have no serde: give it upstream, or set the "
                "app's default serdes"
            )
        return self.inner

    def __repr__(self) -> str:
        return f"<Serde of buffered changes of {self.inner!r}>"


def _as_read(inner: AsRead | None) -> AsRead | None:
    return (
        None
        if inner is None
        else lambda buffered: (
            (buffered[1] is None or inner(buffered[1]))
            and (buffered[2] is None or inner(buffered[2]))
            and (buffered[3] is None or inner(buffered[3]))
        )
    )


def _whence(origin: Origin) -> tuple[str, int, int]:
    """Return topic, partition and offset, for readers of the log."""
    if origin is None:
        return _UNKNOWN
    if len(origin) == 2:  # noqa: PLR2004 - a page in memory, and an offset there
        page, offset = origin
        return page.place(offset) or _UNKNOWN
    return origin


def _prefixed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return length-prefixed bytes, None for null, and their end."""
    (length,) = _LENGTH.unpack_from(data, at)
    begin = at + _LENGTH.size
    if length == _NULL:
        return None, begin
    end = begin + length
    if length < 0 or end > len(data):
        raise struct.error
    return data[begin:end], end


def _headers(data: bytes, at: int, count: int) -> tuple[Headers, int]:
    found = []
    for _ in range(max(0, count)):
        name, at = _sized(data, at)
        value, at = _sized(data, at)
        found.append(((name or b"").decode(), value))
    return tuple(found), at
