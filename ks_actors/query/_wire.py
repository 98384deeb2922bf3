"""The protocol between an app that serves its stores and external readers.

All messages are MessagePack frames of the types in this module.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import msgspec

VERSION: Final = 1
LENGTH: Final = struct.Struct(">I")
"""The head of each frame: the number of bytes that follow."""

MOST_BYTES: Final = 1 << 20
"""The size limit of a request."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first request authenticates; without a valid token no data is sent."""

    token: str
    version: int = VERSION

    def __repr__(self) -> str:
        """Return the fields without the token: printed text ends up in logs."""
        return f"Hello(version={self.version})"


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Ask for a store's kind, and for its partitions on this instance."""

    store: str
    stale: bool = False


class ReadRows(msgspec.Struct, frozen=True, tag=True):
    """Ask for the rows of a partition: those of some keys, or all.

    `committed` None stands for the app's default isolation.
    """

    store: str
    partition: int
    keys: list[bytes] | None = None
    committed: bool | None = None
    stale: bool = False


Request: TypeAlias = Hello | Describe | ReadRows


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The answer to a valid token."""


class Described(msgspec.Struct, frozen=True, tag=True):
    """A store: its kind, changelog topic, and local partitions.

    `count` is the number of partitions over all instances.
    """

    kind: str
    changelog: str
    partitions: list[int]
    count: int


class SomeRows(msgspec.Struct, frozen=True, tag=True):
    """Rows in the form of the changelog."""

    keys: list[bytes]
    values: list[bytes]
    timestamps: list[int]


class End(msgspec.Struct, frozen=True, tag=True):
    """There are no more rows."""

    rows: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A failure: the error's class and text; `reason` is that of a failed query."""

    error: str
    text: str
    reason: str | None = None


Reply: TypeAlias = Welcome | Described | SomeRows | End | Refused

# Made at import: two threads at once must not make msgspec inspect a type for the first time.
decode_request: Final = msgspec.msgpack.Decoder(Request).decode
decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode
encode: Final = msgspec.msgpack.Encoder().encode
