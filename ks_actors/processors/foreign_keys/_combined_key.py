"""The keys of subscriptions in their store: foreign key, then primary key."""

from __future__ import annotations

import struct
from typing import Final

_LENGTH: Final = struct.Struct(">i")


def prefix_bytes(foreign_key: bytes) -> bytes:
    """Return the beginning of the keys of all subscriptions to a row.

    The beginning is the length of the foreign key (4 bytes, big-endian) and the foreign key.
    """
    return _LENGTH.pack(len(foreign_key)) + foreign_key


def combined_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    """Return the key of a subscription: the prefix, and the primary key."""
    return _LENGTH.pack(len(foreign_key)) + foreign_key + primary_key
