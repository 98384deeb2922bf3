"""The messages between the instances of an app, and from clients, as MessagePack.

A body is a sequence of messages, each behind its length. Keys and values travel as the bytes that
the store's serdes write.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from ks_actors._errors import (
    ConfigError,
    FailureReason,
    KsActorsError,
    NotRunning,
    QueryFailed,
    UnknownStore,
)
from ks_actors.query.remote._places import AppMap

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH: Final = "/query/v2"
MAP_PATH: Final = f"{PATH}/endpoints"
CONTENT: Final = "application/msgpack"
MOST_REQUEST_BYTES: Final = 1 << 20
"""The size limit of a request."""
MOST_MESSAGE_BYTES: Final = 1 << 30
"""The size limit of one message of an answer: a store's largest value, with room to spare."""
_LENGTH: Final = struct.Struct(">I")


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Ask partitions of a store, by the name of a reader's method with its arguments.

    `partitions` is empty for a global store. `key` is None for many keys; `low` and `high` are a
    range of key bytes, whose end is excluded. `reverse` is None for one value. With `stale`
    standbys and restored tasks answer too. `of` is the number of partitions as the caller knows it:
    an instance with another number refuses, since the key may be in another partition.
    """

    store: str
    name: str
    partitions: list[int]
    key: bytes | None
    times: list[int | None]
    committed: bool
    low: bytes | None = None
    high: bytes | None = None
    reverse: bool | None = None
    stale: bool = False
    of: int | None = None


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A row: its place, key (None: its place, or the key of the request) and entry.

    `when` is the start of a window, or the start and the end of a session. `until` is the end of a
    version.
    """

    place: bytes
    key: bytes | None
    entry: bytes
    when: int | tuple[int, int] | None = None
    until: int | None = None


class Found(msgspec.Struct, frozen=True, tag=True):
    """The answer to a lookup: no row, one, or versions; or a number of keys."""

    rows: list[Row]
    count: int = 0


class SomeRows(msgspec.Struct, frozen=True, tag=True):
    """Rows of a scan, in order; none as a sign of life."""

    rows: list[Row]


class End(msgspec.Struct, frozen=True, tag=True):
    """The end of a scan, with its number of rows."""

    rows: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A failure: the error's class and text; `reason` is that of a failed query."""

    error: str
    text: str
    reason: str | None = None
    partition: int | None = None

    @classmethod
    def of(cls, error: KsActorsError) -> Refused:
        """Return the message about an error."""
        if isinstance(error, QueryFailed):
            return cls("QueryFailed", str(error), error.reason.name, error.partition)
        return cls(type(error).__name__, str(error))

    def as_error(self, store: str, where: str) -> KsActorsError:
        """Return the error again, with the place where it was raised."""
        text = f"{self.text} (at {where})"
        if self.error == "QueryFailed":
            known = FailureReason.__members__
            reason = known.get(self.reason or "", FailureReason.STORE_EXCEPTION)
            return QueryFailed(text, reason=reason, store=store, partition=self.partition)
        kinds: dict[str, type[KsActorsError]] = {
            each.__name__: each for each in (ConfigError, NotRunning, UnknownStore)
        }
        if self.error in kinds:
            return kinds[self.error](text)
        return KsActorsError(f"{self.error}: {text}")


Reply: TypeAlias = Found | SomeRows | End | Refused | AppMap

# Made at import: two threads at once must not make msgspec inspect a type for the first time.
decode_ask: Final = msgspec.msgpack.Decoder(Ask).decode
_decode_reply: Final = msgspec.msgpack.Decoder(Found | SomeRows | End | Refused).decode
decode_map: Final = msgspec.msgpack.Decoder(AppMap).decode
encode: Final = msgspec.msgpack.Encoder().encode


def framed(message: Reply) -> bytes:
    """Return the bytes of a message behind their length."""
    data = encode(message)
    return _LENGTH.pack(len(data)) + data


class Frames:
    """The messages in the bytes of a body, as they arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes | bytearray) -> Iterator[Found | SomeRows | End | Refused]:
        """Yield the messages that are complete now. Raises ValueError, and errors of decoding."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data)
            if size > MOST_MESSAGE_BYTES:
                raise ValueError(f"a message of {size:,} bytes is too large")
            end = _LENGTH.size + size
            if len(self._data) < end:
                return
            message = _decode_reply(bytes(self._data[_LENGTH.size : end]))
            del self._data[:end]
            yield message
