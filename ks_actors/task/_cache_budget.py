"""The memory budget of caches."""

from __future__ import annotations

from threading import Lock
from typing import Any

from ks_actors.processors.stateless import ATOMS
from ks_actors.state.core import TEXTS, size


class CacheBudget:
    """The bytes that an instance's cached updates may take.

    All stores of all tasks share the budget, first come, first served.
    """

    __slots__ = ("_lock", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.used: int = 0
        self._lock = Lock()  # blocking functions use it from their threads

    def add(self, weight: int) -> int:
        """Add to the bytes in use (or subtract); return the excess over the limit."""
        with self._lock:
            self.used += weight
            return self.used - self.limit


def weigh(value: Any) -> int:
    """Return the approximate serialized size of an object in bytes."""
    if value is None:
        return 0
    return len(value) if type(value) in TEXTS else 8 if type(value) in ATOMS else size(value)
