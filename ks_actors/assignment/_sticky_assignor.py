"""The assignor of apps without an assignor of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors._errors import StreamsError
from ks_actors.assignment._facts import MemberTasks
from ks_actors.assignment._standbys import assign_standbys
from ks_actors.assignment._sticky import assign_sticky

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.assignment._facts import GroupState, MemberFacts, TaskFacts
    from ks_actors.assignment._sticky import Warm
    from ks_actors.records import TaskId

_ALL = (1 << 63) - 1


@final
class StickyTaskAssignor:
    """Assign as many tasks to each member as to the others, with the fewest moves.

    This is the assignor of apps without another one. Unowned tasks go to members that have their
    state. Standbys stay where most of the state is, and are as evenly spread as tasks.

    `may` is called with a task and a member, and returns whether the member may have the task,
    active or as a standby (default: any member may). Tasks that the same members may have are
    spread evenly over these members.
    """

    def __init__(self, may: Callable[[TaskId, MemberFacts], bool] | None = None) -> None:
        self._may: Callable[[TaskId, MemberFacts], bool] | None = may

    def assign(self, group: GroupState, /) -> dict[str, MemberTasks]:
        """Return the tasks and standbys of each member.

        Raises StreamsError for a task that no member may have.
        """
        active: dict[str, list[TaskId]] = {member: [] for member in group.members}
        standbys: dict[str, list[TaskId]] = {member: [] for member in group.members}
        for members, tasks in self._by_members(group):
            # With all of a task's state, no records are lacking.
            state: Warm = {
                member: {
                    task: _ALL - lag
                    for task, lag in group.members[member].lags.items()
                    if task in tasks
                }
                for member in members
            }
            owned = {member: group.members[member].active & tasks.keys() for member in members}
            found = assign_sticky(owned, list(tasks), state)
            for member, more in found.items():
                active[member] += more
            if group.standby_replicas:
                stateful = [task for task, facts in tasks.items() if facts.stateful]
                hosts = {member: group.members[member].host or member for member in members}
                standing = assign_standbys(found, stateful, group.standby_replicas, state, hosts)
                for member, more in standing.items():
                    standbys[member] += more
        return {
            member: MemberTasks(frozenset(active[member]), frozenset(standbys[member]))
            for member in group.members
        }

    def _by_members(self, group: GroupState) -> Iterator[tuple[list[str], dict[TaskId, TaskFacts]]]:
        """Yield groups of tasks with the members that may have them.

        There is one group when all members run the same version, and may have all tasks.
        """
        groups: dict[tuple[str, ...], dict[TaskId, TaskFacts]] = {}
        for task, facts in group.tasks.items():
            able = tuple(
                sorted(
                    member
                    for member in facts.members
                    if self._may is None or self._may(task, group.members[member])
                )
            )
            if not able:
                raise StreamsError("no member of the group may have this task", task=task)
            groups.setdefault(able, {})[task] = facts
        for members, tasks in sorted(groups.items(), key=lambda each: (len(each[0]), each[0])):
            yield list(members), tasks
