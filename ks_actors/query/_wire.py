"""What is said between an app that serves its stores and whoever reads them from outside: frames of MessagePack, of these types and no others."""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import msgspec

VERSION: Final = 1
LENGTH: Final = struct.Struct(">I")
"""What each frame begins with: how many bytes follow."""

MOST_BYTES: Final = 1 << 20
"""A request is no longer than that."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first request: who does not know the token is told nothing."""

    token: str
    version: int = VERSION

    def __repr__(self) -> str:
        """Leave the token out: what is printed goes into logs."""
        return f"Hello(version={self.version})"


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Ask what a store is, and which of its partitions are there."""

    store: str
    stale: bool = False


class ReadRows(msgspec.Struct, frozen=True, tag=True):
    """Ask for the rows of a partition: those of some keys, or all. `committed` is None for what the app sees by default."""

    store: str
    partition: int
    keys: list[bytes] | None = None
    committed: bool | None = None
    stale: bool = False


Request: TypeAlias = Hello | Describe | ReadRows


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The answer to a token that is right."""


class Described(msgspec.Struct, frozen=True, tag=True):
    """A store: its kind, the topic of its changelog, the partitions that are there, and how many there are in all instances."""

    kind: str
    changelog: str
    partitions: list[int]
    count: int


class SomeRows(msgspec.Struct, frozen=True, tag=True):
    """Rows as a changelog has them."""

    keys: list[bytes]
    values: list[bytes]
    timestamps: list[int]


class End(msgspec.Struct, frozen=True, tag=True):
    """There are no more rows."""

    rows: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """There is no answer: the error's class and text; `reason` is that of a query that has failed."""

    error: str
    text: str
    reason: str | None = None


Reply: TypeAlias = Welcome | Described | SomeRows | End | Refused

# Made here: what msgspec learns of a type when it first meets it must not be learned by two threads at once.
decode_request: Final = msgspec.msgpack.Decoder(Request).decode
decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode
encode: Final = msgspec.msgpack.Encoder().encode
