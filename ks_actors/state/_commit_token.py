"""What stands for one freezing of a task's stores."""

from __future__ import annotations

from typing import final


@final
class Token:
    """What was frozen at one moment. `persisted` says that stores without changelog have written theirs."""

    __slots__ = ("number", "persisted")

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.persisted: bool = False

    def __repr__(self) -> str:
        return f"<Token {self.number}>"
