"""Keys of windowed aggregates."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")


class Window(NamedTuple):
    """A span of time in ms: `start` belongs to it, `end` does not (of a session or an unlimited window, `end` is the last instant)."""

    start: int
    end: int


class Windowed(NamedTuple, Generic[K]):
    """A key in one window."""

    key: K
    window: Window

    def __str__(self) -> str:
        """Return `key@start/end`."""
        return f"{self.key}@{self.window.start}/{self.window.end}"
