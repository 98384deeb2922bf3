"""The user data of members and assignments."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ks_actors._errors import MissingSourceTopics, SerializationError, StreamsError, TopologyError
from ks_actors.log import MemberAssignment
from ks_actors.records import TaskId, TopicPartition
from ks_actors.system import current_member

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

VERSION = 4
PROBLEMS: dict[str, type[StreamsError | TopologyError]] = {
    "missing": MissingSourceTopics,
    "topology": TopologyError,
    "other": StreamsError,
}


class TopologyInfo(msgspec.Struct, frozen=True, array_like=True):
    """The part of a member's topology that the leader needs, as members may run different versions.

    Each of the `subtopologies` has its number, its source topics in order, and whether it has state
    with changelogs. `copartitioned` are groups of joined topics. `matched` are topics that matched
    a pattern; they may have been deleted. All topics have their names in the log.
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
        """Return the info of a topology; equal topologies give equal results."""
        return cls(
            tuple(
                (number, tuple(sorted(topics)), number in stateful)
                for number, topics in sorted(subtopologies.items())
            ),
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
    """The user data of a member: the tasks that it owns, as of `generation`.

    `process_id` identifies the instance, whatever its member id is. A different `counter` (0 to
    255) makes otherwise equal bytes differ, so that the group notices a change. `offsets` list the
    tasks with state at the member, as a standby or on its disk: subtopology, partition, and the sum
    of the changelog offsets that the state has reached. `topology` is the member's own topology;
    members before version 3 omit it and run the leader's topology. Later versions only add fields
    at the end, so that all versions can be read.

    Members before version 4 omit the remaining fields. `endpoint` is the URL at which the member
    answers queries. Members with one `host` fail together; see `failure_domain`. `tags` are the
    member's client tags in order, and `rack` is its client rack. `ends` are, as `offsets`, the
    changelog sums of tasks that the member owns. `grouping` is the name of its partition grouper,
    empty without one. `standbys` are the tasks that it follows.
    """

    version: int
    process_id: str
    counter: int
    generation: int
    tasks: tuple[tuple[int, int], ...]
    offsets: tuple[tuple[int, int, int], ...] = ()
    topology: TopologyInfo | None = None
    endpoint: str = ""
    host: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    rack: str = ""
    ends: tuple[tuple[int, int, int], ...] = ()
    grouping: str = ""
    standbys: tuple[tuple[int, int], ...] = ()

    @property
    def newcomer(self) -> bool:
        """Whether the member has had no assignment in this group yet."""
        return self.generation < 0 and not self.tasks

    @property
    def failure_domain(self) -> str:
        """The name that this member shares with the members that fail together with it."""
        return self.host or self.process_id

    @property
    def traits(self) -> MemberTraits:
        """The fields that are the same in every rebalance."""
        return MemberTraits(self.endpoint, self.host, dict(self.tags), self.rack, self.grouping)


class HostedTasks(msgspec.Struct, frozen=True, array_like=True):
    """The tasks that one member of the group processes and keeps as standbys.

    `active` has the tasks that the member owns or gets with this assignment. A task that is to move
    counts for its owner until the owner has given it up. `endpoint` is empty for a member that
    answers no queries. There is no member id: those of all members would be half of the bytes.
    """

    endpoint: str
    active: tuple[tuple[int, int], ...] = ()
    standbys: tuple[tuple[int, int], ...] = ()


class TaskList(msgspec.Struct, frozen=True, array_like=True):
    """The user data of an assignment: tasks with their partitions, or a problem's kind and text.

    `processes` are the process ids of all current members. `standbys` are the tasks to follow as
    standbys.

    Leaders before version 4 omit the remaining fields. `packed` are the compressed `hosts`.
    `warmups` are those of the `standbys` that get a task's state ahead
    of the task. `uncovered` are the subtopologies that no member runs. `failure` is the reason why
    the group keeps its last assignment, empty if it does not. With `kept`, the members keep their
    tasks and standbys, and the lists of both are empty. The one member that `asks` is to ask for
    another assignment after a failure. `basis` is a checksum of the values
    of this member by which the leader assigned; 0 without one. See `GroupAssignor.basis`.
    """

    version: int
    tasks: tuple[tuple[int, int, tuple[tuple[str, int], ...]], ...]
    problem: tuple[str, str] | None = None
    processes: tuple[str, ...] = ()
    standbys: tuple[tuple[int, int], ...] = ()
    packed: bytes = b""
    warmups: tuple[tuple[int, int], ...] = ()
    uncovered: tuple[int, ...] = ()
    failure: str = ""
    kept: bool = False
    asks: bool = False
    basis: int = 0

    @property
    def hosts(self) -> tuple[HostedTasks, ...]:
        """All members with their tasks; empty if no member has an endpoint.

        Raises SerializationError for data that cannot be decoded.
        """
        if not self.packed:
            return ()
        try:
            return _decode_hosts(zlib.decompressobj().decompress(self.packed, _MOST_BYTES))
        except (zlib.error, msgspec.MsgspecError) as error:
            raise SerializationError(
                f"the map of members in an assignment cannot be decoded: {error}"
            ) from error


def host_of_process() -> str:
    """Return the name of this process's supervisor, whose members are on one machine; or none."""
    member = current_member()
    return "" if member is None else member.directory.name


@dataclass(frozen=True, slots=True)
class MemberTraits:
    """The fields of a member's user data that are the same in every rebalance; see MemberState."""

    endpoint: str = ""
    host: str = field(default_factory=host_of_process)
    tags: Mapping[str, str] = field(default_factory=dict)
    rack: str = ""
    grouping: str = ""


_NO_TRAITS = MemberTraits(host="")
_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(MemberState).decode
_decode_list = msgspec.msgpack.Decoder(TaskList).decode
_decode_hosts = msgspec.msgpack.Decoder(tuple[HostedTasks, ...]).decode
_MOST_BYTES = 1 << 26


def encode_member(
    owned: Iterable[TaskId],
    *,
    process_id: str,
    counter: int = 0,
    generation: int = -1,
    offsets: Mapping[TaskId, int] | None = None,
    topology: TopologyInfo | None = None,
    traits: MemberTraits = _NO_TRAITS,
    ends: Mapping[TaskId, int] | None = None,
    standbys: Iterable[TaskId] = (),
) -> bytes:
    """Return the user data of a member with these tasks, for its join and before each rebalance.

    `offsets` are the state offsets of tasks that the member does not own, and `ends` those of tasks
    that it owns; `topology` is the topology that the member runs. `standbys` are the tasks that it
    follows.
    """
    return _encode(
        MemberState(
            VERSION,
            process_id,
            counter % 256,
            generation,
            _pairs(owned),
            _sums(offsets),
            topology,
            traits.endpoint,
            traits.host,
            tuple(sorted(traits.tags.items())),
            traits.rack,
            _sums(ends),
            traits.grouping,
            _pairs(standbys),
        )
    )


def _pairs(tasks: Iterable[TaskId]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((task.subtopology, task.partition) for task in tasks))


def _sums(offsets: Mapping[TaskId, int] | None) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        (task.subtopology, task.partition, offset)
        for task, offset in sorted((offsets or {}).items())
    )


def decode_member(user_data: bytes) -> MemberState:
    """Return the state of a member; empty data owns nothing. Raises SerializationError."""
    if not user_data:
        return MemberState(0, "", 0, -1, ())
    try:
        return _decode_state(user_data)
    except msgspec.MsgspecError as error:
        raise SerializationError(
            f"the user data of a group member is not from ks-actors: {error}; does another program "
            "use the group's name?"
        ) from error


def pack_hosts(hosts: Collection[HostedTasks]) -> bytes:
    """Return the compressed map of all members for `encode_tasks`; empty for no member."""
    return zlib.compress(_encode(hosts), 9) if hosts else b""


def encode_tasks(
    tasks: Mapping[TaskId, tuple[TopicPartition, ...]],
    processes: Iterable[str] = (),
    standbys: Iterable[TaskId] = (),
    *,
    hosts: bytes = b"",
    warmups: Iterable[TaskId] = (),
    uncovered: Iterable[int] = (),
    failure: str = "",
    asks: bool = False,
    basis: int = 0,
) -> MemberAssignment:
    """Return the assignment of a member with these tasks and standbys; see TaskList.

    `processes` are the process ids of all members. `hosts` are from `pack_hosts`.
    """
    listed = tuple(
        (task.subtopology, task.partition, tuple((topic, number) for topic, number in tasks[task]))
        for task in sorted(tasks)
    )
    partitions = tuple(partition for task in sorted(tasks) for partition in tasks[task])
    return MemberAssignment(
        partitions,
        _encode(
            TaskList(
                VERSION,
                listed,
                None,
                tuple(sorted(processes)),
                _pairs(standbys),
                hosts,
                _pairs(warmups),
                tuple(sorted(uncovered)),
                failure,
                asks=asks,
                basis=basis,
            )
        ),
    )


def encode_kept(failure: str, processes: Iterable[str], *, asks: bool) -> MemberAssignment:
    """Return an assignment by which a member keeps its tasks and standbys, with the reason.

    Only members with version 4 of the user data understand it.
    """
    known = tuple(sorted(processes))
    listed = TaskList(VERSION, (), None, known, failure=failure, kept=True, asks=asks)
    return MemberAssignment((), _encode(listed))


def encode_problem(error: Exception) -> MemberAssignment:
    """Return an assignment without tasks and with the reason."""
    kind = next(kind for kind, cls in PROBLEMS.items() if isinstance(error, cls) or kind == "other")
    return MemberAssignment((), _encode(TaskList(VERSION, (), (kind, str(error)))))


def decode_list(assignment: MemberAssignment) -> TaskList:
    """Return the user data of an assignment; an empty list for none, or for another leader's."""
    try:
        return _decode_list(assignment.user_data) if assignment.user_data else TaskList(0, ())
    except msgspec.MsgspecError:
        return TaskList(0, ())


def decode_standbys(assignment: MemberAssignment) -> frozenset[TaskId]:
    """Return the standby tasks of an assignment; empty when the leader does not send any."""
    return frozenset(TaskId(*task) for task in decode_list(assignment).standbys)


def decode_processes(assignment: MemberAssignment) -> frozenset[str]:
    """Return the process ids of all members; empty when the leader does not send them."""
    return frozenset(decode_list(assignment).processes)


def decode_tasks(assignment: MemberAssignment) -> dict[TaskId, tuple[TopicPartition, ...]]:
    """Return the tasks of an assignment, with their partitions, in order.

    Raises the leader's problem: MissingSourceTopics, TopologyError or StreamsError. Raises
    SerializationError for data that another kind of leader has written.
    """
    if not assignment.user_data:
        return {}
    try:
        decoded = _decode_list(assignment.user_data)
    except msgspec.MsgspecError as error:
        raise SerializationError(
            f"the group's leader is not a ks-actors member: {error}; does another program use the "
            "group's name?"
        ) from error
    if decoded.problem is not None:
        kind, text = decoded.problem
        raise PROBLEMS.get(kind, StreamsError)(text)
    return {
        TaskId(subtopology, number): tuple(TopicPartition(*each) for each in partitions)
        for subtopology, number, partitions in decoded.tasks
    }
