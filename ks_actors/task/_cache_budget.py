"""How much memory caches may take."""

from __future__ import annotations

from threading import Lock
from typing import Any

from ks_actors.processors.stateless import ATOMS
from ks_actors.state.core import TEXTS, size


class CacheBudget:
    """How many bytes the held updates of an instance may take: all stores of all tasks have them together, first come, first served."""

    __slots__ = ("_lock", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.used: int = 0
        self._lock = Lock()  # tasks with functions that block are in threads

    def add(self, weight: int) -> int:
        """Count more, or less; return how much it is too much."""
        with self._lock:
            self.used += weight
            return self.used - self.limit


def weigh(value: Any) -> int:
    """Return about how many bytes an object takes when it is written."""
    if value is None:
        return 0
    return len(value) if type(value) in TEXTS else 8 if type(value) in ATOMS else size(value)
