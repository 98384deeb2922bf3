"""The handover of tasks: its messages, in order."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, final

from actors import AskTimeout
from ks_actors._errors import LogTimeout, TaskTimeout
from ks_actors.lifecycle import component_log, warn_if_slow
from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors import Ask, Ref
    from ks_actors.records import TaskId

# The share of the group's limit for the commit before a rebalance. A member learns of a rebalance
# within a quarter of the limit; if it used up the rest, it would miss the next generation.
_COMMIT_SHARE: Final = 0.5
_log = component_log(__name__)
T = TypeVar("T")


@final
class Handover:
    """Give tasks up, so that other members may have them.

    Each step must finish within `seconds`, the group's limit for a rebalance. Rollbacks have limits
    of their own.
    """

    def __init__(
        self,
        *,
        poller: Ref[m.PollerMessage],
        manager: Ref[m.TaskManagerMessage],
        state: Ref[m.StateManagerMessage],
        committer: Ref[m.CommitterMessage],
        collector: Ref[m.CollectorMessage],
        seconds: float,
    ) -> None:
        self._poller = poller
        self._manager = manager
        self._state = state
        self._committer = committer
        self._collector = collector
        self._seconds = seconds
        # The state offsets of the tasks that are not processed here, as of the last step.
        self.offsets: Mapping[TaskId, int] = {}
        # The number of assignments followed so far. The group may have sent a newer assignment that
        # this member has not begun. The generation cannot tell assignments apart: a static member
        # that returns in time gets the same generation again, and a recreated group counts
        # generations from 1.
        self.assignments: int = 0

    async def before_rebalance(self) -> None:
        """Commit the finished work before the group moves tasks to other members.

        Wait for the commit for half of the limit: the tasks that move are committed again later.
        """
        try:
            # The group may wait for other members for long, so commits continue meanwhile. A commit
            # that comes after the group has moved on is repeated.
            await self._wait(
                "a rebalance",
                "the commit before it",
                self._committer.ask(m.Commit, "the group rebalances", rebalancing=True),
                _COMMIT_SHARE,
            )
        except Exception as error:  # noqa: BLE001 - rolled back: the next owner starts there
            _log.warning("the commit before a rebalance failed: %s", error)
        await self._ask_offsets()

    async def give_up(
        self, tasks: frozenset[TaskId], standbys: frozenset[TaskId], number: int
    ) -> frozenset[TaskId]:
        """Commit tasks and give back the tasks that are at rest.

        Return the other tasks, which take no new work until they are at rest. The stores of tasks
        in `standbys` stay open. Assignments up to `number` are void. When the commit fails, all
        tasks are given back.
        """
        who = "the handover of " + ", ".join(map(str, sorted(tasks)))
        # Stop fetching first: a restarted task must not get records that were fetched for it
        # before.
        await self._wait(who, "fetching to stop", self._poller.ask(m.ForgetTasks, tasks))
        # From here on the tasks write nothing more: a later commit would not include them.
        await self._wait(
            who, "workers to return the tasks", self._manager.ask(m.SuspendTasks, tasks, number)
        )
        # If the commit fails, no task is busy, because the work of the tasks is rolled back.
        busy: frozenset[TaskId] = frozenset()
        try:
            await self._commit(who)
            busy = await self._wait(
                who, "tasks to come to rest", self._manager.ask(m.AskBusy, tasks)
            )
        except Exception as error:  # noqa: BLE001 - rolled back: the next owner starts there
            _log.warning("the commit before tasks move to another member failed: %s", error)
        # Busy tasks stay suspended and are given up later, so that one slow call does not delay
        # other tasks.
        tasks -= busy
        try:
            # Processors close before their stores, because a user's `close` may still use the
            # stores.
            await self._wait(who, "workers to return the tasks", self._manager.ask(m.Close, tasks))
            if tasks & standbys:
                await self._wait(
                    who, "stores that stay open", self._state.ask(m.Recycle, tasks & standbys)
                )
            await self.close(tasks - standbys)
        finally:
            # Allow commits even after an error: the remaining tasks must continue to commit.
            self._committer.tell(m.AllowCommits())
        return busy

    async def _commit(self, who: str) -> None:
        """Commit, and let no other commit come until the tasks are given up.

        A commit that takes too long is not rolled back yet: it would still write and commit for
        tasks that others have by then. So give up its output, and wait for its end.
        """
        moving, what = "tasks are moving to another member", "the commit before it"
        try:
            await self._wait(who, what, self._committer.ask(m.Commit, moving, hold=True))
        except AskTimeout as late:
            cause = LogTimeout(f"{who} waited {late.seconds:g} s for {what}, so it is rolled back")
            self._collector.tell(m.Abandon(cause))
            ending = self._committer.ask(m.Commit, moving, hold=True).within(inf)
            await warn_if_slow(who, "the end of that commit", ending)

    async def until_one_rests(self, tasks: frozenset[TaskId]) -> frozenset[TaskId] | None:
        """Wait until one of the tasks is at rest and committed.

        Return the tasks that are still busy, or None when the commit fails.
        """
        try:
            asked = self._committer.ask(
                m.Commit, "tasks are moving to another member", due_only=True, one_of=tasks
            )
            await self._wait(
                "the handover of " + ", ".join(map(str, sorted(tasks))),
                "calls in flight to end",
                asked,
            )
            return await self._wait(
                "a handover", "tasks to come to rest", self._manager.ask(m.AskBusy, tasks)
            )
        except Exception as error:  # noqa: BLE001 - rolled back: the next owner starts there
            _log.debug("the commit before tasks move to another member failed: %s", error)
            return None

    async def close(self, tasks: frozenset[TaskId]) -> None:
        """Close the stores of tasks; their committed state is then on disk."""
        await self._wait(
            "a handover", "stores to be closed", self._state.ask(m.CloseStores, tasks, clean=True)
        )
        await self._ask_offsets()

    async def lose_all(self, cause: Exception) -> bool:
        """Drop all tasks as they are; return whether a commit has succeeded since the last time.

        Standbys stay, because they conflict with no other member. Raises TaskTimeout when a
        processor does not return in time.
        """
        who = "an instance that has lost its tasks"
        await self._wait(who, "fetching to stop", self._poller.ask(m.ForgetTasks, None))
        try:
            await self._wait(
                who,
                "workers to return the tasks",
                self._manager.ask(m.SuspendTasks, None, self.assignments),
            )
        except AskTimeout as late:
            raise TaskTimeout(
                f"a processor has not returned {self._seconds:g} s after its task was lost "
                f"({type(cause).__name__}). Find the function that blocks"
            ) from late
        # The group no longer waits for this member, and the end of a transaction may take longer.
        rollback = self._committer.ask(m.Rollback, None, cause, give_up=True).within(inf)
        made_progress = await warn_if_slow(who, "uncommitted changes to be dropped", rollback)
        # Close the tasks only after the rollback, which needs them to discard their uncommitted
        # state.
        await self._wait(who, "workers to return the tasks", self._manager.ask(m.Close, None))
        await self._wait(
            who,
            "stores to be closed",
            self._state.ask(m.CloseStores, None, clean=False, standbys=False),
        )
        await self._ask_offsets()
        return made_progress

    async def _ask_offsets(self) -> None:
        self.offsets = await self._wait(
            "the progress of restoring", "the offsets of the state", self._state.ask(m.AskOffsets)
        )

    async def _wait(self, who: str, what: str, answer: Ask[T], share: float = 1.0) -> T:
        return await warn_if_slow(who, what, answer.within(share * self._seconds))
