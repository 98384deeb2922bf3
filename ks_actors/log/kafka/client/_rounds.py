"""Brokers that are asked the same question one after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Collection


@final
class Rounds:
    """The brokers that have answered a question in this round; others are preferred next time.

    A broker that is cut off from its cluster goes on with its old answers, and it may be the only
    one with a connection. A round has at most `most` brokers: each may be one more connection.
    """

    __slots__ = ("_answered", "_most")

    def __init__(self, most: float = math.inf) -> None:
        self._most: float = most
        self._answered: set[int] = set()

    def answered(self, brokers: Collection[int]) -> Collection[int]:
        """Return those of the brokers to ask last; when that is all of them, a round begins."""
        if len(self._answered) >= self._most or self._answered.issuperset(brokers):
            self._answered.clear()
        return self._answered

    def note(self, broker: int) -> None:
        """Note that a broker has answered."""
        self._answered.add(broker)
