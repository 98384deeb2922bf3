"""The leader's part in a rebalance."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self, final

from ks_actors._errors import KsActorsError, StreamsError
from ks_actors.assignment._grouper import check_copartitioning, group_partitions
from ks_actors.assignment._info import (
    HostedTasks,
    TopologyInfo,
    decode_member,
    encode_problem,
    encode_tasks,
)
from ks_actors.assignment._standbys import assign_standbys
from ks_actors.assignment._sticky import assign_sticky
from ks_actors.assignment._versions import admit
from ks_actors.lifecycle import component_log
from ks_actors.records import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ks_actors.assignment._grouper import PartitionGrouper, Tasks
    from ks_actors.assignment._info import MemberState
    from ks_actors.assignment._sticky import AssignTasks, Warm
    from ks_actors.log import MemberAssignment, MemberInfo

_log = component_log(__name__)
_ALL = (1 << 63) - 1


@final
class TaskAssignor:
    """The assignor of tasks to the members of a group; an `Assignor` of the log's port.

    The log calls it on the group's leader.

    `subtopologies` are the source topics by subtopology, `copartition_groups` the joined topics,
    all by their names in the log.

    The assignment is cooperative in effect. `assign` chooses each task's member, but a task that
    another member still owns goes to no member at first. The owner closes the lost task and
    rejoins; the next rebalance gives the task to the chosen member. Tasks that stay are never
    interrupted. This requires that members report their tasks at each rebalance, not only when they
    join.

    Tasks of the `stateful` subtopologies also get `replicas` standbys, on other members than their
    owner. A former owner may keep a task's state as a standby, and a future owner keeps the state
    up to date until it gets the task.

    Members may run different versions of the topology, regardless of the leader. Each member
    reports its version and gets only the tasks and partitions of that version. A newcomer with a
    version that cannot run beside the others gets an error and no tasks. See `admit`.

    `check` gets the partition counts of all source topics, and raises when they do not fit the rest
    of the topology.

    When tasks cannot be assigned, every member gets the reason and no tasks. Reasons are topics
    that are missing or not copartitioned, or unreadable user data. If the reason concerns only some
    versions, only the members with those versions get it.
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
    def of(
        cls,
        topology: TopologyInfo,
        *,
        replicas: int = 0,
        check: Callable[[Mapping[str, int]], None] | None = None,
    ) -> Self:
        """Return the assignor of a topology."""
        return cls(
            topology.topics,
            topology.copartitioned,
            replicas=replicas,
            stateful=topology.stateful,
            check=check,
        )

    def __call__(
        self, members: Sequence[MemberInfo], partitions: Mapping[str, int]
    ) -> Mapping[str, MemberAssignment]:
        """Return each member's assignment, from all user data and the partition counts."""
        try:
            return self._assigned(members, partitions)
        except KsActorsError as error:
            _log.error("no tasks are assigned: %s", error)
            return {member.member_id: encode_problem(error) for member in members}

    def _assigned(
        self, members: Sequence[MemberInfo], partitions: Mapping[str, int]
    ) -> Mapping[str, MemberAssignment]:
        states = {member.member_id: decode_member(member.user_data) for member in members}
        versions = {member: state.topology or self._own for member, state in states.items()}
        problems: dict[str, KsActorsError] = {**admit(versions, states)}
        plans: dict[TopologyInfo, Tasks] = {}
        for member, topology in versions.items():
            if member not in problems and topology not in plans:
                try:
                    plans[topology] = self._tasks(topology, partitions)
                except KsActorsError as error:
                    problems.update(
                        dict.fromkeys(
                            (each for each, other in versions.items() if other == topology), error
                        )
                    )
        if not plans:
            raise next(iter(problems.values()))
        if self._check is not None:
            self._check(partitions)
        for member, problem in problems.items():
            _log.error("no tasks are assigned to %s: %s", member, problem)
        given = self._given(
            {
                member: plans[topology]
                for member, topology in versions.items()
                if member not in problems
            },
            states,
            versions,
        )
        return {
            **{member: encode_problem(problem) for member, problem in problems.items()},
            **given,
        }

    def _tasks(self, topology: TopologyInfo, partitions: Mapping[str, int]) -> Tasks:
        check_copartitioning(topology.copartitioned, partitions)
        # A topic that matched a pattern may have been deleted: its reader will notice.
        gone = {topic for topic in topology.matched if not partitions.get(topic)}
        return self._grouper(
            {
                number: [topic for topic in topics if topic not in gone]
                for number, topics in topology.topics.items()
            },
            partitions,
        )

    def _given(
        self,
        tasks: Mapping[str, Tasks],
        states: Mapping[str, MemberState],
        versions: Mapping[str, TopologyInfo],
    ) -> dict[str, MemberAssignment]:
        """Return the assignments of members; `tasks` has the tasks that each may run."""
        known = {task for each in tasks.values() for task in each}
        owners = _owners(states, known)
        owned = {
            member: [task for task, owner in owners.items() if owner == member] for member in tasks
        }
        warm = _warm({member: states[member] for member in tasks}, owners, known)
        wanted: dict[str, list[TaskId]] = {member: [] for member in tasks}
        standbys: dict[str, set[TaskId]] = {member: set() for member in tasks}
        for able, some in _by_members(tasks):
            owned_able = {
                member: [task for task in owned[member] if task in some] for member in able
            }
            state = {
                member: {task: offset for task, offset in warm[member].items() if task in some}
                for member in able
            }
            found = self._assign(owned_able, some, state)
            # `assign` is replaceable, so verify its result.
            _check(found, owned_able, some)
            for member, more in found.items():
                wanted[member] += more
            free = {
                member: [
                    task for task in found.get(member, ()) if owners.get(task, member) == member
                ]
                for member in able
            }
            stateful = {
                task
                for task in some
                if any(task.subtopology in versions[member].stateful for member in able)
            }
            for member, standing in self._standbys(
                {member: found.get(member, ()) for member in able}, free, stateful, state
            ).items():
                standbys[member] |= {
                    task for task in standing if task.subtopology in versions[member].stateful
                }
        processes = {state.process_id for state in states.values()} - {""}
        # A task stays unassigned while a member other than the chosen member owns it.
        free = {
            member: [task for task in wanted[member] if owners.get(task, member) == member]
            for member in tasks
        }
        hosts = _hosts(states, {**_chosen(wanted), **owners}, standbys)
        return {
            member: encode_tasks(
                {task: tasks[member][task] for task in free[member]},
                processes,
                standbys[member],
                hosts=hosts,
            )
            for member in tasks
        }

    def _standbys(
        self,
        wanted: Mapping[str, Collection[TaskId]],
        free: Mapping[str, Collection[TaskId]],
        stateful: Collection[TaskId],
        warm: Warm,
    ) -> Mapping[str, Collection[TaskId]]:
        if not self._replicas:
            return {}
        found = assign_standbys(wanted, stateful, self._replicas, warm)
        # While a member waits for its chosen task, the member follows the task as a standby.
        return {
            member: {
                *found[member],
                *set(stateful).intersection(wanted[member]).difference(free[member]),
            }
            for member in wanted
        }


def _by_members(tasks: Mapping[str, Tasks]) -> Iterator[tuple[list[str], list[TaskId]]]:
    """Yield groups of tasks with the members that may run them.

    There is one group when all members run the same version.
    """
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
    """Return the owner of each task.

    If two members claim a task, the member with the older generation has missed its revocation.
    """
    claims: dict[TaskId, tuple[int, str]] = {}
    for member, state in sorted(states.items()):
        for task in (TaskId(*each) for each in state.tasks):
            if task in tasks and (task not in claims or state.generation > claims[task][0]):
                claims[task] = state.generation, member
    return {task: owner for task, (_, owner) in claims.items()}


def _chosen(wanted: Mapping[str, Collection[TaskId]]) -> dict[TaskId, str]:
    return {task: member for member, tasks in wanted.items() for task in tasks}


def _hosts(
    states: Mapping[str, MemberState],
    owners: Mapping[TaskId, str],
    standbys: Mapping[str, Collection[TaskId]],
) -> list[HostedTasks]:
    """Return each member with its tasks; nothing if no member answers queries."""
    if not any(state.endpoint for state in states.values()):
        return []
    active: dict[str, list[tuple[int, int]]] = {member: [] for member in states}
    for task, owner in sorted(owners.items()):
        active[owner].append((task.subtopology, task.partition))
    return [
        HostedTasks(
            member,
            state.endpoint,
            tuple(active[member]),
            tuple(sorted((task.subtopology, task.partition) for task in standbys.get(member, ()))),
        )
        for member, state in sorted(states.items())
    ]


def _warm(
    states: Mapping[str, MemberState], owners: Mapping[TaskId, str], tasks: Collection[TaskId]
) -> dict[str, dict[TaskId, int]]:
    """Return the state offsets of tasks by member; a task's owner has all of its state."""
    found: dict[str, dict[TaskId, int]] = {}
    for member, state in states.items():
        offsets = {
            TaskId(subtopology, number): offset for subtopology, number, offset in state.offsets
        }
        offsets.update(
            (task, _ALL)
            for task in (TaskId(*each) for each in state.tasks)
            if owners.get(task) == member
        )
        found[member] = {task: offset for task, offset in offsets.items() if task in tasks}
    return found


def _check(
    wanted: Mapping[str, Collection[TaskId]], members: Collection[str], tasks: Collection[TaskId]
) -> None:
    """Raise StreamsError unless each task goes to exactly one of the members."""
    given = Counter(task for each in wanted.values() for task in each)
    wrong = [
        *(
            f"{task} goes to {given[task]} members"
            for task in sorted(given.keys() | set(tasks))
            if given[task] != 1 and task in tasks
        ),
        *(f"{task} is not a task" for task in sorted(given.keys() - set(tasks))),
        *(f"{member} is not a member" for member in sorted(wanted.keys() - set(members))),
    ]
    if wrong:
        raise StreamsError(
            f"the task assignor must assign each task to exactly one member: {', '.join(wrong)}"
        )
