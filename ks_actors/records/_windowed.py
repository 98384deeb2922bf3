"""Keys of windowed aggregates."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")


class Window(NamedTuple):
    """A span of time in ms from `start` to before `end`.

    The `end` of a session or an unlimited window is its last instant.
    """

    start: int
    end: int


class Windowed(NamedTuple, Generic[K]):
    """A key in one window."""

    key: K
    window: Window

    def __str__(self) -> str:
        """Return `[key@start/end]`, as Kafka Streams prints it."""
        return f"[{self.key}@{self.window.start}/{self.window.end}]"
