"""Numbers of things in words."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless there is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
