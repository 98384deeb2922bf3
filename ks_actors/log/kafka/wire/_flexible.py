"""Requests with tagged fields (KIP-482), without aiokafka, whose versions differ in this part."""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from ks_actors.log.kafka._aiokafka import AbstractType

if TYPE_CHECKING:
    from io import BytesIO

NO_TAGS: Final = b"\0"
_INT: Final = Struct(">i")
_HEADER: Final = Struct(">hhih")
# Each byte of a variable-length number has seven bits of it, and this bit if more bytes follow.
_MORE: Final = 0x80
# A number has 32 bits.
_MOST_BYTES: Final = 5


def varint(number: int) -> bytes:
    """Return an unsigned number in as few bytes as possible, with seven bits in each."""
    if number < _MORE:
        return bytes((number,))
    found = bytearray()
    while number >= _MORE:
        found.append(number & 0x7F | _MORE)
        number >>= 7
    found.append(number)
    return bytes(found)


def text(value: str) -> bytes:
    """Return a text with its length."""
    raw = value.encode()
    return varint(len(raw) + 1) + raw


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number and the position after it. Raises struct.error at the end."""
    if at < len(raw) and (number := raw[at]) < _MORE:
        return number, at + 1  # as most are
    number = 0
    for shift, byte in enumerate(raw[at : at + _MOST_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < _MORE:
            return number, at + shift + 1
    raise error("a number in an answer is cut off or too long")


def read_tags(raw: bytes, at: int) -> tuple[dict[int, int], int]:
    """Return the position of each tagged field's data, and the position after all fields."""
    if raw[at : at + 1] == NO_TAGS:
        return {}, at + 1
    count, at = read_varint(raw, at)
    found = {}
    for _ in range(count):
        tag, at = read_varint(raw, at)
        size, at = read_varint(raw, at)
        found[tag] = at
        at += size
    return found, at


class TaggedFields(AbstractType):  # type: ignore[misc]
    """Write no tagged fields in a request; skip tagged fields in an answer."""

    @classmethod
    def encode(cls, value: dict[int, bytes]) -> bytes:
        if value:
            raise ValueError("tagged fields are not written here")
        return NO_TAGS

    @classmethod
    def decode(cls, data: BytesIO) -> dict[int, bytes]:
        _, behind = read_tags(data.getvalue(), data.tell())
        data.seek(behind)
        return {}


class Header(NamedTuple):
    """The header of a request or of an answer, with the parts that a connection uses."""

    correlation_id: int
    raw: bytes = b""

    def encode(self) -> bytes:
        return self.raw


class FlexibleRequest:
    """The headers of a request with tagged fields, and of its answer."""

    API_KEY: ClassVar[int]
    API_VERSION: ClassVar[int]

    def build_request_header(self, correlation_id: int, client_id: str) -> Header:
        """Return the header of this request."""
        name = client_id.encode()
        start = _HEADER.pack(self.API_KEY, self.API_VERSION, correlation_id, len(name))
        return Header(correlation_id, start + name + NO_TAGS)

    def parse_response_header(self, data: BytesIO) -> Header:
        """Decode the header of the answer."""
        (correlation_id,) = _INT.unpack(data.read(_INT.size))
        TaggedFields.decode(data)
        return Header(correlation_id)
