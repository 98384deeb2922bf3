"""Ranges of keys in byte order."""

from __future__ import annotations

import contextlib


def after(prefix: bytes) -> bytes:
    """Return the first key, in byte order, after all keys with `prefix`.

    Return b"" for a prefix of nothing but 0xff: no key is after it.
    """
    stripped = prefix.rstrip(b"\xff")
    with contextlib.suppress(IndexError):
        return stripped[:-1] + bytes((stripped[-1] + 1,))
    return b""
