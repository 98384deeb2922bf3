"""The read-through dict of a key-value store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class View(dict[Any, Any]):
    """Values by key; a missing key is loaded from below.

    So a read of a key in memory stays in C from beginning to end.
    """

    __slots__ = ("below",)

    def __init__(self, below: Callable[[Any], Any]) -> None:
        super().__init__()
        self.below: Callable[[Any], Any] = below

    def __missing__(self, key: Any) -> Any:
        return self.below(key)
