"""The leader's part in a rebalance."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Self, final

import msgspec

from ks_actors._errors import KsActorsError, StreamsError
from ks_actors.assignment._facts import GroupState, MemberFacts, MemberTasks, TaskFacts
from ks_actors.assignment._grouper import GrouperFailed, Grouping, check_copartitioning
from ks_actors.assignment._info import (
    HostedTasks,
    TopologyInfo,
    decode_member,
    encode_kept,
    encode_problem,
    encode_tasks,
    pack_hosts,
)
from ks_actors.assignment._sticky_assignor import StickyTaskAssignor
from ks_actors.assignment._verify import verify
from ks_actors.assignment._versions import admit
from ks_actors.lifecycle import component_log
from ks_actors.records import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors.assignment._facts import TaskAssignor
    from ks_actors.assignment._grouper import Tasks
    from ks_actors.assignment._info import MemberState, MemberTraits
    from ks_actors.log import MemberAssignment, MemberInfo

_log = component_log(__name__)
_DEFAULT = Grouping()
# The first version of the user data by which a member can be told to keep its tasks.
_KEEPS = 4
# Kafka keeps the user data of all members and their assignments in one record of at most 1 MiB
# (`message.max.bytes`), beside ids and partitions.
_MOST_BYTES = 850_000


@final
class GroupAssignor:
    """The assignor of tasks to the members of a group; an `Assignor` of the log's port.

    The log calls it on the group's leader.

    `topology` is the leader's own, which members of before version 3 run, too. `assignor` chooses
    the members of tasks and standbys. Its answer is verified. If it fails, or its answer breaks a
    rule, all tasks stay where they are, and the members get the reason.

    The assignment is cooperative in effect. The assignor chooses each task's member, but a task
    that another member still owns goes to no member at first. The owner closes the lost task and
    rejoins; the next rebalance gives the task to the chosen member. Tasks that stay are never
    interrupted. This requires that members report their tasks at each rebalance, not only when they
    join. A former owner may keep a task's state as a standby, and where there are standbys, a
    future owner keeps the state up to date until it gets the task.

    Members may run different versions of the topology, regardless of the leader. Each member
    reports its version and gets only the tasks and partitions of that version. A newcomer with a
    version that cannot run beside the others, or with another grouper, gets an error and no tasks.
    See `admit`.

    `left_out` are the subtopologies of queries that the leader does not run. The members are told
    which of them no member runs.

    `check` gets the partition counts of all source topics, and raises when they do not fit the rest
    of the topology.

    When tasks cannot be assigned, every member gets the reason and no tasks. Reasons are topics
    that are missing or not copartitioned, or unreadable user data. If the reason concerns only some
    versions, only the members with those versions get it. If the reason is the users' grouper,
    members that have been here keep their tasks.
    """

    def __init__(
        self,
        topology: TopologyInfo,
        *,
        grouping: Grouping = _DEFAULT,
        assignor: TaskAssignor | None = None,
        replicas: int = 0,
        left_out: Collection[int] = (),
        check: Callable[[Mapping[str, int]], None] | None = None,
    ) -> None:
        self._own: TopologyInfo = topology
        self._grouping: Grouping = grouping
        self._assignor: TaskAssignor = assignor or StickyTaskAssignor()
        # The standbys of a user's assignor are its own affair.
        self._follows: bool = replicas > 0 or assignor is not None
        self._replicas: int = replicas
        self._left_out: frozenset[int] = frozenset(left_out)
        self._check: Callable[[Mapping[str, int]], None] | None = check

    @classmethod
    def of(cls, subtopologies: Mapping[int, Collection[str]]) -> Self:
        """Return the assignor of a topology without state, given its source topics."""
        return cls(TopologyInfo.of(subtopologies))

    def basis(
        self,
        topology: TopologyInfo,
        traits: MemberTraits,
        partitions: Mapping[str, int],
        leaving: Iterable[TaskId] = (),
    ) -> int:
        """Return a checksum of the values of one member by which tasks are assigned.

        A static member that returns gets an assignment made before it started. If the checksum for
        its present values, without any `leaving` task, is another, the assignment does not fit any
        more. `leaving` are the tasks that the member has to give up first: a member that has ended
        meanwhile will never do so. The host is left out, as it may be a new name at each start.
        """
        return zlib.crc32(
            msgspec.msgpack.encode(
                (
                    topology,
                    traits.endpoint,
                    sorted(traits.tags.items()),
                    traits.rack,
                    traits.grouping,
                    self._replicas,
                    type(self._assignor).__qualname__,
                    [
                        partitions.get(topic, 0)
                        for topics in topology.topics.values()
                        for topic in topics
                    ],
                    sorted(leaving),
                )
            )
        )

    def __call__(
        self, members: Sequence[MemberInfo], partitions: Mapping[str, int]
    ) -> Mapping[str, MemberAssignment]:
        """Return each member's assignment, from all user data and the partition counts."""
        states: dict[str, MemberState] = {}
        try:
            states = {member.member_id: decode_member(member.user_data) for member in members}
            told = sum(len(member.user_data) for member in members)
            return self._assigned(states, partitions, told)
        except KsActorsError as error:
            _log.error("no tasks are assigned: %s", error)
            asker = _asker(states)
            return {each.member_id: _told(error, each.member_id, states, asker) for each in members}

    def _assigned(
        self, states: Mapping[str, MemberState], partitions: Mapping[str, int], told: int
    ) -> Mapping[str, MemberAssignment]:
        versions = {member: state.topology or self._own for member, state in states.items()}
        problems: dict[str, KsActorsError] = {**admit(versions, states)}
        plans: dict[TopologyInfo, Tasks] = {}
        for member, topology in versions.items():
            if member not in problems and topology not in plans:
                try:
                    plans[topology] = self._tasks(topology, states[member].grouping, partitions)
                except KsActorsError as error:
                    problems.update(
                        dict.fromkeys(
                            (
                                each
                                for each, other in versions.items()
                                if other == topology and each not in problems
                            ),
                            error,
                        )
                    )
        if plans and self._check is not None:
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
            partitions,
            told,
        )
        keeping = [name for name, error in problems.items() if isinstance(error, GrouperFailed)]
        asker = _asker({member: states[member] for member in keeping})
        return {
            **{
                member: _told(problem, member, states, asker)
                for member, problem in problems.items()
            },
            **given,
        }

    def _tasks(self, topology: TopologyInfo, grouping: str, partitions: Mapping[str, int]) -> Tasks:
        known = {each.name: each for each in (_DEFAULT, self._grouping)}
        if grouping not in known:
            raise GrouperFailed(
                f"the group's leader lacks the partition grouper {grouping!r} of the group; the "
                "group assigns tasks once the leader has left"
            )
        check_copartitioning(topology.copartitioned, partitions)
        # A topic that matched a pattern may have been deleted: its reader will notice.
        gone = {topic for topic in topology.matched if not partitions.get(topic)}
        return known[grouping].tasks(
            {
                number: [topic for topic in topics if topic not in gone]
                for number, topics in topology.topics.items()
            },
            partitions,
            topology.copartitioned,
        )

    def _given(
        self,
        tasks: Mapping[str, Tasks],
        states: Mapping[str, MemberState],
        versions: Mapping[str, TopologyInfo],
        partitions: Mapping[str, int],
        told: int,
    ) -> dict[str, MemberAssignment]:
        """Return the assignments of members; `tasks` has the tasks that each may run.

        `told` is the size (bytes) of the members' user data.
        """
        if not tasks:
            return {}
        known = {task for each in tasks.values() for task in each}
        owners = _owners(states, known)
        stateful = {member: versions[member].stateful for member in tasks}
        group = GroupState(
            members=_members({member: states[member] for member in tasks}, owners, known),
            tasks=_facts(tasks, stateful),
            standby_replicas=self._replicas,
        )
        plan, failure = self._plan(group, fresh=all(states[member].newcomer for member in tasks))
        # A task stays unassigned while a member other than the chosen member owns it.
        free = {
            member: [task for task in plan[member].active if owners.get(task, member) == member]
            for member in tasks
        }
        standbys: dict[str, set[TaskId]] = {}
        for member in tasks:
            # While a member waits for its chosen task, the member follows the task as a standby.
            waits = {*plan[member].active}.difference(free[member]) if self._follows else ()
            standbys[member] = {
                task
                for task in (*plan[member].standbys, *waits)
                if task.subtopology in stateful[member]
            }
        chosen = {task: member for member in tasks for task in plan[member].active}
        hosts = pack_hosts(_hosts(states, {**chosen, **owners}, standbys))
        processes = {state.process_id for state in states.values()} - {""}
        asker = _asker({member: states[member] for member in tasks})
        leaving: dict[str, list[TaskId]] = {}
        for task, owner in owners.items():
            if chosen.get(task) != owner:
                leaving.setdefault(owner, []).append(task)
        bases = {
            member: self.basis(
                versions[member], states[member].traits, partitions, leaving.get(member, ())
            )
            for member in tasks
        }
        uncovered = self._left_out.difference(*(versions[member].topics for member in tasks))

        def encoded(hosts: bytes) -> dict[str, MemberAssignment]:
            return {
                member: encode_tasks(
                    {task: tasks[member][task] for task in free[member]},
                    processes,
                    standbys[member],
                    hosts=hosts,
                    uncovered=uncovered,
                    failure=failure,
                    asks=bool(failure) and member == asker,
                    basis=bases[member],
                )
                for member in tasks
            }

        given = encoded(hosts)
        size = told + sum(len(each.user_data) for each in given.values())
        if hosts and size > _MOST_BYTES:
            _log.warning(
                "members are not told each other's application_server: the group's record on "
                "Kafka would have %s bytes, and may have 1 MiB. Queries of other instances and "
                "clients fail until the group has fewer members or tasks",
                f"{size:,}",
            )
            return encoded(b"")
        return given

    def _plan(self, group: GroupState, *, fresh: bool) -> tuple[Mapping[str, MemberTasks], str]:
        """Ask the assignor; return the tasks of each member, and the reason if it has failed.

        After a failure, tasks stay where they are, and tasks of no member stay unassigned. Raises
        StreamsError after a failure in a `fresh` group.
        """
        who = f"the task assignor {type(self._assignor).__qualname__}"
        found: Mapping[str, MemberTasks] = {}
        try:
            found = self._assignor.assign(group)
            wrong = verify(found, group)
            failure = f"{who} breaks rules: {wrong}" if wrong else ""
        except Exception as error:  # noqa: BLE001 - whatever it is, tasks must stay
            failure = f"{who} raised {type(error).__name__}: {error}"
            _log.debug("%s", failure, exc_info=error)
        if not failure:
            return {member: found.get(member, MemberTasks()) for member in group.members}, ""
        if fresh:
            raise StreamsError(f"{failure}. There is no earlier assignment to keep")
        _log.error(
            "tasks stay where they are, and tasks of no member are not processed: %s", failure
        )
        return _last(group), failure


def _told(
    error: KsActorsError, member: str, states: Mapping[str, MemberState], asker: str | None
) -> MemberAssignment:
    """Return the assignment of a member that cannot get tasks: it keeps its own, or none."""
    state = states.get(member)
    keeps = state is not None and not state.newcomer and state.version >= _KEEPS
    return (
        encode_kept(
            str(error),
            {each.process_id for each in states.values()} - {""},
            asks=member == asker,
        )
        if keeps and isinstance(error, GrouperFailed)
        else encode_problem(error)
    )


def _asker(states: Mapping[str, MemberState]) -> str | None:
    """Return the member that asks for another assignment after a failure.

    Earlier versions do not know of failures. Newcomers are last: they may get a problem, and end.
    """
    able = ((each.newcomer, name) for name, each in states.items() if each.version >= _KEEPS)
    return min(able, default=(True, None))[1]


def _last(group: GroupState) -> dict[str, MemberTasks]:
    """Return the tasks and standbys that members have now."""
    stateful = {task for task, facts in group.tasks.items() if facts.stateful}
    return {
        member: MemberTasks(
            frozenset(task for task in facts.active if member in group.tasks[task].members),
            (facts.standbys & stateful) - facts.active,
        )
        for member, facts in group.members.items()
    }


def _facts(
    tasks: Mapping[str, Tasks], stateful: Mapping[str, Collection[int]]
) -> dict[TaskId, TaskFacts]:
    """Return the facts of all tasks, in order."""
    able: dict[TaskId, list[str]] = {}
    for member in sorted(tasks):
        for task in tasks[member]:
            able.setdefault(task, []).append(member)
    return {
        task: TaskFacts(
            # Versions of a topology may differ in the topics of a task.
            partitions=max((tasks[member][task] for member in able[task]), key=len),
            stateful=any(task.subtopology in stateful[member] for member in able[task]),
            members=frozenset(able[task]),
        )
        for task in sorted(able)
    }


def _members(
    states: Mapping[str, MemberState], owners: Mapping[TaskId, str], tasks: Collection[TaskId]
) -> dict[str, MemberFacts]:
    """Return the facts of members; a task's owner has all of its state."""
    reached = {
        member: {
            TaskId(subtopology, number): offset
            for subtopology, number, offset in (*state.offsets, *state.ends)
        }
        for member, state in states.items()
    }
    ends: dict[TaskId, int] = {}
    for offsets in reached.values():
        for task, offset in offsets.items():
            ends[task] = max(offset, ends.get(task, 0))
    owned: dict[str, set[TaskId]] = {member: set() for member in states}
    for task, owner in owners.items():
        if owner in owned:
            owned[owner].add(task)
    return {
        member: MemberFacts(
            process_id=state.process_id,
            host=state.failure_domain,
            tags=dict(state.tags),
            active=frozenset(owned[member]),
            standbys=frozenset(TaskId(*each) for each in state.standbys).intersection(tasks),
            lags={
                **{
                    task: ends[task] - offset
                    for task, offset in reached[member].items()
                    if task in tasks
                },
                **dict.fromkeys(owned[member], 0),
            },
        )
        for member, state in sorted(states.items())
    }


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
            state.endpoint,
            tuple(active[member]),
            tuple(sorted((task.subtopology, task.partition) for task in standbys.get(member, ()))),
        )
        for member, state in sorted(states.items())
    ]
