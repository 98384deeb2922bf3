"""Tasks that move to another member but still have work in hand here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors import Context
    from ks_actors.log import Membership
    from ks_actors.records import TaskId
    from ks_actors.runtime.membership._group_view import GroupView
    from ks_actors.runtime.membership._handover import Handover

_SHARE: Final = 0.25
_AGAIN_S: Final = 0.1
HANDED_OVER: Final = "tasks that this instance gave up"
OUTDATED: Final = "return: the assignment no longer fits this static member"


@final
class DepartingTasks:
    """Give each task up when it is at rest, without waiting for the calls of other tasks.

    The group is told that the tasks in `tasks` are here, so it assigns them to no other member.
    After some tasks have been given up, the group is asked for an assignment. To limit these
    requests, a task at rest waits for other tasks, for a quarter of the time that calls have taken
    so far.
    """

    def __init__(
        self,
        handover: Handover,
        membership: Membership,
        group: GroupView,
        *,
        here: Callable[[], Iterable[TaskId]],
    ) -> None:
        self.tasks: frozenset[TaskId] = frozenset()
        # Whether the group is between two generations. Then no tasks are given up, as commits may
        # be refused.
        self.between: bool = False
        self._due: bool = False
        self._watched: frozenset[TaskId] = frozenset()
        self._handover = handover
        self._membership = membership
        self._group = group
        self._here = here
        self._since: float = 0.0
        # The reasons of the requests since the last assignment, once each.
        self._reasons: dict[str, None] = {}

    @property
    def may_go(self) -> bool:
        """Whether some tasks are at rest and may be given up."""
        return self._due and bool(self.tasks) and not self.between

    async def give_up(
        self, gone: frozenset[TaskId], standbys: frozenset[TaskId], number: int
    ) -> frozenset[TaskId]:
        """Give up the tasks of `gone` that are at rest, and keep the others in `tasks`.

        Return the tasks that were given up. See Handover.give_up.
        """
        if not self.tasks:
            self._since = asyncio.get_running_loop().time()
        # Add the tasks before the wait: a rebalance in between must still report them as being
        # here.
        self.tasks |= gone
        left = await self._handover.give_up(gone, standbys, number)
        self.tasks -= gone - left
        return gone - left

    async def part(self, standbys: frozenset[TaskId]) -> None:
        """Give up the tasks that are at rest by now."""
        self._due = False
        if await self.give_up(self.tasks, standbys, self._handover.assignments - 1):
            self.ask(HANDED_OVER)

    def take_reasons(self) -> tuple[str, ...]:
        """Return the reasons why this member has asked for an assignment, and forget them."""
        reasons, self._reasons = self._reasons, {}
        return tuple(reasons)

    def ask(self, reason: str) -> None:
        """Ask the group for an assignment, for a reason: say, departed tasks for other members."""
        if reason:
            self._reasons[reason] = None
        self._membership.rejoin(self.user_data(), self._group.topics)

    def user_data(self) -> bytes:
        """Return the user data for the group: all tasks that are here."""
        return self._group.user_data(
            self.tasks.union(self._here()),
            self._membership.group.generation,
            self._handover.offsets,
        )

    def watch(self, member: Context[m.MemberMessage]) -> None:
        """Send TasksAtRest to the member when tasks are at rest.

        Does nothing when all tasks are watched already.
        """
        if not self.tasks <= self._watched:
            # Replace the watch, as each watch asks the committer for a commit.
            self._watched = self.tasks
            member.pipe(self._rest(), _at_rest, _at_rest)

    def note_at_rest(self) -> None:
        """Note that some tasks are at rest and may be given up."""
        self._watched, self._due = frozenset(), True

    async def _rest(self) -> None:
        busy = await self._handover.until_one_rests(self.tasks)
        if busy is None:
            # The commit failed and is rolled back; ask again after a moment, not in a loop.
            await asyncio.sleep(_AGAIN_S)
        elif busy:
            await asyncio.sleep(_SHARE * (asyncio.get_running_loop().time() - self._since))

    def forget(self) -> None:
        """Forget all tasks: they are lost or closed."""
        self.tasks, self._watched, self._due = frozenset(), frozenset(), False


def _at_rest(_: object) -> m.MemberMessage:
    return m.TasksAtRest()
