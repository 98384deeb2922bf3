"""The tasks that are ready for processing."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final, final

from ks_actors.runtime.processing._scheduler import Schedule
from ks_actors.task import BACK_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.records import TaskId
    from ks_actors.runtime.processing._shares import Shares
    from ks_actors.task import Clocks, Task


# A change of the wall clock is noticed within this time.
_LOOK_MS: Final = 5_000
_SPARE: Final = 64


@final
class ReadyTasks:
    """Track the tasks that are ready, and those that become ready by time alone.

    No scan of all tasks is needed. Call `update` after every change of a task: records, results,
    the end of a lease or of a pause. `wants` returns the work that a task may get: None for no
    work, False for any work, and True if the task may only finish its work in hand, because it
    drains for a commit.
    """

    def __init__(
        self,
        clocks: Clocks,
        wants: Callable[[Task], bool | None],
        priority: Callable[[TaskId], int] | None,
        *,
        slice_ms: float,
        shares: Shares | None = None,
    ) -> None:
        self._slice_ms: float = slice_ms
        self._clocks = clocks
        self._wants = wants
        self._shares = shares
        self._working = Schedule(priority, shares)
        self._draining = Schedule(priority)
        # Ready times of tasks that are draining, or are leased and may come back untouched.
        self._passed_over: dict[TaskId, float] = {}
        self._punctuations = DueTimes()
        self._deadlines = DueTimes()
        # The lead of the wall clock over the steady one.
        self._ahead: float = -inf
        # Pauses do not count as waiting time.
        self._stood: float = 0.0
        self._stands_since: float | None = None
        self._gives_out: bool = True

    def __contains__(self, task: TaskId) -> bool:
        return task in self._working or task in self._draining

    @property
    def ids(self) -> list[TaskId]:
        """The tasks that are ready."""
        return [*self._draining, *self._working]

    def update(self, task: Task) -> None:
        """Update whether a task is ready."""
        drains = self._wants(task)
        due = deadline = None
        if drains is None:
            fit = False
        elif drains:
            fit = task.can_drain
        else:
            due = task.next_punctuation
            # Use one time for both checks: neither would notice a deadline that passes between two
            # times.
            now = self._clocks.steady_time()
            fit = (due is not None and due <= self._clocks.wall_time()) or task.ready(now)
            deadline = None if fit else task.wakes_at(now)
        if drains or not fit:
            since = self._working.leave(task.id)
            if drains and since is not None:
                # Keep the waiting time over a commit. Otherwise, with a commit after each slice, a
                # task with little to do would never be picked.
                self._passed_over[task.id] = since
        if self._draining.waiting and not (drains and fit):
            self._draining.leave(task.id)
        if fit and drains:
            self._draining.enter(task, self._waited())
        elif fit:
            self._working.enter(task, self._passed_over.pop(task.id, self._waited()))
        elif drains is False:
            self._passed_over.pop(task.id, None)
        if fit:
            due = None
        # Most tasks never have a time.
        if due is not None or self._punctuations.at:
            self._punctuations.set(task.id, due)
        if deadline is not None or self._deadlines.at:
            self._deadlines.set(task.id, deadline)

    def forget(self, task: TaskId) -> None:
        """Forget a task that has left."""
        self._working.leave(task)
        self._draining.leave(task)
        self._passed_over.pop(task, None)
        self._punctuations.set(task, None)
        self._deadlines.set(task, None)

    def stand(self, *, still: bool, full: bool) -> None:
        """Note whether tasks get no new work for now.

        Either all processing is paused (`still`), or the uncommitted bytes are `full`. Waiting time
        does not count during a pause, but counts while a commit makes room. Otherwise, with a
        commit after each slice, a task would wait far longer than STARVED_S.
        """
        self._gives_out = not (still or full)
        now = self._clocks.steady_time() / 1000
        if still and self._stands_since is None:
            self._stands_since = now
        elif not still and self._stands_since is not None:
            self._stood += now - self._stands_since
            self._stands_since = None

    def _waited(self) -> float:
        """Return the time in seconds, without pauses."""
        return (
            self._clocks.steady_time() / 1000 if self._stands_since is None else self._stands_since
        ) - self._stood

    def due(self) -> list[TaskId]:
        """Return the tasks with a due punctuator or deadline; the caller must `update` each.

        A due task is returned only once. After the wall clock was set back, return all tasks that
        wait for a punctuator, because they are due at other times now.
        """
        now, steady = self._clocks.wall_time(), self._clocks.steady_time()
        ahead = now - steady
        set_back = ahead < self._ahead - BACK_MS
        if set_back or ahead > self._ahead:
            self._ahead = ahead
        # If the clock was set back, punctuators are due at other times.
        called = self._punctuations.tasks if set_back else self._punctuations.due(now)
        return [*called, *self._deadlines.due(steady)]

    def pick(self, workers: int = 1, most: float = inf) -> tuple[tuple[Task, ...], bool] | None:
        """Return the next tasks and whether to only drain them; None when there is none.

        Picked tasks are not ready any more. Draining tasks come first, each alone: a commit waits
        for them. Otherwise a pick has as many tasks as fill a slice together, but at most `most`
        tasks, and at most an equal share for each of the free `workers`. A task that needs a
        thread, or a whole slice, comes alone.
        """
        now = self._waited()
        if (found := self._draining.pick(now)) is not None:
            return (found[0],), True
        share = min(most, -(-len(self._working) // workers))
        if not self._gives_out:
            return None
        # With many partitions a turn mostly has a few records for each of many tasks.
        if whole := self._working.take_all(now, share, self._slice_ms):
            self._passed_over.update((task.id, since) for task, since in whole)
            return tuple(task for task, _ in whole), False
        if (found := self._working.pick(now)) is None:
            return None
        tasks: list[Task] = []
        left = self._slice_ms

        def fits(other: Task) -> bool:
            return other.work_ms <= left and not other.blocking

        while found is not None:
            task, self._passed_over[task.id] = found
            tasks.append(task)
            left -= task.work_ms
            found = None if len(tasks) >= share or task.blocking else self._working.pick(now, fits)
        return tuple(tasks), False

    def had_turn(self, tasks: Iterable[tuple[TaskId, float]]) -> None:
        """Record how many seconds picked tasks were processed, and end their waiting time."""
        for task, seconds in tasks:
            self._passed_over.pop(task, None)
            if self._shares is not None:
                self._shares.spent(task, seconds)

    def wakes_in(self) -> float | None:
        """Return the seconds until time alone makes a task ready; None when it will not."""
        if not self._gives_out:
            return None
        due, deadline = self._punctuations.next, self._deadlines.next
        # The wall clock may be set at any time, and no timer reports such a change.
        waits = [] if due is None else [min(due - self._clocks.wall_time(), _LOOK_MS)]
        if deadline is not None:
            waits.append(deadline - self._clocks.steady_time())
        return max(0.0, min(waits)) / 1000 if waits else None


@final
class DueTimes:
    """One time per task, in ms of any clock; finds the earliest without a scan of all tasks."""

    def __init__(self) -> None:
        self.at: dict[TaskId, float] = {}
        """The time of each task that has one."""
        # Outdated entries stay in the heap and are skipped.
        self._heap: list[tuple[float, int, TaskId]] = []
        self._order = count()

    def set(self, task: TaskId, at: float | None) -> None:
        """Set the time of a task; None removes it."""
        if at is None:
            self.at.pop(task, None)
        elif self.at.get(task) != at:
            self.at[task] = at
            heappush(self._heap, (at, next(self._order), task))
            if len(self._heap) > 2 * len(self.at) + _SPARE:
                self._heap = [(time, next(self._order), each) for each, time in self.at.items()]
                heapify(self._heap)

    @property
    def tasks(self) -> list[TaskId]:
        """The tasks that have a time."""
        return list(self.at)

    @property
    def next(self) -> float | None:
        """The earliest time of all; None when there is none."""
        heap = self._heap
        while heap and self.at.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: float) -> list[TaskId]:
        """Return the tasks that are due, earliest first, and remove their times."""
        found: list[TaskId] = []
        while (at := self.next) is not None and at <= now:
            task = heappop(self._heap)[2]
            del self.at[task]
            found.append(task)
        return found
