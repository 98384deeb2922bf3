"""Kafka's wire format: from the description of a message to the functions that read and write it.

It shares nothing with the client: it would repeat the client's mistakes.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Fields: TypeAlias = dict[str, Any]
_Read: TypeAlias = "Callable[[bytes, int], tuple[Any, int]]"
_Write: TypeAlias = "Callable[[Any], bytes]"
# A field is its name with its type: that of the elements in a list for an array, which are themselves fields if they have names.
_Type: TypeAlias = "str | list[tuple[str, _Type]]"
_Parsed: TypeAlias = "list[tuple[str, _Type]]"

_FIXED: Final = {"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "uuid": "16s"}
_DEFAULTS: Final[dict[str, Any]] = {"uuid": bytes(16)}
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_MORE: Final = 0x80
_WORD: Final = re.compile(r"\w*:?\[|\]|\w+:\w+|\w+")


class Message:
    """A reader and writer of a message.

    Its description has `name:type` for each field, with the types of Kafka's protocol; `str` and `bytes` may be null. An array is `name:[type]`, or
    `name:[name:type …]` if its elements have several fields. A `flexible` message has compact lengths, and tags, which come under the name `tags`.
    """

    def __init__(self, description: str, *, flexible: bool = False) -> None:
        self.flexible: bool = flexible
        read, write = _struct(_parse(iter(_WORD.findall(description))), flexible=flexible)
        self._read: _Read = read
        self._write: _Write = write

    def read(self, raw: bytes, at: int = 0) -> Fields:
        """Return the fields of a message; all bytes have to be its own."""
        found, end = self._read(raw, at)
        if end != len(raw):
            raise ValueError(f"{len(raw) - end} bytes are left behind {found}")
        fields: Fields = found
        return fields

    def write(self, fields: Mapping[str, Any]) -> bytes:
        """Return a message; a field that is not given is 0, null, or an array without elements."""
        return self._write(fields)


def _parse(words: Iterator[str]) -> _Parsed:
    found: _Parsed = []
    for word in words:
        if word == "]":
            break
        if word.endswith("["):
            found.append((word[:-2], _parse(words)))
        else:
            name, _, kind = word.rpartition(":")
            found.append((name, kind))
    return found


def _struct(fields: _Parsed, *, flexible: bool) -> tuple[_Read, _Write]:
    """Read and write fields; neighbours of fixed sizes are packed at once."""
    reads: list[tuple[Any, Struct | None, Any]] = []
    writes: list[tuple[Any, Any, Any]] = []
    fixed: list[tuple[str, str]] = []

    def fuse() -> None:
        if fixed:
            packed = Struct(">" + "".join(_FIXED[kind] for _, kind in fixed))
            reads.append((tuple(name for name, _ in fixed), packed, None))
            writes.append((tuple((name, _DEFAULTS.get(kind, 0)) for name, kind in fixed), packed.pack, None))
            fixed.clear()

    for name, kind in fields:
        if isinstance(kind, str) and kind in _FIXED:
            fixed.append((name, kind))
        else:
            fuse()
            read, write = _one(kind, flexible=flexible)
            reads.append((name, None, read))
            writes.append((name, None, (write, () if isinstance(kind, list) else None)))
    fuse()

    def read_all(raw: bytes, at: int) -> tuple[Fields, int]:
        found: Fields = {}
        for names, packed, read in reads:
            if packed is not None:
                found.update(zip(names, packed.unpack_from(raw, at), strict=True))
                at += packed.size
            else:
                found[names], at = read(raw, at)
        if flexible:
            tags, at = read_tags(raw, at)
            if tags:
                found["tags"] = tags
        return found, at

    def write_all(value: Mapping[str, Any]) -> bytes:
        get = value.get
        parts = [
            rest[0](get(names, rest[1])) if pack is None else pack(*[get(name, default) for name, default in names])
            for names, pack, rest in writes
        ]  # fmt: skip
        if flexible:
            parts.append(write_tags(get("tags")))
        return b"".join(parts)

    return read_all, write_all


def _one(kind: _Type, *, flexible: bool) -> tuple[_Read, _Write]:
    if isinstance(kind, str):
        if kind == "str":
            return _text(flexible=flexible)
        if kind == "bytes":
            return _sized(_INT, flexible=flexible)
        packed = Struct(">" + _FIXED[kind])
        return lambda raw, at: (packed.unpack_from(raw, at)[0], at + packed.size), packed.pack
    named = kind[0][0] != ""
    read, write = _struct(kind, flexible=flexible) if named else _one(kind[0][1], flexible=flexible)

    def read_array(raw: bytes, at: int) -> tuple[list[Any] | None, int]:
        if flexible:
            count, at = read_number(raw, at)
            count -= 1
        else:
            (count,) = _INT.unpack_from(raw, at)
            at += 4
        if count < 0:
            return None, at
        found = []
        for _ in range(count):
            one, at = read(raw, at)
            found.append(one)
        return found, at

    def write_array(value: Sequence[Any] | None) -> bytes:
        if value is None:
            return b"\0" if flexible else _INT.pack(-1)
        elements = value
        head = write_number(len(elements) + 1) if flexible else _INT.pack(len(elements))
        return b"".join((head, *map(write, elements)))

    return read_array, write_array


def _text(*, flexible: bool) -> tuple[_Read, _Write]:
    read, write = _sized(_SHORT, flexible=flexible)

    def read_text(raw: bytes, at: int) -> tuple[str | None, int]:
        found, at = read(raw, at)
        return None if found is None else found.decode(), at

    return read_text, lambda text: write(None if text is None else text.encode())


def _sized(length: Struct, *, flexible: bool) -> tuple[_Read, _Write]:
    """Read and write bytes, with their length before them."""

    def read(raw: bytes, at: int) -> tuple[bytes | None, int]:
        if flexible:
            size, at = read_number(raw, at)
            size -= 1
        else:
            (size,) = length.unpack_from(raw, at)
            at += length.size
        return (None, at) if size < 0 else (raw[at : at + size], at + size)

    def write(value: bytes | None) -> bytes:
        if flexible:
            return b"\0" if value is None else write_number(len(value) + 1) + value
        return length.pack(-1) if value is None else length.pack(len(value)) + value

    return read, write


def read_number(raw: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number, seven bits in each byte, and the position behind it."""
    found = shift = 0
    while raw[at] & _MORE:
        found |= (raw[at] ^ _MORE) << shift
        shift, at = shift + 7, at + 1
    return found | raw[at] << shift, at + 1


def write_number(number: int) -> bytes:
    """Return an unsigned number, seven bits in each byte."""
    found = bytearray()
    while number >= _MORE:
        found.append(number & (_MORE - 1) | _MORE)
        number >>= 7
    found.append(number)
    return bytes(found)


def read_tags(raw: bytes, at: int) -> tuple[dict[int, bytes], int]:
    """Return tagged fields, and the position behind them."""
    count, at = read_number(raw, at)
    found = {}
    for _ in range(count):
        tag, at = read_number(raw, at)
        size, at = read_number(raw, at)
        found[tag] = raw[at : at + size]
        at += size
    return found, at


def write_tags(tags: Mapping[int, bytes] | None) -> bytes:
    """Return tagged fields."""
    if not tags:
        return b"\0"
    return write_number(len(tags)) + b"".join(write_number(tag) + write_number(len(raw)) + raw for tag, raw in sorted(tags.items()))
