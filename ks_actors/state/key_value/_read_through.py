"""The dict that a store reads from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class View(dict[Any, Any]):
    """Values by key; what is not here is asked for below. So a read of what is here stays in C from beginning to end."""

    __slots__ = ("below",)

    def __init__(self, below: Callable[[Any], Any]) -> None:
        super().__init__()
        self.below: Callable[[Any], Any] = below

    def __missing__(self, key: Any) -> Any:
        return self.below(key)
