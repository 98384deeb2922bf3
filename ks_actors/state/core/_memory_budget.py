"""One budget for what the stores of all tasks of an instance have in memory of their committed state."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.state.core._size_estimate import average, size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

NO_LIMIT: Final = 1 << 30
"""Rows: as many as there are."""

ROW_BYTES: Final = 120
"""What a row takes besides its objects: its places in dicts, what the allocator adds."""

WAITING_BYTES: Final = 80
"""What is noted of a row that is still to be written."""

FIRST_GUESS: Final = 300
_SPARE: Final = 8
_STEP: Final = 64


class Measured:
    """A store that knows about how much memory it takes, and lets go of what `resident_records` has no room for when it is tidied."""

    resident_records: int = NO_LIMIT
    row_bytes: int = FIRST_GUESS

    def resident_rows(self) -> int:
        """Return how many rows are in memory, in O(1)."""
        raise NotImplementedError

    def waiting_rows(self) -> int:
        """Return of how many rows something is to be written."""
        raise NotImplementedError

    def memory_bytes(self) -> int:
        """Return about how much memory it takes."""
        return self.resident_rows() * self.row_bytes + self.waiting_rows() * WAITING_BYTES

    def weigh_row(self, key: Any, value: Any) -> None:
        """Learn from one row what a row takes."""
        self.learn_weight(ROW_BYTES + size(key) + size(value))

    def learn_weight(self, weight: int) -> None:
        """Take note that a row has taken so many bytes."""
        self.row_bytes = average(self.row_bytes, weight)


@final
class MemoryBudget:
    """How many bytes all tasks may take together, by what they say that they take.

    Who takes less than its fair share is left alone: when all of it is more than the limit, whatever a task has above a level has to go, the same
    level for all, such that an eighth of the limit is free again then.
    """

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.used: int = 0
        self._tasks: dict[TaskMemory, int] = {}
        self._lock = Lock()  # stores are closed in threads

    @property
    def tasks(self) -> int:
        """How many tasks there are, at least one."""
        return max(1, len(self._tasks))

    @property
    def pressing(self) -> bool:
        """Whether there is so much more than may be that whoever adds to it has to wait."""
        return self.used > self.limit + self.limit // _SPARE

    def note(self, task: TaskMemory, used: int) -> None:
        """Take note of what a task takes."""
        with self._lock:
            self.used += used - self._tasks.get(task, 0)
            self._tasks[task] = used

    def leave(self, task: TaskMemory) -> None:
        """Forget a task."""
        with self._lock:
            self.used -= self._tasks.pop(task, 0)

    def surplus(self, task: TaskMemory) -> int:
        """Return how much of what a task takes has to go."""
        if self.used <= self.limit:
            return 0
        with self._lock:
            return max(0, self._tasks.get(task, 0) - level(self._tasks.values(), self.limit - self.limit // _SPARE))


def level(amounts: Iterable[int], total: int) -> int:
    """Return the largest amount that nobody has to be above for all of them to have `total`: who has less keeps it."""
    ascending = sorted(amounts)
    for place, amount in enumerate(ascending):
        share = max(0, total) // (len(ascending) - place)
        if amount > share:
            return share
        total -= amount
    return ascending[-1] if ascending else 0


@final
class TaskMemory:
    """What the stores of one task take of a budget. Those that are in memory only do not count: nothing of them can be let go of."""

    def __init__(self, budget: MemoryBudget, stores: Collection[Measured]) -> None:
        self._budget: MemoryBudget = budget
        self._stores: Collection[Measured] = stores
        self._target: int = 0
        self._least: int = 0

    def measure(self) -> int:
        """Tell the budget what the task takes, and return it."""
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
        """Return whether the task should write and let go of something now; not again at once when that has not helped."""
        if self._budget.used <= self._budget.limit:
            return False
        used = self.measure()
        return self._budget.surplus(self) > 0 and used > self._least

    def limit(self) -> None:
        """Tell stores how much they may keep, before they are tidied."""
        used = self.measure()
        surplus = self._budget.surplus(self)
        self._target = used - surplus
        if not surplus:
            return
        amounts = [store.memory_bytes() for store in self._stores]
        most = level(amounts, self._target)
        for store, amount in zip(self._stores, amounts, strict=True):
            if amount > most:
                store.resident_records = max(0, store.resident_rows() - (amount - most) // store.row_bytes - 1)

    def settle(self) -> None:
        """Take note of what has come of it."""
        for store in self._stores:
            store.resident_records = NO_LIMIT
        used, step = self.measure(), self._budget.limit // _STEP
        self._least = used + step if used > self._target + step else 0

    def leave(self) -> None:
        """Take nothing any more."""
        self._budget.leave(self)
