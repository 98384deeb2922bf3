"""Members and leaders with version 3 of the user data, beside members and leaders with version 4."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors.assignment import (
    GroupAssignor,
    GroupState,
    HostedTasks,
    MemberTasks,
    MemberTraits,
    TopologyInfo,
    decode_list,
    decode_member,
    decode_processes,
    decode_standbys,
    decode_tasks,
    encode_member,
    encode_tasks,
    pack_hosts,
)
from ks_actors.log import MemberAssignment, MemberInfo, TopicPartition
from ks_actors.runtime.membership._group_view import GroupView

Pairs = tuple[tuple[int, int], ...]
Sums = tuple[tuple[int, int, int], ...]
TASKS = st.builds(TaskId, st.integers(0, 9), st.integers(0, 99))
SUMS = st.dictionaries(TASKS, st.integers(0, 1 << 62))
TOPOLOGY = TopologyInfo.of({0: ["t"]}, (), [0])


class Topology3(msgspec.Struct, frozen=True, array_like=True):
    """The topology in a member's user data, as version 3 has it."""

    subtopologies: tuple[tuple[int, tuple[str, ...], bool], ...]
    copartitioned: tuple[tuple[str, ...], ...] = ()
    matched: tuple[str, ...] = ()


class Member3(msgspec.Struct, frozen=True, array_like=True):
    """The user data of a member, as version 3 has it."""

    version: int
    process_id: str
    counter: int
    generation: int
    tasks: Pairs
    offsets: Sums = ()
    topology: Topology3 | None = None


class Tasks3(msgspec.Struct, frozen=True, array_like=True):
    """The user data of an assignment, as version 3 has it."""

    version: int
    tasks: tuple[tuple[int, int, tuple[tuple[str, int], ...]], ...]
    problem: tuple[str, str] | None = None
    processes: tuple[str, ...] = ()
    standbys: Pairs = ()


def as_3(data: bytes) -> bytes:
    """Return a member's user data, as a member of version 3 writes it."""
    known = msgspec.msgpack.decode(data, type=Member3)
    return msgspec.msgpack.encode(msgspec.structs.replace(known, version=3))


def by_3(assignment: MemberAssignment) -> Tasks3:
    """Return an assignment, as a member of version 3 reads it."""
    return msgspec.msgpack.decode(assignment.user_data, type=Tasks3)


def lead_3(members: Sequence[MemberInfo]) -> Mapping[str, MemberAssignment]:
    """Return the assignments of a leader of version 3, which knows no later field."""
    seen = [MemberInfo(each.member_id, each.topics, as_3(each.user_data)) for each in members]
    return {
        name: MemberAssignment(given.partitions, msgspec.msgpack.encode(msgspec.structs.replace(by_3(given), version=3)))
        for name, given in lead_4(seen).items()
    }


def lead_4(members: Sequence[MemberInfo]) -> Mapping[str, MemberAssignment]:
    """Return the assignments of a leader of version 4."""
    return GroupAssignor(TOPOLOGY, replicas=1)(members, {"t": 4})


def new(name: str, *owned: TaskId, endpoint: str = "") -> MemberInfo:
    traits = MemberTraits(endpoint=endpoint, host="host", tags={"zone": "a"}, rack="r")
    return MemberInfo(name, frozenset({"t"}), encode_member(owned, process_id=name, generation=1, topology=TOPOLOGY, traits=traits))


def old(name: str, *owned: TaskId) -> MemberInfo:
    info = new(name, *owned)
    return MemberInfo(name, info.topics, as_3(info.user_data))


@given(
    st.sets(TASKS),
    SUMS,
    SUMS,
    st.builds(MemberTraits, st.text(), st.text(), st.dictionaries(st.text(), st.text()), st.text(), st.text()),
)
def test_all_fields_of_a_member_arrive_and_version_3_reads_its_own(
    owned: set[TaskId], offsets: dict[TaskId, int], ends: dict[TaskId, int], traits: MemberTraits
) -> None:
    """An earlier reader gets the fields that it knows, whatever follows them."""
    data = encode_member(owned, process_id="p", counter=7, generation=3, offsets=offsets, topology=TOPOLOGY, traits=traits, ends=ends)
    state = decode_member(data)
    assert MemberTraits(state.endpoint, state.host, dict(state.tags), state.rack, state.grouping) == traits
    assert {TaskId(*task): end for *task, end in state.ends} == ends
    assert state.failure_domain == (traits.host or "p")
    known = msgspec.msgpack.decode(data, type=Member3)
    assert msgspec.structs.astuple(known)[1:6] == msgspec.structs.astuple(state)[1:6]
    earlier = decode_member(as_3(data))
    assert msgspec.structs.astuple(earlier)[1:7] == msgspec.structs.astuple(state)[1:7]
    assert msgspec.structs.astuple(earlier)[7:] == ("", "", (), "", (), "", ())
    assert earlier.failure_domain == "p"


PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99))).map(tuple)
HOSTS = st.builds(HostedTasks, st.text(), PAIRS, PAIRS)


@given(
    st.dictionaries(TASKS, st.lists(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 99))).map(tuple)),
    st.sets(TASKS),
    st.lists(HOSTS),
    st.sets(TASKS),
    st.sets(st.integers(0, 99)),
)
def test_all_fields_of_an_assignment_arrive_and_version_3_reads_its_own(
    tasks: dict[TaskId, tuple[TopicPartition, ...]],
    standbys: set[TaskId],
    hosts: list[HostedTasks],
    warmups: set[TaskId],
    uncovered: set[int],
) -> None:
    """An earlier member gets the fields that it knows, whatever follows them."""
    assignment = encode_tasks(tasks, ["p"], standbys, hosts=pack_hosts(hosts), warmups=warmups, uncovered=uncovered)
    found = decode_list(assignment)
    assert (found.hosts, found.uncovered) == (tuple(hosts), tuple(sorted(uncovered)))
    assert {TaskId(*task) for task in found.warmups} == warmups
    known = by_3(assignment)
    assert msgspec.structs.astuple(known)[1:] == msgspec.structs.astuple(found)[1:5]
    earlier = MemberAssignment(assignment.partitions, msgspec.msgpack.encode(known))
    assert decode_tasks(earlier) == tasks
    assert decode_standbys(earlier) == standbys
    assert (decode_list(earlier).hosts, decode_list(earlier).warmups, decode_list(earlier).uncovered) == ((), (), ())


@pytest.mark.parametrize("lead", [lead_3, lead_4])
def test_members_of_both_versions_share_a_group_under_either_leader(lead: Callable[[Sequence[MemberInfo]], Mapping[str, MemberAssignment]]) -> None:
    """Each task has one owner and a standby elsewhere, and owned tasks stay."""
    zero, one = TaskId(0, 0), TaskId(0, 1)
    given = lead([old("o", zero), new("n", one, endpoint="http://n:1")])
    active = {"o": {TaskId(*task[:2]) for task in by_3(given["o"]).tasks}, "n": set(decode_tasks(given["n"]))}
    assert zero in active["o"]
    assert one in active["n"]
    assert sorted([*active["o"], *active["n"]]) == [TaskId(0, number) for number in range(4)]
    assert {TaskId(*task) for task in by_3(given["o"]).standbys} == active["n"]
    assert decode_standbys(given["n"]) == active["o"]
    assert decode_processes(given["n"]) == {"o", "n"} == set(by_3(given["o"]).processes)
    hosts = dict(zip("no", decode_list(given["n"]).hosts, strict=False))
    if lead is lead_4:
        assert {name: {TaskId(*task) for task in each.active} for name, each in hosts.items()} == active
        assert {name: each.endpoint for name, each in hosts.items()} == {"o": "", "n": "http://n:1"}
        assert {TaskId(*task) for task in hosts["o"].standbys} == active["n"]
    else:
        assert hosts == {}


def test_a_moving_task_is_on_its_owner_until_the_owner_has_given_it_up() -> None:
    """A query for the task goes to the member that has it, not to the member that will."""
    every = [TaskId(0, number) for number in range(4)]
    first = lead_4([new("a", *every, endpoint="http://a:1"), new("b", endpoint="http://b:1")])
    hosts = {each.endpoint[7]: {TaskId(*task) for task in each.active} for each in decode_list(first["b"]).hosts}
    assert hosts == {"a": set(every), "b": set()}
    kept = decode_tasks(first["a"])
    second = lead_4([new("a", *kept, endpoint="http://a:1"), new("b", endpoint="http://b:1")])
    hosts = {each.endpoint[7]: {TaskId(*task) for task in each.active} for each in decode_list(second["a"]).hosts}
    assert hosts == {"a": set(kept), "b": set(every) - set(kept)}


def test_a_group_without_endpoints_carries_no_map_of_its_members() -> None:
    """Assignments stay small for those who ask nothing."""
    assert decode_list(lead_4([new("a"), new("b")])["a"]).hosts == ()


def large(count: int, tasks: int) -> tuple[int, list[int]]:
    """Return the size of all user data of a group whose members have long addresses, and the lengths of their maps."""
    members = [new(str(UUID(int=number * 7**40)), endpoint=f"https://10.0.0.{number}:7070") for number in range(count)]
    found = GroupAssignor(TOPOLOGY, replicas=1)(members, {"t": tasks})
    size = sum(len(each.user_data) for each in members) + sum(len(each.user_data) for each in found.values())
    return size, [len(decode_list(each).hosts) for each in found.values()]


def test_the_map_of_members_fits_into_the_groups_record_or_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka has one record of at most 1 MiB for a group: a rebalance that it refuses would stop the group for good."""
    size, maps = large(100, 1_000)
    assert (size < 850_000, maps) == (True, [100] * 100)
    assert not caplog.records
    size, maps = large(120, 1_000)
    assert (size < 850_000, maps) == (True, [0] * 120)
    assert "are not told each other's application_server" in caplog.text


@pytest.mark.parametrize("packed", [b"x", zlib.compress(b"\xc1")])
def test_a_map_that_cannot_be_read_is_no_map_and_told_once(packed: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The tasks are taken all the same; the warning says what does not work meanwhile, and what to do."""
    view = GroupView("p", 1000)
    for _ in range(2):
        assert view.tasks(encode_tasks({TaskId(0, 0): ()}, hosts=packed)) == {TaskId(0, 0): ()}
        assert view.hosts == ()
    (told,) = caplog.messages
    assert told.startswith("the map of members in an assignment cannot be decoded: ")
    assert told.endswith("(its user data has version 4): run the same release on all members")


class Fails:
    """An assignor that always fails."""

    def assign(self, group: GroupState) -> Mapping[str, MemberTasks]:
        raise ValueError(f"no answer for {len(group.members)} members")


def test_after_a_failure_one_member_asks_that_knows_of_failures() -> None:
    """Members of version 3 cannot ask for another assignment."""
    for names in ("abc", "ab"):
        members = [old(names[0], TaskId(0, 0)), *map(new, names[1:])]
        found = GroupAssignor(TOPOLOGY, assignor=Fails())(members, {"t": 4})
        assert [name for name in names if decode_list(found[name]).asks] == ["b"]
        assert "no answer" in decode_list(found["b"]).failure
