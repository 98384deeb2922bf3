"""Serdes of the store for unmatched records of joined streams, as Kafka Streams writes them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeAlias, final

from ks_actors._errors import SerializationError
from ks_actors.processors.joins._stream_join import PendingKey
from ks_actors.serdes import Serde, of_serde, with_default

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes import AsRead

Values: TypeAlias = tuple[tuple[bool, Any], ...]
"""Pairs of the value's side (True: left) and the value; at least one."""

_KEY = struct.Struct(">qB")
_HEAD = struct.Struct(">BI")
_LENGTH = struct.Struct(">I")
_VARIABLE_SIZE = 1
_UNKNOWN = (
    "no serde is known for the {what} of joined streams: give StreamJoined(key, value, "
    "other_value), or set the app's default serdes"
)


@final
class PendingKeySerde(Serde[PendingKey]):
    """Timestamp (8 bytes, big-endian), 1 for left or 0 for right, and the key by its own serde.

    An inner serde of None must still be set by `or_default`.
    """

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner: Serde[Any] | None = inner
        self.faithful: bool = inner is not None and inner.faithful
        self.immutable: bool = inner is not None and inner.immutable

    def or_default(self, default: Serde[Any] | None) -> PendingKeySerde:
        """Return this serde, or one with the app's default if the serde of keys is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else PendingKeySerde(inner)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[PendingKey], bytes]:
        """Return the function for `topic`, around the inner serde's."""
        write = _required(self.inner, "keys").serializer(topic, is_key=is_key)
        pack = _KEY.pack

        def serialize(place: PendingKey) -> bytes:
            return pack(place[0], place[1]) + write(place[2])

        return serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], PendingKey]:
        """Return the function for `topic`, around the inner serde's."""
        read = _required(self.inner, "keys").deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> PendingKey:
            if len(data) < _KEY.size:
                raise SerializationError(
                    f"a pending record's key has at least {_KEY.size} bytes: {data!r}"
                )
            timestamp, left = _KEY.unpack_from(data)
            return PendingKey(timestamp, bool(left), read(data[_KEY.size :]))

        return deserialize

    def __repr__(self) -> str:
        return f"<Serde of pending keys of {self.inner!r}>"


@final
class PendingValuesSerde(Serde[Values]):
    """A list as Kafka's ListSerde writes it, with a byte before each value.

    The byte is 1 for the left side, 0 for the right side; each side has its own serde.
    """

    reads_back: bool = False

    def __init__(self, left: Serde[Any] | None, right: Serde[Any] | None) -> None:
        self.left: Serde[Any] | None = left
        self.right: Serde[Any] | None = right
        self.immutable: bool = (
            left is not None and right is not None and left.immutable and right.immutable
        )
        self.as_read: AsRead | None = _as_read(of_serde(left), of_serde(right))

    def or_default(self, default: Serde[Any] | None) -> PendingValuesSerde:
        """Return this serde with the app's default where the serde of values is unknown."""
        return PendingValuesSerde(
            with_default(self.left, default), with_default(self.right, default)
        )

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[Values], bytes]:
        """Return the function for `topic`, around the inner serdes'."""
        right, left = (
            _required(inner, "values").serializer(topic, is_key=is_key)
            for inner in (self.right, self.left)
        )

        def serialize(values: Values) -> bytes:
            parts = [_HEAD.pack(_VARIABLE_SIZE, len(values))]
            for of_left, value in values:
                data = left(value) if of_left else right(value)
                parts += (_LENGTH.pack(len(data) + 1), b"\1" if of_left else b"\0", data)
            return b"".join(parts)

        return serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], Values]:
        """Return the function for `topic`, around the inner serdes'."""
        right, left = (
            _required(inner, "values").deserializer(topic, is_key=is_key)
            for inner in (self.right, self.left)
        )

        def deserialize(data: bytes) -> Values:
            try:
                flag, count = _HEAD.unpack_from(data)
                at = _HEAD.size
                found = []
                for _ in range(count):
                    (length,) = _LENGTH.unpack_from(data, at)
                    at += _LENGTH.size
                    of_left, end = bool(data[at]), at + length
                    if flag != _VARIABLE_SIZE or length < 1 or end > len(data):
                        raise IndexError
                    found.append((of_left, (left if of_left else right)(data[at + 1 : end])))
                    at = end
            except (struct.error, IndexError):
                raise SerializationError(
                    f"these bytes are not a list of pending values: {data[:64]!r}"
                ) from None
            return tuple(found)

        return deserialize

    def __repr__(self) -> str:
        return f"<Serde of pending values of {self.left!r} and {self.right!r}>"


def _as_read(left: AsRead | None, right: AsRead | None) -> AsRead | None:
    if left is None or right is None:
        return None
    return lambda values: all((left if of_left else right)(value) for of_left, value in values)


def _required(serde: Serde[Any] | None, what: str) -> Serde[Any]:
    if serde is None:
        raise SerializationError(_UNKNOWN.format(what=what))
    return serde
