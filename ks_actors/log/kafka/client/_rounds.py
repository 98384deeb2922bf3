"""Brokers that get the same request one after the other."""

from __future__ import annotations

import math
from typing import final


@final
class Rounds:
    """The order in which brokers are asked: the broker that answered most recently is asked last.

    A broker that is cut off from its cluster still gives its old answers, and it may be the only
    broker with a connection. After `most` different brokers have answered, other brokers come last,
    as each of them may require another connection.
    """

    __slots__ = ("_answered", "_count", "_most")

    def __init__(self, most: float = math.inf) -> None:
        self._most: float = most
        self._answered: dict[int, int] = {}
        self._count: int = 0

    def place(self, broker: int) -> float:
        """Return a broker's place in the order; brokers that have not answered share a place."""
        others = math.inf if len(self._answered) >= self._most else -1
        return self._answered.get(broker, others)

    def note(self, broker: int) -> None:
        """Note that a broker has answered."""
        self._count += 1
        self._answered[broker] = self._count
