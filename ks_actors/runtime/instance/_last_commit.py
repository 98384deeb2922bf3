"""The last commit of an app that closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import IllegalGeneration, TaskMigrated, TransactionAborted
from ks_actors.lifecycle import ROLLED_BACK, component_log, try_step, with_names
from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence

    from actors import Ref
    from ks_actors.lifecycle import Closing
    from ks_actors.records import TaskId
    from ks_actors.runtime.shared import Metrics

_ANY_ASSIGNMENT: Final = 1 << 31
_log = component_log(__name__)


@final
class LastCommit:
    """The commit of all finished work within the time that the app's `closing` leaves for it.

    `suspending` and `committing` bound the two steps, in seconds.
    """

    def __init__(
        self,
        closing: Closing,
        metrics: Metrics,
        manager: Ref[m.TaskManagerMessage],
        committer: Ref[m.CommitterMessage],
        *,
        suspending: float,
        committing: float,
        exact: bool,
    ) -> None:
        self._closing: Closing = closing
        self._metrics: Metrics = metrics
        self._manager: Ref[m.TaskManagerMessage] = manager
        self._committer: Ref[m.CommitterMessage] = committer
        self._suspending: float = suspending
        self._committing: float = committing
        self._exact: bool = exact
        # Whether tasks were not returned: a worker died unnoticed, or its function does not return.
        self.workers_missing: bool = False

    async def given_up(self, member: Ref[m.MemberMessage], errors: list[Exception]) -> bool:
        """Commit; return whether that took too long, which is logged as a warning.

        Append other failures to `errors`.
        """
        failed, rolled_back = list[Exception](), self._metrics.rolled_back
        uncommitted = self._uncommitted()
        # Suspend tasks first: a later slice would write output that no commit covers. The commit
        # itself reports functions that do not return.
        failures = list[Exception]()
        await try_step(
            self.in_time(
                self._manager.ask(m.SuspendTasks, None, _ANY_ASSIGNMENT).within(self._suspending)
            ),
            failures,
        )
        self.workers_missing = bool(failures)
        member.tell(m.AppCloses())
        await try_step(
            self.in_time(
                self._committer.ask(m.Commit, "the app closes", closing=True).within(
                    self._committing
                )
            ),
            failed,
        )
        if self._closing.too_late_to_commit and (
            failed or self._metrics.rolled_back != rolled_back
        ):
            self._tell(uncommitted, failed)
            return True
        # Ignore migrated tasks and aborted transactions: the next owner redoes the work, and the
        # committer has logged a warning.
        errors += [
            error
            for error in failed
            if not isinstance(error, TaskMigrated | IllegalGeneration | TransactionAborted)
        ]
        return False

    async def in_time(self, answer: Awaitable[object]) -> None:
        """Await an answer, at most as long as the last commit and its rollback may take.

        Raises TimeoutError.
        """
        async with self._closing.timeout_at(step=ROLLED_BACK):
            await answer

    def _uncommitted(self) -> Sequence[TaskId]:
        """Return the tasks with uncommitted work, and the tasks in a running commit."""
        metrics = self._metrics
        return sorted(
            task
            for task, at in metrics.tasks.items()
            if metrics.committing or at.commit_needed or at.in_flight or at.cached_updates
        )

    def _tell(self, tasks: Collection[TaskId], errors: Sequence[Exception]) -> None:
        fate = (
            "Their transaction is aborted, if need be by the broker after its timeout, and the "
            "next owner of the tasks processes their records again"
            if self._exact
            else "The next owner of the tasks processes records since the last commit again, so "
            "their output is written twice"
        )
        reason = f": {errors[0]}" if any(map(str, errors)) else ""
        _log.warning(
            "the app closes without a last commit of %s: it did not complete in the %g s that "
            "closing may take (close_timeout_ms)%s. %s",
            with_names("tasks", tasks) if tasks else "its tasks",
            self._closing.seconds, reason, fate,
        )  # fmt: skip
