"""The memory budget of all stores of an instance, for committed state in memory."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ks_actors.state.core._store_for_tasks import StoreForTasks

NO_LIMIT: Final = 1 << 30
"""Rows: no limit."""

_SPARE: Final = 8
_STEP: Final = 64


@final
class MemoryBudget:
    """The bytes that all tasks may take together, by their own estimates.

    A task below its fair share is left alone. When the sum exceeds the limit, each task frees its
    memory above a level. The level is the same for all, and leaves an eighth of the limit free.
    """

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.used: int = 0
        self._tasks: dict[TaskMemory, int] = {}
        self._lock = Lock()  # stores are closed in threads

    @property
    def tasks(self) -> int:
        """The number of tasks, at least 1."""
        return max(1, len(self._tasks))

    @property
    def pressing(self) -> bool:
        """Whether memory is so far over the limit that additions must wait."""
        return self.used > self.limit + self.limit // _SPARE

    def note(self, task: TaskMemory, used: int) -> None:
        """Note the bytes that a task takes."""
        with self._lock:
            self.used += used - self._tasks.get(task, 0)
            self._tasks[task] = used

    def leave(self, task: TaskMemory) -> None:
        """Forget a task."""
        with self._lock:
            self.used -= self._tasks.pop(task, 0)

    def surplus(self, task: TaskMemory) -> int:
        """Return the bytes that a task has to free."""
        # Without the lock: an old number only delays the answer until the next call.
        if self.used <= self.limit:
            return 0
        with self._lock:
            return max(
                0,
                self._tasks.get(task, 0)
                - level(self._tasks.values(), self.limit - self.limit // _SPARE),
            )


def level(amounts: Iterable[int], total: int) -> int:
    """Return the highest cap that brings the sum of all amounts down to `total`.

    Amounts below the cap stay as they are.
    """
    ascending = sorted(amounts)
    for place, amount in enumerate(ascending):
        # Smallest first: the unused part of a small amount's share goes to the larger amounts.
        share = max(0, total) // (len(ascending) - place)
        if amount > share:
            return share
        total -= amount
    return ascending[-1] if ascending else 0


@final
class TaskMemory:
    """One task's share of a memory budget.

    In-memory stores do not count, because they can evict nothing.
    """

    def __init__(self, budget: MemoryBudget, stores: Collection[StoreForTasks]) -> None:
        self._budget: MemoryBudget = budget
        self._stores: Collection[StoreForTasks] = stores
        self._target: int = 0
        self._least: int = 0

    def measure(self) -> int:
        """Report the task's bytes to the budget, and return them."""
        used = sum(store.memory_bytes() for store in self._stores)
        self._budget.note(self, used)
        return used

    @property
    def short(self) -> bool:
        """Whether all tasks together take too much."""
        return self._budget.used > self._budget.limit

    @property
    def pressing(self) -> bool:
        """Whether all tasks together take far too much."""
        return self._budget.pressing

    def presses(self) -> bool:
        """Return whether the task should write and evict now.

        After an attempt that did not help, return False until its memory has grown.
        """
        if self._budget.used <= self._budget.limit:
            return False
        used = self.measure()
        return self._budget.surplus(self) > 0 and used > self._least

    def begin_eviction(self) -> None:
        """Set each store's `resident_records`, before `evict`."""
        used = self.measure()
        surplus = self._budget.surplus(self)
        self._target = used - surplus
        if not surplus:
            return
        amounts = [store.memory_bytes() for store in self._stores]
        most = level(amounts, self._target)
        for store, amount in zip(self._stores, amounts, strict=True):
            if amount > most:
                store.resident_records = max(
                    0, store.resident_rows() - (amount - most) // store.row_weight.bytes - 1
                )

    def end_eviction(self) -> None:
        """Note the result of `evict`, and lift the limits."""
        for store in self._stores:
            store.resident_records = NO_LIMIT
        used, step = self.measure(), self._budget.limit // _STEP
        # Without this mark a task that cannot evict enough would write again on every call.
        self._least = used + step if used > self._target + step else 0

    def leave(self) -> None:
        """Leave the budget."""
        self._budget.leave(self)
