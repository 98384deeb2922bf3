"""The serde of lists, as Kafka's ListSerde writes them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar, final

from ks_actors._errors import SerializationError
from ks_actors.serdes._of_type import inner_serde
from ks_actors.serdes._scalars import DOUBLE, FLOAT, INTEGER, LONG, SHORT, UUID, UUID_LENGTH
from ks_actors.serdes._serde import Serde

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.serdes._of_type import SerdeOrType

T = TypeVar("T")

COUNT = struct.Struct(">i")
NULL = COUNT.pack(-1)
CONSTANT_SIZE = b"\x00"
VARIABLE_SIZE = b"\x01"
SIZES: dict[Serde[Any], int] = {
    SHORT: 2,
    INTEGER: 4,
    FLOAT: 4,
    LONG: 8,
    DOUBLE: 8,
    UUID: UUID_LENGTH,
}


def list_of(inner: SerdeOrType[T]) -> Serde[list[T]]:
    """Return the serde of lists with items of `inner`, in the format of Kafka's ListSerde.

    Lists and tuples are written as lists; other objects are refused. None in a list is kept.
    Numbers and UUIDs follow each other without their lengths, after the indexes of the nulls; any
    other item has its length before it.
    """
    return _ListSerde(inner_serde(inner, "list_of"))


@final
class _ListSerde(Serde[list[T]]):
    def __init__(self, inner: Serde[T]) -> None:
        self._inner: Serde[T] = inner
        self._size: int | None = SIZES.get(inner)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[list[T]], bytes]:
        """Return the function for `topic`, which calls that of the inner serde."""
        item, count = self._inner.serializer(topic, is_key=is_key), COUNT.pack

        def serialize_constant(values: list[T]) -> bytes:
            _check(values)
            nulls = [i for i, value in enumerate(values) if value is None]
            items = [item(value) for value in values if value is not None]
            return b"".join(
                (CONSTANT_SIZE, count(len(nulls)), *map(count, nulls), count(len(values)), *items)
            )

        def serialize_variable(values: list[T]) -> bytes:
            _check(values)
            parts = [VARIABLE_SIZE, count(len(values))]
            for value in values:
                if value is None:
                    parts.append(NULL)
                else:
                    data = item(value)
                    parts += (count(len(data)), data)
            return b"".join(parts)

        return serialize_variable if self._size is None else serialize_constant

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], list[T]]:
        """Return the function for `topic`, which calls that of the inner serde."""
        item, size = self._inner.deserializer(topic, is_key=is_key), self._size

        def deserialize(data: bytes) -> list[Any]:
            flag, slices = data[:1], _Reader(data, 1)
            if flag == (CONSTANT_SIZE if size is not None else VARIABLE_SIZE):
                parts = list(slices.variable() if size is None else slices.constant(size))
                if slices.at == len(data):
                    return [None if part is None else item(part) for part in parts]
            raise SerializationError(f"these bytes are not a list of {self!r}: {data[:64]!r}")

        return deserialize

    def __repr__(self) -> str:
        return f"<Serde list_of({self._inner!r})>"


def _check(values: object) -> None:
    # A text, a dict or a set would be written as a list of its parts.
    if not isinstance(values, list | tuple):
        raise SerializationError(f"list_of writes a list, got {values!r:.200}")


class _Reader:
    """Read bytes from left to right; raise SerializationError where they end too early."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data: bytes = data
        self.at: int = at

    def number(self) -> int:
        (number,) = COUNT.unpack(self.take(4))
        return int(number)

    def count(self) -> int:
        if (count := self.number()) < 0:
            raise SerializationError(
                f"a list of {len(self.data)} bytes has the count {count} before byte {self.at}"
            )
        return count

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise SerializationError(
                f"a list of {len(self.data)} bytes needs {size} more at byte {self.at}"
            )
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def constant(self, size: int) -> Iterator[bytes | None]:
        nulls = {self.number() for _ in range(self.count())}
        for i in range(self.count()):
            yield None if i in nulls else self.take(size)

    def variable(self) -> Iterator[bytes | None]:
        for _ in range(self.count()):
            length = self.number()
            yield None if length == -1 else self.take(length)
