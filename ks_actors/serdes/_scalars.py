"""Kafka's own serdes; their formats are those of the Java classes of the same names.

Each callable is the fastest one found: a C function where there is one, else one Python frame.
`bytes.decode` takes a third of the time of a `partial(str, encoding="utf-8")`. Unpacking in a frame
takes half the time of `int.from_bytes`, and msgspec reads a UUID in a fifth of the time of
`uuid.UUID`.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ks_actors._errors import SerializationError
from ks_actors.serdes._as_read import is_bool, is_bytes, is_double, is_text, is_uuid, whole_number
from ks_actors.serdes._columns import has_form
from ks_actors.serdes._serde import FunctionSerde, Serde

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes._as_read import AsRead

UUID_LENGTH = 36


def _wrong_length(name: str, size: int, data: bytes) -> SerializationError:
    return SerializationError(f"{name} is {size} bytes, got {len(data)}: {bytes(data[:32])!r}")


def _number(name: str, form: str, as_read: AsRead | None, *, faithful: bool) -> Serde[Any]:
    layout = struct.Struct(form)
    unpack = layout.unpack

    def deserialize(data: bytes) -> Any:
        try:
            (value,) = unpack(data)
        except struct.error:
            raise _wrong_length(name, layout.size, data) from None
        return value

    pack = layout.pack
    if form == ">q":
        has_form(pack, "encode_longs")
        has_form(deserialize, "decode_longs")
    return FunctionSerde(
        pack, deserialize, faithful=faithful, immutable=True, name=name, as_read=as_read
    )


class _Booleans(dict[Any, Any]):
    """One direction of BOOLEAN as a table; other keys are bad data."""

    def __missing__(self, key: object) -> Any:
        raise SerializationError(f"BOOLEAN is True or False, in one byte 1 or 0; got {key!r}")


def _uuid_serializer() -> Callable[[uuid.UUID], bytes]:
    encode = msgspec.json.Encoder().encode

    def serialize(value: uuid.UUID) -> bytes:
        if not isinstance(value, uuid.UUID):  # A text may have the length of a UUID.
            raise SerializationError(f"UUID writes uuid.UUID, got {value!r}")
        return encode(value)[1:-1]

    return serialize


def _uuid_deserializer() -> Callable[[bytes], uuid.UUID]:
    decode = msgspec.json.Decoder(uuid.UUID).decode

    def deserialize(data: bytes) -> uuid.UUID:
        if len(data) != UUID_LENGTH:
            raise _wrong_length("UUID", UUID_LENGTH, data)
        return decode(b'"%b"' % data)

    return deserialize


def _not_void(value: object) -> Any:
    raise SerializationError(f"VOID is null and nothing else, got {value!r}")


STRING: Serde[str] = FunctionSerde(
    str.encode, bytes.decode, faithful=True, immutable=True, name="STRING", as_read=is_text
)
"""Text as UTF-8. Bytes that are not UTF-8 are bad data (Java would put U+FFFD in their place)."""

BYTES: Serde[bytes] = FunctionSerde(
    bytes.__bytes__, bytes.__bytes__, faithful=True, immutable=True, name="BYTES", as_read=is_bytes
)
"""Bytes unchanged; other types, bytearray too, are refused."""

SHORT: Serde[int] = _number("SHORT", ">h", whole_number(16), faithful=True)
"""An integer in 2 bytes, big-endian."""

INTEGER: Serde[int] = _number("INTEGER", ">i", whole_number(32), faithful=True)
"""An integer in 4 bytes, big-endian."""

LONG: Serde[int] = _number("LONG", ">q", whole_number(64), faithful=True)
"""An integer in 8 bytes, big-endian."""

FLOAT: Serde[float] = _number("FLOAT", ">f", None, faithful=False)
"""A number in 4 bytes, IEEE 754, big-endian: the nearest value that fits is read back."""

# 0.0 == -0.0, and they have different bytes
DOUBLE: Serde[float] = _number("DOUBLE", ">d", is_double, faithful=False)
"""A number in 8 bytes, IEEE 754, big-endian."""

BOOLEAN: Serde[bool] = FunctionSerde(
    _Booleans({True: b"\x01", False: b"\x00"}).__getitem__,
    _Booleans({b"\x01": True, b"\x00": False}).__getitem__,
    faithful=True,
    immutable=True,
    name="BOOLEAN",
    as_read=is_bool,
)
"""One byte, 1 or 0."""

UUID: Serde[uuid.UUID] = FunctionSerde(
    _uuid_serializer(),
    _uuid_deserializer(),
    faithful=True,
    immutable=True,
    name="UUID",
    as_read=is_uuid,
)
"""A UUID as its 36 characters, as Java writes it."""

VOID: Serde[None] = FunctionSerde(_not_void, _not_void, faithful=True, immutable=True, name="VOID")
"""Null and nothing else."""

has_form(str.encode, "encode_texts")
has_form(bytes.decode, "decode_texts")
has_form(bytes.__bytes__, "check_bytes")

_WRITTEN: Final = (BYTES, STRING, LONG)


def written_form(serde: Any) -> int | None:
    """Return the kernel's number of a serde that it writes by itself; None for other serdes."""
    return next((number for number, known in enumerate(_WRITTEN) if serde is known), None)
