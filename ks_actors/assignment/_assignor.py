"""The leader's part in a rebalance."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, final

from ks_actors._errors import KsActorsError, StreamsError
from ks_actors._task_id import TaskId
from ks_actors.assignment._grouper import check_copartitioning, group_partitions
from ks_actors.assignment._info import decode_member, encode_problem, encode_tasks
from ks_actors.assignment._standbys import assign_standbys
from ks_actors.assignment._sticky import assign_sticky

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ks_actors.assignment._grouper import PartitionGrouper
    from ks_actors.assignment._sticky import AssignTasks, Warm
    from ks_actors.log._types import MemberAssignment, MemberInfo

_log = logging.getLogger("ks_actors")
_ALL = (1 << 63) - 1


@final
class TaskAssignor:
    """Assign tasks to the members of a group; an `Assignor` of the log's port, called on the leader.

    `subtopologies` are the source topics by subtopology, `copartition_groups` those that are joined, all by the names that they have in the log.

    Cooperative in effect: `assign` says who should have which task, but one that another member has not let go of is given to nobody for now. Its
    owner sees that it is gone, closes it and rejoins, and the rebalance that follows gives it to whom it was meant for. Tasks that stay are never
    interrupted. That needs members that tell what they own at each rebalance, not only when they join.

    Tasks of the `stateful` subtopologies also get `replicas` standbys, on members that do not have them. Who has to give such a task up may keep its
    state as a standby, and who is to have it later keeps the state up to date until then.

    When tasks cannot be assigned (topics are missing or not copartitioned, a member's data cannot be read), every member is told why, and gets none.
    """

    def __init__(
        self,
        subtopologies: Mapping[int, Collection[str]],
        copartition_groups: Collection[Collection[str]] = (),
        *,
        grouper: PartitionGrouper = group_partitions,
        assign: AssignTasks = assign_sticky,
        replicas: int = 0,
        stateful: Collection[int] = (),
    ) -> None:
        self._subtopologies: Mapping[int, Collection[str]] = subtopologies
        self._copartition_groups: Collection[Collection[str]] = copartition_groups
        self._grouper: PartitionGrouper = grouper
        self._assign: AssignTasks = assign
        self._replicas: int = replicas
        self._stateful: frozenset[int] = frozenset(stateful)

    def __call__(self, members: Sequence[MemberInfo], partitions: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        """Return the assignment of each member, from what they told and the partition counts of the topics."""
        try:
            return self._assigned(members, partitions)
        except KsActorsError as error:
            _log.error("no tasks are assigned: %s", error)
            return {member.member_id: encode_problem(error) for member in members}

    def _assigned(self, members: Sequence[MemberInfo], partitions: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        check_copartitioning(self._copartition_groups, partitions)
        tasks = self._grouper(self._subtopologies, partitions)
        owners = _owners(members, tasks)
        owned = {member.member_id: [task for task, owner in owners.items() if owner == member.member_id] for member in members}
        warm = _warm(members, owners, tasks)
        wanted = self._assign(owned, tasks.keys(), warm)
        _check(wanted, owned, tasks.keys())
        processes = {decode_member(member.user_data).process_id for member in members} - {""}
        free = {member: [task for task in wanted.get(member, ()) if owners.get(task, member) == member] for member in owned}
        standbys = self._standbys({member: wanted.get(member, ()) for member in owned}, free, warm)
        return {member: encode_tasks({task: tasks[task] for task in free[member]}, processes, standbys[member]) for member in owned}

    def _standbys(self, wanted: Mapping[str, Collection[TaskId]], free: Mapping[str, Collection[TaskId]], warm: Warm) -> dict[str, set[TaskId]]:
        if not self._replicas:
            return {member: set() for member in wanted}
        stateful = {task for each in wanted.values() for task in each if task.subtopology in self._stateful}
        found = assign_standbys(wanted, stateful, self._replicas, warm)
        # A task that its next owner has to wait for is a standby there meanwhile.
        return {member: {*found[member], *stateful.intersection(wanted[member]).difference(free[member])} for member in wanted}


def _owners(members: Sequence[MemberInfo], tasks: Collection[TaskId]) -> dict[TaskId, str]:
    """Return who has which task. When two say so, the one with the older generation has missed that it is gone."""
    claims: dict[TaskId, tuple[int, str]] = {}
    for member in sorted(members, key=lambda member: member.member_id):
        state = decode_member(member.user_data)
        for task in (TaskId(*each) for each in state.tasks):
            if task in tasks and (task not in claims or state.generation > claims[task][0]):
                claims[task] = state.generation, member.member_id
    return {task: owner for task, (_, owner) in claims.items()}


def _warm(members: Sequence[MemberInfo], owners: Mapping[TaskId, str], tasks: Collection[TaskId]) -> dict[str, dict[TaskId, int]]:
    """Return what state of which tasks members have; who owns a task has all of it."""
    found: dict[str, dict[TaskId, int]] = {}
    for member in members:
        state = decode_member(member.user_data)
        held = {TaskId(subtopology, number): offset for subtopology, number, offset in state.offsets}
        held.update((task, _ALL) for task in (TaskId(*each) for each in state.tasks) if owners.get(task) == member.member_id)
        found[member.member_id] = {task: offset for task, offset in held.items() if task in tasks}
    return found


def _check(wanted: Mapping[str, Collection[TaskId]], members: Collection[str], tasks: Collection[TaskId]) -> None:
    """Raise StreamsError unless each task goes to exactly one of the members."""
    given = Counter(task for each in wanted.values() for task in each)
    wrong = [
        *(f"{task} goes to {given[task]} members" for task in sorted(given.keys() | set(tasks)) if given[task] != 1 and task in tasks),
        *(f"{task} is no task" for task in sorted(given.keys() - set(tasks))),
        *(f"{member} is no member" for member in sorted(wanted.keys() - set(members))),
    ]
    if wrong:
        raise StreamsError(f"the task assignor has to give each task to one member: {', '.join(wrong)}")
