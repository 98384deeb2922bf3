"""Brokers that are asked the same question one after the other."""

from __future__ import annotations

import math
from typing import final


@final
class Rounds:
    """The order of the brokers for the same question: the last one to answer is the last to ask.

    A broker that is cut off from its cluster goes on with its old answers, and it may be the only
    one with a connection. When `most` brokers have answered, no further ones are asked, as each may
    be one more connection.
    """

    __slots__ = ("_answered", "_count", "_most")

    def __init__(self, most: float = math.inf) -> None:
        self._most: float = most
        self._answered: dict[int, int] = {}
        self._count: int = 0

    def place(self, broker: int) -> float:
        """Return the place of a broker in the order; those that have not answered share one."""
        others = math.inf if len(self._answered) >= self._most else -1
        return self._answered.get(broker, others)

    def note(self, broker: int) -> None:
        """Note that a broker has answered."""
        self._count += 1
        self._answered[broker] = self._count
