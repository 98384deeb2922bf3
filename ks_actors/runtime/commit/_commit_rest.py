"""The rest of the commit timer while there is nothing to commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import Task

# The longest rest, whether work begins or not.
_REST_S: Final = 1.0
# Records of one moment come in several batches: one transaction for each would cost more.
_GATHER_S: Final = 0.005


@final
class CommitRest:
    """Let the commit timer rest while there is nothing to commit.

    The task manager tells when work begins after that, or comes back from a worker. All times are
    in seconds, of one monotonic clock.
    """

    def __init__(self, metrics: Metrics, interval: float, *, transactional: bool) -> None:
        self._metrics: Metrics = metrics
        self._interval: float = interval
        self._transactional: bool = transactional
        # The times since there was nothing to commit, and of the first work after that.
        self._since: float = 0.0
        self._begun_at: float | None = None

    def end(self) -> None:
        """Ask for no more news of work."""
        self._metrics.commits_rest = False

    def after(self, now: float) -> float:
        """Return the seconds until the commit of work that begins at `now`, after a rest.

        The interval has passed since the last commit. Exactly once, readers wait for the commit, so
        it comes as soon as the first records have been gathered. At least once it comes as if the
        timer had gone on.
        """
        if self._transactional:
            self._begun_at = now if self._begun_at is None else self._begun_at
            return min(_GATHER_S, max(0.0, self._begun_at + self._interval - now))
        return -(now - self._since) % self._interval if self._interval else 0.0

    def wait(self, now: float) -> float | None:
        """Return the seconds to wait before the next look; None when a commit is due at `now`."""
        nothing = not any(map(_has_work_for, self._metrics.tasks.values()))
        if nothing and not self._metrics.at_work():
            self._metrics.commits_rest, self._since, self._begun_at = True, now, None
            return max(self._interval, _REST_S)
        if (left := self._until_done(now)) is not None:
            self._metrics.commits_rest = True
            return left
        if nothing:
            # Do not pause the workers: what they are at is committed soon after it is done.
            if self._transactional:
                self._metrics.commits_rest, self._begun_at = True, now
            return self._interval
        return None

    def _until_done(self, now: float) -> float | None:
        """Return the longest wait for work that has begun after a rest, None for none.

        A commit would have to leave it out, as its calls are in flight or a thread is at it, and
        the next one would come an interval later.
        """
        if self._begun_at is None:
            return None
        left = self._begun_at + self._interval - now
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
