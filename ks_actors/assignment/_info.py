"""What the members of a group tell each other about tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ks_actors._errors import MissingSourceTopics, SerializationError, StreamsError, TopologyError
from ks_actors.log import MemberAssignment
from ks_actors.records import TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

VERSION = 3
PROBLEMS: dict[str, type[StreamsError | TopologyError]] = {
    "missing": MissingSourceTopics,
    "topology": TopologyError,
    "other": StreamsError,
}


class TopologyInfo(msgspec.Struct, frozen=True, array_like=True):
    """The part of a member's topology that the leader has to know: members may run different versions of it.

    `subtopologies` have number, source topics in order, and whether there is state with changelogs; `copartitioned` are groups of topics that are
    joined; `matched` are topics that a pattern has found, which may be gone. All topics are by the names that they have in the log.
    """

    subtopologies: tuple[tuple[int, tuple[str, ...], bool], ...]
    copartitioned: tuple[tuple[str, ...], ...] = ()
    matched: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        subtopologies: Mapping[int, Collection[str]],
        copartitioned: Iterable[Collection[str]] = (),
        stateful: Collection[int] = (),
        matched: Iterable[str] = (),
    ) -> TopologyInfo:
        """Return that of a topology, equal for equal ones."""
        return cls(
            tuple((number, tuple(sorted(topics)), number in stateful) for number, topics in sorted(subtopologies.items())),
            tuple(sorted(tuple(sorted(group)) for group in copartitioned)),
            tuple(sorted(matched)),
        )

    @property
    def topics(self) -> dict[int, tuple[str, ...]]:
        """The source topics by subtopology."""
        return {number: topics for number, topics, _ in self.subtopologies}

    @property
    def stateful(self) -> frozenset[int]:
        """The subtopologies that have state with changelogs."""
        return frozenset(number for number, _, stateful in self.subtopologies if stateful)


class MemberState(msgspec.Struct, frozen=True, array_like=True):
    """What a member tells the leader: the tasks that it has not let go of, as of `generation`.

    `process_id` is the instance's, whatever its place in the group. A change of `counter` (0 to 255) makes the bytes differ when nothing else does,
    so that the group takes notice. `offsets` are about tasks of which the member has state, as a standby or on its disk: subtopology, partition, and
    the sum of the offsets up to which it has their changelogs. `topology` is the one that it runs; members before version 3 do not tell, and run the
    leader's. Later versions only add fields at the end, so that all versions can be read.
    """

    version: int
    process_id: str
    counter: int
    generation: int
    tasks: tuple[tuple[int, int], ...]
    offsets: tuple[tuple[int, int, int], ...] = ()
    topology: TopologyInfo | None = None


class TaskList(msgspec.Struct, frozen=True, array_like=True):
    """What the leader tells a member: its tasks, each with its partitions; or the kind of problem, and the text, for which there are none.

    `processes` are the ids of all members, by which it is noticed who has gone. `standbys` are the tasks whose state is to be kept up to date.
    """

    version: int
    tasks: tuple[tuple[int, int, tuple[tuple[str, int], ...]], ...]
    problem: tuple[str, str] | None = None
    processes: tuple[str, ...] = ()
    standbys: tuple[tuple[int, int], ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(MemberState).decode
_decode_list = msgspec.msgpack.Decoder(TaskList).decode


def encode_member(
    owned: Iterable[TaskId],
    *,
    process_id: str,
    counter: int = 0,
    generation: int = -1,
    offsets: Mapping[TaskId, int] | None = None,
    topology: TopologyInfo | None = None,
) -> bytes:
    """Return the user data of a member that owns these tasks: to be told when it joins, and before each rebalance.

    `offsets` tell how far the state is of tasks that it does not own; `topology` is the one that it runs.
    """
    tasks = tuple(sorted((task.subtopology, task.partition) for task in owned))
    held = tuple((task.subtopology, task.partition, offset) for task, offset in sorted((offsets or {}).items()))
    return _encode(MemberState(VERSION, process_id, counter % 256, generation, tasks, held, topology))


def decode_member(user_data: bytes) -> MemberState:
    """Return what a member told; one that told nothing owns nothing. Raises SerializationError."""
    if not user_data:
        return MemberState(0, "", 0, -1, ())
    try:
        return _decode_state(user_data)
    except msgspec.MsgspecError as error:
        raise SerializationError(
            f"the user data of a group's member is not that of ks-actors: {error}; is the group's name in use elsewhere?"
        ) from error


def encode_tasks(
    tasks: Mapping[TaskId, tuple[TopicPartition, ...]], processes: Iterable[str] = (), standbys: Iterable[TaskId] = ()
) -> MemberAssignment:
    """Return the assignment of a member that gets these tasks and these standbys, in a group of these processes."""
    listed = tuple((task.subtopology, task.partition, tuple((topic, number) for topic, number in tasks[task])) for task in sorted(tasks))
    partitions = tuple(partition for task in sorted(tasks) for partition in tasks[task])
    standing = tuple((task.subtopology, task.partition) for task in sorted(standbys))
    return MemberAssignment(partitions, _encode(TaskList(VERSION, listed, None, tuple(sorted(processes)), standing)))


def encode_problem(error: Exception) -> MemberAssignment:
    """Return the assignment that gives nothing and says why."""
    kind = next(kind for kind, cls in PROBLEMS.items() if isinstance(error, cls) or kind == "other")
    return MemberAssignment((), _encode(TaskList(VERSION, (), (kind, str(error)))))


def decode_standbys(assignment: MemberAssignment) -> frozenset[TaskId]:
    """Return the tasks whose state the member is to keep up to date; none when the leader does not tell."""
    try:
        told = _decode_list(assignment.user_data).standbys if assignment.user_data else ()
    except msgspec.MsgspecError:
        return frozenset()
    return frozenset(TaskId(*task) for task in told)


def decode_processes(assignment: MemberAssignment) -> frozenset[str]:
    """Return the process ids of all members of the group; none when the leader does not tell."""
    try:
        return frozenset(_decode_list(assignment.user_data).processes) if assignment.user_data else frozenset()
    except msgspec.MsgspecError:
        return frozenset()


def decode_tasks(assignment: MemberAssignment) -> dict[TaskId, tuple[TopicPartition, ...]]:
    """Return the tasks of an assignment, with their partitions, in order.

    Raises what kept the leader from assigning: MissingSourceTopics, TopologyError, StreamsError. Raises SerializationError for what no leader of
    ours has written.
    """
    if not assignment.user_data:
        return {}
    try:
        told = _decode_list(assignment.user_data)
    except msgspec.MsgspecError as error:
        raise SerializationError(f"the group's leader does not speak as ks-actors does: {error}; is the group's name in use elsewhere?") from error
    if told.problem is not None:
        kind, text = told.problem
        raise PROBLEMS.get(kind, StreamsError)(text)
    return {TaskId(subtopology, number): tuple(TopicPartition(*each) for each in partitions) for subtopology, number, partitions in told.tasks}
