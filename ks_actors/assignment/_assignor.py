"""The leader's part in a rebalance."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Self, final

from ks_actors._errors import KsActorsError, StreamsError
from ks_actors.assignment._grouper import check_copartitioning, group_partitions
from ks_actors.assignment._info import TopologyInfo, decode_member, encode_problem, encode_tasks
from ks_actors.assignment._standbys import assign_standbys
from ks_actors.assignment._sticky import assign_sticky
from ks_actors.assignment._versions import admit
from ks_actors.records import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ks_actors.assignment._grouper import PartitionGrouper, Tasks
    from ks_actors.assignment._info import MemberState
    from ks_actors.assignment._sticky import AssignTasks, Warm
    from ks_actors.log import MemberAssignment, MemberInfo

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

    Members may run different versions of the topology, whoever leads: each tells its own, and gets only tasks that it has, with the partitions that
    it reads. A newcomer whose version cannot run beside the others' is told so, and gets none. See `admit`.

    `check` is asked with the partition counts of all topics that are read, and raises when these do not fit what else the leader knows.

    When tasks cannot be assigned (topics are missing or not copartitioned, a member's data cannot be read), every member is told why, and gets none;
    when that is so for some of the versions, their members.
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
        check: Callable[[Mapping[str, int]], None] | None = None,
    ) -> None:
        self._own: TopologyInfo = TopologyInfo.of(subtopologies, copartition_groups, stateful)
        self._grouper: PartitionGrouper = grouper
        self._assign: AssignTasks = assign
        self._replicas: int = replicas
        self._check: Callable[[Mapping[str, int]], None] | None = check

    @classmethod
    def of(cls, topology: TopologyInfo, *, replicas: int = 0, check: Callable[[Mapping[str, int]], None] | None = None) -> Self:
        """Return the assignor of a topology."""
        return cls(topology.topics, topology.copartitioned, replicas=replicas, stateful=topology.stateful, check=check)

    def __call__(self, members: Sequence[MemberInfo], partitions: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        """Return the assignment of each member, from what they told and the partition counts of the topics."""
        try:
            return self._assigned(members, partitions)
        except KsActorsError as error:
            _log.error("no tasks are assigned: %s", error)
            return {member.member_id: encode_problem(error) for member in members}

    def _assigned(self, members: Sequence[MemberInfo], partitions: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        states = {member.member_id: decode_member(member.user_data) for member in members}
        versions = {member: state.topology or self._own for member, state in states.items()}
        problems: dict[str, KsActorsError] = {**admit(versions, states)}
        plans: dict[TopologyInfo, Tasks] = {}
        for member, topology in versions.items():
            if member not in problems and topology not in plans:
                try:
                    plans[topology] = self._tasks(topology, partitions)
                except KsActorsError as error:
                    problems.update(dict.fromkeys((each for each, other in versions.items() if other == topology), error))
        if not plans:
            raise next(iter(problems.values()))
        if self._check is not None:
            self._check(partitions)
        for member, problem in problems.items():
            _log.error("no tasks are assigned to %s: %s", member, problem)
        given = self._given({member: plans[topology] for member, topology in versions.items() if member not in problems}, states, versions)
        return {**{member: encode_problem(problem) for member, problem in problems.items()}, **given}

    def _tasks(self, topology: TopologyInfo, partitions: Mapping[str, int]) -> Tasks:
        check_copartitioning(topology.copartitioned, partitions)
        # A topic that a pattern had found may be gone: its member will notice.
        gone = {topic for topic in topology.matched if not partitions.get(topic)}
        return self._grouper({number: [topic for topic in topics if topic not in gone] for number, topics in topology.topics.items()}, partitions)

    def _given(
        self, tasks: Mapping[str, Tasks], states: Mapping[str, MemberState], versions: Mapping[str, TopologyInfo]
    ) -> dict[str, MemberAssignment]:
        """Return the assignments of members, of which each may have its `tasks`."""
        known = {task for each in tasks.values() for task in each}
        owners = _owners(states, known)
        owned = {member: [task for task, owner in owners.items() if owner == member] for member in tasks}
        warm = _warm({member: states[member] for member in tasks}, owners, known)
        wanted: dict[str, list[TaskId]] = {member: [] for member in tasks}
        standbys: dict[str, set[TaskId]] = {member: set() for member in tasks}
        for able, some in _by_members(tasks):
            mine = {member: [task for task in owned[member] if task in some] for member in able}
            state = {member: {task: offset for task, offset in warm[member].items() if task in some} for member in able}
            found = self._assign(mine, some, state)
            _check(found, mine, some)
            for member, more in found.items():
                wanted[member] += more
            free = {member: [task for task in found.get(member, ()) if owners.get(task, member) == member] for member in able}
            stateful = {task for task in some if any(task.subtopology in versions[member].stateful for member in able)}
            for member, standing in self._standbys({member: found.get(member, ()) for member in able}, free, stateful, state).items():
                standbys[member] |= {task for task in standing if task.subtopology in versions[member].stateful}
        processes = {state.process_id for state in states.values()} - {""}
        # One that is left to its owner, who cannot have it any more, or not yet, is in nobody's hands for now.
        free = {member: [task for task in wanted[member] if owners.get(task, member) == member] for member in tasks}
        return {member: encode_tasks({task: tasks[member][task] for task in free[member]}, processes, standbys[member]) for member in tasks}

    def _standbys(
        self, wanted: Mapping[str, Collection[TaskId]], free: Mapping[str, Collection[TaskId]], stateful: Collection[TaskId], warm: Warm
    ) -> Mapping[str, Collection[TaskId]]:
        if not self._replicas:
            return {}
        found = assign_standbys(wanted, stateful, self._replicas, warm)
        # A task that its next owner has to wait for is a standby there meanwhile.
        return {member: {*found[member], *set(stateful).intersection(wanted[member]).difference(free[member])} for member in wanted}


def _by_members(tasks: Mapping[str, Tasks]) -> Iterator[tuple[list[str], list[TaskId]]]:
    """Yield the tasks that the same members may have, with these members; all at once when all run the same version."""
    able: dict[TaskId, list[str]] = {}
    for member in sorted(tasks):
        for task in tasks[member]:
            able.setdefault(task, []).append(member)
    groups: dict[tuple[str, ...], list[TaskId]] = {}
    for task in sorted(able):
        groups.setdefault(tuple(able[task]), []).append(task)
    if not groups:
        yield sorted(tasks), []
    for members, some in sorted(groups.items(), key=lambda group: (len(group[0]), group)):
        yield list(members), some


def _owners(states: Mapping[str, MemberState], tasks: Collection[TaskId]) -> dict[TaskId, str]:
    """Return who has which task. When two say so, the one with the older generation has missed that it is gone."""
    claims: dict[TaskId, tuple[int, str]] = {}
    for member, state in sorted(states.items()):
        for task in (TaskId(*each) for each in state.tasks):
            if task in tasks and (task not in claims or state.generation > claims[task][0]):
                claims[task] = state.generation, member
    return {task: owner for task, (_, owner) in claims.items()}


def _warm(states: Mapping[str, MemberState], owners: Mapping[TaskId, str], tasks: Collection[TaskId]) -> dict[str, dict[TaskId, int]]:
    """Return what state of which tasks members have; who owns a task has all of it."""
    found: dict[str, dict[TaskId, int]] = {}
    for member, state in states.items():
        held = {TaskId(subtopology, number): offset for subtopology, number, offset in state.offsets}
        held.update((task, _ALL) for task in (TaskId(*each) for each in state.tasks) if owners.get(task) == member)
        found[member] = {task: offset for task, offset in held.items() if task in tasks}
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
