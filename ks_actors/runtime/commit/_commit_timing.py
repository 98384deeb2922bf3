"""The times of the commits that no actor asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.records import TaskId
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import Task

# The longest time (s) between two checks while there is nothing to commit.
_REST_S: Final = 1.0
# Records that arrive together come in several batches: a transaction per batch would cost more.
_GATHER_S: Final = 0.005

LONGEST_DELAY_S: Final = 0.25
"""The longest delay (s) of a first commit: some partitions may have no records."""
CHECK_AGAIN_S: Final = 0.02


@final
class FirstCommit:
    """Make the first commit of tasks that begin together include all of them.

    Tasks are handed over and fetched one after the other. A commit that comes due in between would
    include only the first task's records. The records of all other tasks would wait for that commit
    and for the next one. After an outage, when answers are slow, that doubles the wait. Tasks of
    another subtopology are not waited for: their input may be the very output that this commit
    makes visible. `touched` returns the tasks that may have something to commit. All other tasks
    are scanned only if one of the touched tasks has just begun.
    """

    def __init__(self, tasks: Mapping[TaskId, Task], touched: Callable[[], Iterable[Task]]) -> None:
        self._tasks: Mapping[TaskId, Task] = tasks
        self._touched = touched
        self._begun: WeakSet[Task] = WeakSet()
        self._since: float | None = None

    def waits(self, now: float) -> bool:
        """Return whether a commit that is due at `now` (seconds) should wait.

        If so, call this method again until the commit need not wait.
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

    While there is nothing to commit, the timer is idle. The task manager reports when work begins
    again, or comes back from a worker. All times are in seconds, of one monotonic clock.
    """

    def __init__(self, metrics: Metrics, interval: float, *, transactional: bool) -> None:
        self._metrics: Metrics = metrics
        self.interval: float = interval
        self._transactional: bool = transactional
        # Under exactly-once, records that come once per interval would always come at the same time
        # before a commit, perhaps a whole interval. With a slightly shorter period, each commit
        # comes closer to its record, until a commit finds nothing and follows right after the next
        # record.
        self._period: float = interval * (0.99 if transactional else 1.0)
        # The time at which the timer ends next.
        self.due: float = 0.0
        # Whether there was nothing to commit, and no work under way, at the last `wait`.
        self.idle = False
        self._first_commit = FirstCommit(metrics.tasks, lambda: metrics.touched().values())
        # The time since which there is nothing to commit, and the time of the first work after it.
        self._since: float = 0.0
        self._begun_at: float | None = None

    def next(self, now: float) -> float:
        """Return the seconds until the next check, after a commit that was due."""
        # Leave a pause between commits for a slow log.
        return max(self.interval / 2, self.due + self._period - now)

    def after(self, now: float) -> float:
        """Return the seconds until the next commit when work arrives at `now` after an idle period.

        Under exactly-once, readers wait for the commit, so it comes as soon as the first records
        have been gathered. Under at-least-once it comes at the next tick, as if the timer had kept
        running.
        """
        if self._transactional:
            self._begun_at = now if self._begun_at is None else self._begun_at
            return min(_GATHER_S, max(0.0, self._begun_at + self.interval - now))
        return -(now - self._since) % self.interval if self.interval else 0.0

    def wait(self, now: float, *, allowed: bool) -> float | None:
        """Return the seconds to wait before the next check; None when a commit is due at `now`."""
        self._metrics.commits_rest = self.idle = False
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
        self.idle = nothing and not self._metrics.at_work()
        if self.idle:
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
        """Return the longest wait (s) for work begun after an idle period; None for no wait.

        A commit now would have to leave that work out, because its calls are in flight or a thread
        processes it. The work would then wait an interval for the next commit.
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
