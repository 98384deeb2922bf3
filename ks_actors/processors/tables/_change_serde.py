"""The serde of changes on their way to their group, as Kafka Streams 4 writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, final

from ks_actors._errors import SerializationError
from ks_actors.serdes import Serde, with_default

if TYPE_CHECKING:
    from collections.abc import Callable

Change: TypeAlias = tuple[Any, Any]
"""The new and the old value; one of them may be None."""

_OLD, _NEW, _BOTH = 0, 1, 2
_OLD_FLAGGED, _NEW_FLAGGED, _BOTH_FLAGGED = 3, 4, 5
_SEVEN_BITS = 0x7F
_CONTINUED = 0x80
_LONGEST = 5


@final
class ChangeSerde(Serde[Change]):
    """Write a change by the serde of its values (None: still to be set, by `or_default`).

    The last byte is a flag: 0 for the old value, 1 for the new value, 2 for both. Both are written
    as the new value's length (a zigzag varint), the new value and the old value. With flags 3, 4
    and 5, the byte before the flag says for versioned tables whether the change is the latest.
    These flags are read, but not written.
    """

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner: Serde[Any] | None = inner
        self.immutable: bool = inner is not None and inner.immutable

    def or_default(self, default: Serde[Any] | None) -> ChangeSerde:
        """Return this serde, or one with the app's default if the values' serde is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else ChangeSerde(inner)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[Change], bytes]:
        """Return the function for `topic`, around the inner serde's."""
        write = self._known_serde().serializer(topic, is_key=is_key)

        def serialize(change: Change) -> bytes:
            new, old = change
            if new is None:
                if old is None:
                    raise SerializationError("a change needs an old or a new value")
                return write(old) + b"\0"
            if old is None:
                return write(new) + b"\1"
            data = write(new)
            return b"%b%b%b\2" % (_varint(len(data)), data, write(old))

        return serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], Change]:
        """Return the function for `topic`, around the inner serde's."""
        read = self._known_serde().deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> Change:
            flag = data[-1] if data else -1
            end = len(data) - (2 if flag >= _OLD_FLAGGED else 1)
            if flag in {_OLD, _OLD_FLAGGED}:
                return None, read(data[:end])
            if flag in {_NEW, _NEW_FLAGGED}:
                return read(data[:end]), None
            if flag in {_BOTH, _BOTH_FLAGGED}:
                length, begin = _read_varint(data)
                if begin + length > end:
                    raise SerializationError(
                        f"a change announces a new value of {length} bytes, but has only "
                        f"{len(data)} in all: {data!r}"
                    )
                return read(data[begin : begin + length]), read(data[begin + length : end])
            raise SerializationError(
                f"the last byte of a change gives its form and must be 0 to 5: {data!r}"
            )

        return deserialize

    def _known_serde(self) -> Serde[Any]:
        if self.inner is None:
            raise SerializationError(
                "the values of a grouped table have no serde: give Grouped(key, value), or set "
                "the app's default serdes"
            )
        return self.inner

    def __repr__(self) -> str:
        return f"<Serde of changes of {self.inner!r}>"


def _varint(length: int) -> bytes:
    """Return a length as Kafka writes a signed varint: zigzag, seven bits a byte, lowest first."""
    rest = length << 1
    out = bytearray()
    while rest > _SEVEN_BITS:
        out.append(rest & _SEVEN_BITS | _CONTINUED)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: bytes) -> tuple[int, int]:
    """Return the length at the beginning of `data`, and its end."""
    value = 0
    for index, byte in enumerate(data[:_LONGEST]):
        value |= (byte & _SEVEN_BITS) << 7 * index
        if byte < _CONTINUED:
            return value >> 1, index + 1
    raise SerializationError(f"could not read the length of a change's new value: {data!r}")
