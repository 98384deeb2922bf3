"""The leader's part in a rebalance, and the data that members send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors._errors import KsActorsError, MissingSourceTopics, SerializationError, StreamsError, TopologyError
from ks_actors.assignment import (
    MemberState,
    TaskAssignor,
    TopologyInfo,
    decode_member,
    decode_processes,
    decode_standbys,
    decode_tasks,
    encode_member,
    encode_problem,
    encode_tasks,
)
from ks_actors.log import MemberAssignment, MemberInfo, TopicPartition
from ks_actors.runtime.membership._group_view import GroupView

TASK_IDS = st.builds(TaskId, st.integers(0, 9), st.integers(0, 99))
PARTITIONS = st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 99))


def member(name: str, *owned: TaskId, generation: int = 1) -> MemberInfo:
    return MemberInfo(name, frozenset({"t"}), encode_member(owned, process_id=name, generation=generation))


def tasks(*ids: str) -> set[TaskId]:
    return {TaskId.parse(each) for each in ids}


def given_to(assignments: Mapping[str, MemberAssignment]) -> dict[str, set[TaskId]]:
    return {name: set(decode_tasks(each)) for name, each in assignments.items()}


# --- what is told ---------------------------------------------------------------------------------------------------------


@given(st.sets(TASK_IDS), st.text(), st.integers(0, 1000), st.integers(-1, 1 << 31))
def test_the_data_of_a_member_is_understood(owned: set[TaskId], process_id: str, counter: int, generation: int) -> None:
    """Tasks in order, the counter as a byte."""
    data = encode_member(owned, process_id=process_id, counter=counter, generation=generation)
    told = tuple((task.subtopology, task.partition) for task in sorted(owned))
    assert decode_member(data) == MemberState(4, process_id, counter % 256, generation, told)
    assert encode_member(owned, process_id=process_id, counter=counter + 1, generation=generation) != data


@given(st.dictionaries(TASK_IDS, st.integers(0, 1 << 62)), st.sets(TASK_IDS))
def test_state_and_standbys_are_understood(offsets: dict[TaskId, int], standbys: set[TaskId]) -> None:
    """Each task with the sum of its offsets, and each standby."""
    told = decode_member(encode_member((), process_id="p", offsets=offsets)).offsets
    assert told == tuple((task.subtopology, task.partition, offset) for task, offset in sorted(offsets.items()))
    assert decode_standbys(encode_tasks({}, (), standbys)) == standbys


@given(st.dictionaries(TASK_IDS, st.lists(PARTITIONS).map(tuple)))
def test_the_data_of_the_leader_is_understood(given_tasks: dict[TaskId, tuple[TopicPartition, ...]]) -> None:
    """Each task with its partitions, for any partitions."""
    assignment = encode_tasks(given_tasks)
    assert decode_tasks(assignment) == given_tasks
    assert list(decode_tasks(assignment)) == sorted(given_tasks)
    assert sorted(assignment.partitions) == sorted(partition for each in given_tasks.values() for partition in each)


def test_a_member_without_data_owns_nothing() -> None:
    """No user data, no tasks."""
    assert decode_member(b"").tasks == ()
    assert decode_tasks(MemberAssignment(())) == {}


def test_fields_of_a_later_version_are_ignored() -> None:
    """Members of several versions can be in one group."""
    told = ["e", "h", [["k", "v"]], "r", [[0, 1, 9]], "g", "more"]
    later = msgspec.msgpack.encode([5, "process", 0, 5, [[0, 1]], [[0, 2, 7]], [[[0, ["t"], True]], [], [], "more"], *told])
    topology = TopologyInfo(((0, ("t",), True),))
    assert decode_member(later) == MemberState(5, "process", 0, 5, ((0, 1),), ((0, 2, 7),), topology, "e", "h", (("k", "v"),), "r", ((0, 1, 9),), "g")


def test_fields_missing_in_an_earlier_version_are_absent() -> None:
    """Neither state that a member has nor standbys that it is to have."""
    earlier = msgspec.msgpack.encode([1, "process", 0, 5, [[0, 1]]])
    assert decode_member(earlier) == MemberState(1, "process", 0, 5, ((0, 1),))
    assert decode_standbys(MemberAssignment((), msgspec.msgpack.encode([1, [[0, 1, []]]]))) == frozenset()
    assert decode_standbys(MemberAssignment(())) == decode_standbys(MemberAssignment((), b"no")) == frozenset()


@pytest.mark.parametrize("data", [b"\xc1", b"{}", msgspec.msgpack.encode([1, "p", 0, 0, "tasks"])])
def test_foreign_user_data_is_an_error(data: bytes) -> None:
    """The group's name is probably taken."""
    with pytest.raises(SerializationError, match="does another program use"):
        decode_member(data)
    with pytest.raises(SerializationError, match="does another program use"):
        decode_tasks(MemberAssignment((), data))


@pytest.mark.parametrize("error", [MissingSourceTopics("no t"), TopologyError("no good"), StreamsError("no way"), SerializationError("no sense")])
def test_a_problem_has_its_own_error(error: KsActorsError) -> None:
    """Any other error of ours is a StreamsError to members."""
    expected = StreamsError if isinstance(error, SerializationError) else type(error)
    with pytest.raises(expected, match=f"^{error}$") as caught:
        decode_tasks(encode_problem(error))
    assert type(caught.value) is expected


def test_members_learn_the_other_members() -> None:
    """By their process ids; a leader that does not tell is understood, too."""
    assignments = TaskAssignor({0: ["t"]})([member("a"), member("b"), MemberInfo("c", frozenset(), b"")], {"t": 1})
    assert {decode_processes(each) for each in assignments.values()} == {frozenset({"a", "b"})}
    assert decode_processes(MemberAssignment(())) == decode_processes(MemberAssignment((), b"no")) == frozenset()


def test_one_of_the_remaining_members_gets_the_departed_processes() -> None:
    """Exactly one of them, and none that was not a member before."""
    views = {name: GroupView(name, 1000) for name in "abc"}
    for view in views.values():
        assert view.take_departed(encode_tasks({}, "abc")) == frozenset()
    views["d"] = GroupView("d", 1000)
    assert {name: view.take_departed(encode_tasks({}, "bcd")) for name, view in views.items() if name != "a"} == {
        "b": frozenset({"a"}), "c": frozenset(), "d": frozenset(),
    }  # fmt: skip


def test_a_member_that_was_out_of_the_group_counts_none_as_gone() -> None:
    """After an outage all come back, one after the other: the first one is not to take the others' transactions."""
    view = GroupView("a", 1000)
    view.take_departed(encode_tasks({}, "abc"))
    view.forget()
    assert view.take_departed(encode_tasks({}, "a")) == frozenset()
    assert view.take_departed(encode_tasks({}, "ab")) == frozenset()
    assert view.take_departed(encode_tasks({}, "a")) == {"b"}


# --- what is assigned -----------------------------------------------------------------------------------------------------


def test_a_first_member_gets_everything() -> None:
    """With the partitions of each task."""
    assignor = TaskAssignor({0: ["a", "b"], 1: ["c"]})
    assignments = assignor([MemberInfo("m", frozenset(), b"")], {"a": 1, "b": 1, "c": 1})
    assert decode_tasks(assignments["m"]) == {
        TaskId(0, 0): (TopicPartition("a", 0), TopicPartition("b", 0)),
        TaskId(1, 0): (TopicPartition("c", 0),),
    }


def test_tasks_still_owned_are_not_assigned() -> None:
    """Its owner has to release it first; the next rebalance gives it to its new owner."""
    assignor, counts = TaskAssignor({0: ["t"]}), {"t": 4}
    first = given_to(assignor([member("a", *tasks("0_0", "0_1", "0_2", "0_3")), member("b")], counts))
    assert first == {"a": tasks("0_0", "0_1"), "b": set()}
    second = given_to(assignor([member("a", *first["a"]), member("b")], counts))
    assert second == {"a": tasks("0_0", "0_1"), "b": tasks("0_2", "0_3")}


def test_tasks_of_the_dead_are_given_at_once() -> None:
    """Nobody has to let go of them."""
    assert given_to(TaskAssignor({0: ["t"]})([member("b", *tasks("0_0"))], {"t": 3})) == {"b": tasks("0_0", "0_1", "0_2")}


def test_of_two_claims_to_a_task_the_newer_one_counts() -> None:
    """The other one has missed a rebalance."""
    members = [member("a", *tasks("0_0"), generation=3), member("b", *tasks("0_0", "0_1"), generation=4)]
    assert given_to(TaskAssignor({0: ["t"]})(members, {"t": 2})) == {"a": set(), "b": tasks("0_0")}


def test_tasks_that_there_are_no_more_are_forgotten() -> None:
    """A member may have read another topology before."""
    assert given_to(TaskAssignor({0: ["t"]})([member("a", *tasks("5_5"))], {"t": 1})) == {"a": tasks("0_0")}


@pytest.mark.parametrize(
    ("members", "counts", "error", "message"),
    [
        ([member("a")], {"t": 1}, MissingSourceTopics, "source topics u do not exist"),
        ([member("a")], {"t": 1, "u": 2}, TopologyError, "t has 1, u has 2"),
        ([member("a"), MemberInfo("b", frozenset(), b"?")], {"t": 1, "u": 1}, StreamsError, "does another program use"),
    ],
)
def test_every_member_gets_the_error_that_prevents_an_assignment(
    members: list[MemberInfo], counts: dict[str, int], error: type[Exception], message: str
) -> None:
    """The error reaches all members, not the leader alone."""
    assignments = TaskAssignor({0: ["t", "u"]}, [{"t", "u"}])(members, counts)
    assert assignments.keys() == {each.member_id for each in members}
    for assignment in assignments.values():
        assert assignment.partitions == ()
        with pytest.raises(error, match=message):
            decode_tasks(assignment)


def test_grouper_and_assignment_can_be_replaced() -> None:
    """By functions of the same form."""

    def pairs(subtopologies: Any, partitions: Any) -> Any:
        return {TaskId(0, 0): (TopicPartition("t", 0), TopicPartition("t", 1))}

    def to_the_last(owned: Any, all_tasks: Any, warm: Any) -> Any:
        return {max(owned): all_tasks}

    assignments = TaskAssignor({0: ["t"]}, grouper=pairs, assign=to_the_last)([member("a"), member("b")], {"t": 2})
    assert decode_tasks(assignments["b"]) == {TaskId(0, 0): (TopicPartition("t", 0), TopicPartition("t", 1))}
    assert decode_tasks(assignments["a"]) == {}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"a": tasks("0_0")}, "0_1 goes to 0 members"),
        ({"a": tasks("0_0", "0_1"), "b": tasks("0_1")}, "0_1 goes to 2 members"),
        ({"a": tasks("0_0", "0_1", "0_7")}, "0_7 is not a task"),
        ({"c": tasks("0_0", "0_1")}, "c is not a member"),
    ],
)
def test_an_assignment_that_is_wrong_is_refused(wanted: Any, message: str) -> None:
    """Each task has to go to exactly one of the members."""
    assignments = TaskAssignor({0: ["t"]}, assign=lambda owned, all_tasks, warm: wanted)([member("a"), member("b")], {"t": 2})
    with pytest.raises(StreamsError, match=message):
        decode_tasks(assignments["a"])


OLD, NEW = TopologyInfo.of({0: ["a"]}), TopologyInfo.of({0: ["a", "b"], 1: ["r"]}, (), [1])


def told(name: str, topology: TopologyInfo | None, *owned: TaskId, generation: int = -1) -> MemberInfo:
    return MemberInfo(name, frozenset(), encode_member(owned, process_id=name, generation=generation, topology=topology))


def topics_of(assignment: MemberAssignment) -> dict[str, set[str]]:
    return {str(task): {partition.topic for partition in partitions} for task, partitions in decode_tasks(assignment).items()}


@pytest.mark.parametrize("leader", [OLD, NEW])
def test_each_member_gets_tasks_as_its_own_version_has_them(leader: TopologyInfo) -> None:
    """With any leader: partitions that an old version does not read go to members of the new one, as do tasks that it does not have."""
    assignor = TaskAssignor(leader.topics, replicas=1, stateful=leader.stateful)
    counts = {"a": 2, "b": 2, "r": 2}
    found = assignor([told("o", OLD, *tasks("0_0", "0_1"), generation=1), told("n", NEW)], counts)
    assert topics_of(found["o"]) == {"0_0": {"a"}, "0_1": {"a"}} or topics_of(found["o"]) == {"0_0": {"a"}}
    assert topics_of(found["n"]).items() >= {"1_0": {"r"}, "1_1": {"r"}}.items()
    assert decode_standbys(found["o"]) == frozenset()
    after = assignor([told("o", OLD, *tasks("0_0"), generation=2), told("n", NEW, *tasks("1_0", "1_1"), generation=2)], counts)
    assert topics_of(after["o"]) == {"0_0": {"a"}}
    assert topics_of(after["n"])["0_1"] == {"a", "b"}


def test_members_of_before_run_the_leaders_version() -> None:
    """They do not tell theirs."""
    found = TaskAssignor(NEW.topics)([told("o", None), told("n", NEW)], {"a": 1, "b": 1, "r": 1})
    assert {task: topics for each in found.values() for task, topics in topics_of(each).items()} == {"0_0": {"a", "b"}, "1_0": {"r"}}


@pytest.mark.parametrize(("old", "new"), [("o", "n"), ("n", "o")])
def test_a_newcomer_whose_tasks_mean_something_else_is_refused(old: str, new: str) -> None:
    """It gets an error, from any leader and for any name; the others keep their tasks."""
    shifted = TopologyInfo.of({0: ["x"], 1: ["a"]})
    found = TaskAssignor(shifted.topics)([told(old, OLD, *tasks("0_0"), generation=4), told(new, shifted)], {"a": 1, "x": 1})
    assert topics_of(found[old]) == {"0_0": {"a"}}
    with pytest.raises(TopologyError, match=r"topic a belongs to subtopology 1 here, and to subtopology 0 there.*stop all members"):
        decode_tasks(found[new])
    renamed = TopologyInfo.of({0: ["y"]})
    found = TaskAssignor(OLD.topics)([told(old, OLD, *tasks("0_0"), generation=4), told(new, renamed)], {"a": 1, "y": 1})
    with pytest.raises(TopologyError, match="subtopology 0 reads y here, and a there"):
        decode_tasks(found[new])


def test_a_version_that_cannot_have_tasks_does_not_stop_the_others() -> None:
    """Topics that are missing are told to the members that read them."""
    found = TaskAssignor(NEW.topics)([told("o", OLD, *tasks("0_0"), generation=1), told("n", NEW)], {"a": 1, "r": 1})
    assert topics_of(found["o"]) == {"0_0": {"a"}}
    with pytest.raises(MissingSourceTopics, match="b"):
        decode_tasks(found["n"])


class Group:
    """Members that behave as real ones: they keep their tasks until an assignment lacks them."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.assignor = TaskAssignor({0: ["t"], 1: ["u"]})
        self.counts = counts
        self.held: dict[str, set[TaskId]] = {}
        self.generation = 0

    def rebalance(self) -> bool:
        """Return whether another rebalance has to follow, since somebody had to let go."""
        self.generation += 1
        infos = [member(name, *held, generation=self.generation - 1) for name, held in self.held.items()]
        after = given_to(self.assignor(infos, self.counts))
        for name, mine in after.items():
            others = set[TaskId]().union(*(held for other, held in self.held.items() if other != name))
            assert not mine & others, "what another member held was given away"
        lost = any(self.held[name] - after[name] for name in after)
        self.held = after
        return lost


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=12), st.integers(1, 7), st.integers(1, 4))
def test_a_group_settles_and_nothing_is_ever_owned_twice(changes: list[tuple[bool, int]], first: int, second: int) -> None:
    """Members come and go: after at most one more rebalance every task has one owner and sizes are even."""
    group = Group({"t": first, "u": second})
    for comes, number in changes:
        if comes:
            group.held.setdefault(f"m{number}", set())
        else:
            group.held.pop(f"m{number}", None)
        if not group.held:
            continue
        if group.rebalance():
            assert not group.rebalance()
        sizes = [len(held) for held in group.held.values()]
        assert sum(sizes) == first + second
        assert max(sizes) - min(sizes) <= 1
