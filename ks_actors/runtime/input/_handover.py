"""Tasks that go: what is told to whom, in which order."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar, final

from actors import AskTimeout
from ks_actors._errors import TaskTimeout
from ks_actors.lifecycle import warn_if_slow
from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors import Ask, Ref
    from ks_actors.records import TaskId

_log = logging.getLogger("ks_actors")
T = TypeVar("T")


@final
class Handover:
    """Give tasks up, so that others may have them. Each step has to be over within `seconds`."""

    def __init__(
        self,
        *,
        manager: Ref[m.TaskManagerMessage],
        state: Ref[m.StateManagerMessage],
        committer: Ref[m.CommitterMessage],
        seconds: float,
    ) -> None:
        self._manager = manager
        self._state = state
        self._committer = committer
        self._seconds = seconds
        # How far the state is of the tasks that are not processed here, as of the last step.
        self.offsets: Mapping[TaskId, int] = {}
        # How many have been followed: the group may have told of a newer one, whose tasks are still to begin. Its generation does not tell them
        # apart: a static member that comes back in time gets the same one again, and a group that is begun anew counts from 1.
        self.assignments: int = 0

    async def before_rebalance(self) -> None:
        """Commit what is done: the group is going to give tasks to others."""
        try:
            # The group may wait for others for long: commits go on meanwhile. One that comes when it has moved on is done again.
            await self._wait("a rebalance", "the commit before it", self._committer.ask(m.Commit, "the group rebalances", rebalancing=True))
        except Exception as error:  # noqa: BLE001 - it was rolled back, and whoever gets the tasks starts there
            _log.warning("the commit before a rebalance failed: %s", error)
        await self._look()

    async def give_up(self, tasks: frozenset[TaskId], standbys: frozenset[TaskId], number: int) -> frozenset[TaskId]:
        """Commit tasks and give back those that are at rest; return the others, which take nothing new until they are, too.

        Of those that are `standbys` from now on the stores stay open. Assignments up to `number` are void. When the commit fails all are given back.
        """
        # From here on they write nothing more: it would be committed without them.
        who = "the handover of " + ", ".join(map(str, sorted(tasks)))
        await self._wait(who, "workers to be done with them", self._manager.ask(m.SuspendTasks, tasks, number))
        busy: frozenset[TaskId] = frozenset()
        try:
            await self._wait(who, "the commit before it", self._committer.ask(m.Commit, "tasks move to another member", hold=True))
            busy = await self._wait(who, "tasks to come to rest", self._manager.ask(m.AskBusy, tasks))
        except Exception as error:  # noqa: BLE001 - it was rolled back, and whoever gets the tasks starts there
            _log.warning("the commit of tasks that move to another member failed: %s", error)
        tasks -= busy
        try:
            await self._wait(who, "workers to be done with them", self._manager.ask(m.Close, tasks))
            if tasks & standbys:
                await self._wait(who, "stores that stay open", self._state.ask(m.Recycle, tasks & standbys))
            await self.close(tasks - standbys)
        finally:
            self._committer.tell(m.DeferCommits(held=False))
        return busy

    async def until_one_rests(self, tasks: frozenset[TaskId]) -> frozenset[TaskId] | None:
        """Wait until one of the tasks is at rest, and committed; return those that are not, None when that has failed."""
        try:
            asked = self._committer.ask(m.Commit, "tasks are to move to another member", due_only=True, one_of=tasks)
            await self._wait("the handover of " + ", ".join(map(str, sorted(tasks))), "calls in flight to end", asked)
            return await self._wait("a handover", "tasks to come to rest", self._manager.ask(m.AskBusy, tasks))
        except Exception as error:  # noqa: BLE001 - it was rolled back, and whoever gets the tasks starts there
            _log.debug("a commit of tasks that are to move to another member failed: %s", error)
            return None

    async def close(self, tasks: frozenset[TaskId]) -> None:
        """Close the stores of tasks; what is committed is on disk then."""
        await self._wait("a handover", "stores to be closed", self._state.ask(m.CloseStores, tasks, clean=True))
        await self._look()

    async def lose_all(self, cause: Exception) -> bool:
        """Drop all tasks as they are; return whether anything was committed since the last time. Standbys stay: they have nobody's tasks."""
        who = "an instance that has lost its tasks"
        try:
            await self._wait(who, "workers to be done with them", self._manager.ask(m.SuspendTasks, None, self.assignments))
        except AskTimeout as late:
            raise TaskTimeout(f"a processor does not return, {self._seconds:g} s after its task was lost: {cause}") from late
        fruitful = await self._wait(who, "what is not committed to be dropped", self._committer.ask(m.Rollback, None, cause, give_up=True))
        await self._wait(who, "workers to be done with them", self._manager.ask(m.Close, None))
        await self._wait(who, "stores to be closed", self._state.ask(m.CloseStores, None, clean=False, standbys=False))
        await self._look()
        return fruitful

    async def _look(self) -> None:
        self.offsets = await self._wait("a handover", "how far the state is", self._state.ask(m.AskOffsets))

    async def _wait(self, who: str, what: str, answer: Ask[T]) -> T:
        return await warn_if_slow(who, what, answer.within(self._seconds))
