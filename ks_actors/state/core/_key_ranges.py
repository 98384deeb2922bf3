"""Ranges of keys in byte order."""

from __future__ import annotations

import contextlib
from typing import TypeAlias

Bounds: TypeAlias = tuple[bytes, bytes]
"""The first key bytes of a range, and its end, which is exclusive; an empty end is no bound."""


def within(encoded: bytes, bounds: Bounds) -> bool:
    """Return whether key bytes are in a range."""
    first, end = bounds
    return first <= encoded and (not end or encoded < end)


def after(prefix: bytes) -> bytes:
    """Return the first key, in byte order, after all keys with `prefix`.

    Return b"" for a prefix of nothing but 0xff: no key is after it.
    """
    stripped = prefix.rstrip(b"\xff")
    with contextlib.suppress(IndexError):
        return stripped[:-1] + bytes((stripped[-1] + 1,))
    return b""
