"""The token of one commit of a task's stores."""

from __future__ import annotations

from typing import final


@final
class Token:
    """A handle for one frozen transaction of all stores.

    `persisted` is true once the stores without changelog have written their changes.
    """

    __slots__ = ("number", "persisted")

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.persisted: bool = False

    def __repr__(self) -> str:
        return f"<Token {self.number}>"
