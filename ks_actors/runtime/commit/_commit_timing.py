"""The times of the commits that no actor asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.records import TaskId
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import Task

# The longest rest, whether work begins or not.
_REST_S: Final = 1.0
# Records of one moment come in several batches: one transaction for each would cost more.
_GATHER_S: Final = 0.005

LONGEST_DELAY_S: Final = 0.25
"""The longest delay: some partitions may have no records."""
CHECK_AGAIN_S: Final = 0.02


@final
class FirstCommit:
    """Make the first commit of tasks that begin together include all of them.

    Tasks are handed over and fetched one after the other. A commit that comes due in between would
    include only the first task's records. All others would wait for it and for the next one: twice
    as long after an outage, when each answer takes its time. Tasks of another subtopology are not
    waited for: their input may be the very output that this commit makes visible. `touched` returns
    the tasks that may have something to commit. Unless one of them has just begun, the others are
    not scanned.
    """

    def __init__(self, tasks: Mapping[TaskId, Task], touched: Callable[[], Iterable[Task]]) -> None:
        self._tasks: Mapping[TaskId, Task] = tasks
        self._touched = touched
        self._begun: WeakSet[Task] = WeakSet()
        self._since: float | None = None

    def waits(self, now: float) -> bool:
        """Return whether a commit that is due at `now` (seconds) should wait.

        Ask again until it should not.
        """
        if not any(task.commit_needed and task not in self._begun for task in self._touched()):
            self._since = None
            return False
        fresh: dict[int, list[Task]] = {}
        for task_id, task in self._tasks.items():
            if task not in self._begun:
                fresh.setdefault(task_id.subtopology, []).append(task)
        ready = [tasks for tasks in fresh.values() if any(task.commit_needed for task in tasks)]
        if not all(task.commit_needed for tasks in ready for task in tasks):
            self._since = now if self._since is None else self._since
            if now - self._since < LONGEST_DELAY_S:
                return True
        for tasks in ready:
            self._begun.update(tasks)
        self._since = None
        return False

    def forget(self) -> None:
        """Note that nothing is due for a while: the next wait starts from zero."""
        self._since = None


@final
class CommitTiming:
    """Decide when the commit timer commits, every `interval` while there is work.

    While there is nothing to commit, the timer rests. The task manager reports when work begins
    again, or comes back from a worker. All times are in seconds, of one monotonic clock.
    """

    def __init__(self, metrics: Metrics, interval: float, *, transactional: bool) -> None:
        self._metrics: Metrics = metrics
        self.interval: float = interval
        self._transactional: bool = transactional
        # Under exactly-once, records that come once per interval would keep the phase in which they
        # began, and each might wait for a whole interval. With a slightly shorter period, commits
        # move towards them until a commit finds nothing and comes right after the next record.
        self._period: float = interval * (0.99 if transactional else 1.0)
        # The time at which the timer ends next.
        self.due: float = 0.0
        self._first_commit = FirstCommit(metrics.tasks, lambda: metrics.touched().values())
        # The time since which there is nothing to commit, and the time of the first work after it.
        self._since: float = 0.0
        self._begun_at: float | None = None

    def next(self, now: float) -> float:
        """Return the seconds until the next check, after a commit that was due."""
        # Leave a slow log a rest between commits.
        return max(self.interval / 2, self.due + self._period - now)

    def after(self, now: float) -> float:
        """Return the seconds until the commit of work that begins at `now`, after a rest.

        The interval has passed since the last commit. Under exactly-once, readers wait for the
        commit, so it comes as soon as the first records have been gathered. Under at-least-once it
        comes as if the timer had gone on.
        """
        if self._transactional:
            self._begun_at = now if self._begun_at is None else self._begun_at
            return min(_GATHER_S, max(0.0, self._begun_at + self.interval - now))
        return -(now - self._since) % self.interval if self.interval else 0.0

    def wait(self, now: float, *, allowed: bool) -> float | None:
        """Return the seconds to wait before the next check; None when a commit is due at `now`."""
        self._metrics.commits_rest = False
        if not allowed:
            # The next tasks come after the rebalance: the wait for all of them starts again.
            self._first_commit.forget()
            return self.interval
        if (seconds := self._wait_for_work(now)) is not None:
            return seconds
        # A start assigns many tasks one after the other. A transaction per task would cost more
        # than a short wait for all of them.
        if self._transactional and self._first_commit.waits(now):
            return CHECK_AGAIN_S
        self.due = max(self.due, now - self.interval / 2)
        return None

    def _wait_for_work(self, now: float) -> float | None:
        nothing = not any(map(_has_work_for, self._metrics.tasks.values()))
        if nothing and not self._metrics.at_work():
            self._metrics.commits_rest, self._since, self._begun_at = True, now, None
            return max(self.interval, _REST_S)
        if (left := self._until_done(now)) is not None:
            self._metrics.commits_rest = True
            return left
        if nothing:
            # Do not pause the workers: their present work is committed soon after it ends.
            if self._transactional:
                self._metrics.commits_rest, self._begun_at = True, now
            return self.interval
        return None

    def _until_done(self, now: float) -> float | None:
        """Return the longest wait for work that has begun after a rest, None for none.

        A commit now would have to leave that work out, because its calls are in flight or a thread
        is at it. The next commit would come an interval later.
        """
        if self._begun_at is None:
            return None
        left = self._begun_at + self.interval - now
        if left <= 0 or any(
            not task.in_flight and (task.commit_needed or task.cached_updates)
            for task in self._metrics.touched().values()
        ):
            self._begun_at = None
            return None
        return left


def _has_work_for(task: Task) -> bool:
    """Return whether a commit by the timer may take a task, or begin to drain it.

    A task that drains asks for its commit by itself, when it is at rest.
    """
    if task.draining.since is not None and not task.drained:
        return False
    return task.commit_needed or task.in_flight > 0 or task.cached_updates > 0
