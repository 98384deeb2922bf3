"""An assignor of a user: its facts, the verification of its answer, and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import GroupState, MemberFacts, MemberTasks, StickyTaskAssignor, TaskId
from ks_actors._errors import StreamsError, TopologyError
from ks_actors.assignment import (
    GroupAssignor,
    Grouping,
    MemberTraits,
    TopologyInfo,
    decode_list,
    decode_standbys,
    decode_tasks,
    encode_member,
)
from ks_actors.log import MemberAssignment, MemberInfo, TopicPartition
from ks_actors.runtime.membership._group_view import GroupView

TOPOLOGY = TopologyInfo.of({0: ["t"], 1: ["u"]}, (), [0])
COUNTS = {"t": 2, "u": 1}


def tasks(*ids: str) -> frozenset[TaskId]:
    return frozenset(map(TaskId.parse, ids))


def member(name: str, *owned: str, generation: int = 1, grouping: str = "", **more: Any) -> MemberInfo:
    traits = MemberTraits(tags=more.pop("tags", {}), grouping=grouping)
    topology = more.pop("topology", TOPOLOGY)
    data = encode_member(tasks(*owned), process_id=name, generation=generation, topology=topology, traits=traits, **more)
    return MemberInfo(name, frozenset({"t"}), data)


class Says:
    """An assignor that answers by a function, and remembers what it was asked."""

    def __init__(self, answer: Callable[[GroupState], Any]) -> None:
        self.answer = answer
        self.asked: list[GroupState] = []

    def assign(self, group: GroupState) -> Any:
        self.asked.append(group)
        return self.answer(group)


def answers(wanted: Mapping[str, tuple[str, str]]) -> Says:
    found = {name: MemberTasks(tasks(*active.split()), tasks(*standbys.split())) for name, (active, standbys) in wanted.items()}
    return Says(lambda _: found)


def active(given: Mapping[str, MemberAssignment]) -> dict[str, set[TaskId]]:
    return {name: set(decode_tasks(each)) for name, each in given.items()}


def test_an_assignor_sees_members_with_tags_state_and_lags() -> None:
    """A task's owner lacks nothing; others lack what its owner's state is ahead of theirs."""
    zero, one = TaskId(0, 0), TaskId(0, 1)
    says = answers({"a": ("0_0 1_0", "0_1"), "b": ("0_1", "0_0")})
    old = TopologyInfo.of({0: ["t"]}, (), [0])
    GroupAssignor(TOPOLOGY, assignor=says, replicas=2)(
        [
            member("a", "0_0", "1_0", tags={"zone": "x"}, ends={zero: 100}, offsets={zero: 100}),
            member("b", "0_1", offsets={zero: 70, one: 40}, standbys=tasks("0_0"), topology=old),
        ],
        COUNTS,
    )
    (group,) = says.asked
    assert group.standby_replicas == 2
    assert group.members == {
        "a": MemberFacts(process_id="a", host="a", tags={"zone": "x"}, active=tasks("0_0", "1_0"), lags={zero: 0, TaskId(1, 0): 0}),
        "b": MemberFacts(process_id="b", host="b", active=tasks("0_1"), standbys=tasks("0_0"), lags={zero: 30, one: 0}),
    }
    facts = {str(task): (each.partitions, each.stateful, sorted(each.members)) for task, each in group.tasks.items()}
    assert facts == {
        "0_0": ((TopicPartition("t", 0),), True, ["a", "b"]),
        "0_1": ((TopicPartition("t", 1),), True, ["a", "b"]),
        "1_0": ((TopicPartition("u", 0),), False, ["a"]),
    }


def test_the_answer_of_an_assignor_is_the_assignment() -> None:
    """Tasks that another member owns wait for it, with their state kept up to date meanwhile."""
    says = answers({"a": ("0_1", "0_0"), "b": ("0_0 1_0", "0_1")})
    found = GroupAssignor(TOPOLOGY, assignor=says)([member("a", "0_0", "1_0"), member("b", "0_1")], COUNTS)
    assert active(found) == {"a": set(), "b": set()}
    assert {name: decode_standbys(each) for name, each in found.items()} == {"a": tasks("0_0", "0_1"), "b": tasks("0_0", "0_1")}
    found = GroupAssignor(TOPOLOGY, assignor=says)([member("a"), member("b")], COUNTS)
    assert active(found) == {"a": tasks("0_1"), "b": tasks("0_0", "1_0")}
    assert {name: decode_standbys(each) for name, each in found.items()} == {"a": tasks("0_0"), "b": tasks("0_1")}


WRONG = [
    (answers({"a": ("0_0", "")}), r"breaks rules: 0_1 goes to 0 members, 1_0 goes to 0 members"),
    (answers({"a": ("0_0 0_1 1_0", ""), "b": ("0_1", "")}), "0_1 goes to 2 members"),
    (answers({"a": ("0_0 0_1 1_0 5_5", "")}), "5_5 is not a task"),
    (answers({"a": ("0_0 0_1 1_0", ""), "z": ("", "")}), "z is not a member"),
    (answers({"a": ("0_0 0_1", ""), "b": ("1_0", "")}), "1_0 is not in b's version of the topology"),
    (answers({"a": ("0_0 0_1 1_0", "0_0")}), "0_0 is active and a standby on a"),
    (answers({"a": ("0_0 0_1 1_0", "1_0")}), "standby 1_0 is without state"),
    (answers({"a": ("0_0 0_1 1_0", "0_9")}), "standby 0_9 is not a task"),
    (Says(lambda _: {"a": ["0_0"]}), "'a' has list, and no MemberTasks"),
    (Says(lambda _: None), "its answer is NoneType, and no mapping"),
    (Says(lambda group: group.tasks[TaskId(9, 9)]), "raised KeyError: TaskId(subtopology=9, partition=9)"),
]


@pytest.mark.parametrize(("says", "message"), WRONG)
def test_after_a_failure_all_tasks_stay_and_members_are_told(says: Says, message: str) -> None:
    """Owned tasks and standbys stay, and tasks of no member stay unassigned."""
    old = TopologyInfo.of({0: ["t"]}, (), [0])
    members = [member("a", "0_0", standbys=tasks("0_1")), member("b", "0_1", topology=old)]
    found = GroupAssignor(TOPOLOGY, assignor=says)(members, COUNTS)
    assert active(found) == {"a": tasks("0_0"), "b": tasks("0_1")}
    assert {name: decode_standbys(each) for name, each in found.items()} == {"a": tasks("0_1"), "b": frozenset()}
    for name, assignment in found.items():
        assert message.replace("\\", "") in decode_list(assignment).failure
        failure, asks = GroupView(name, 1).failure(assignment)
        assert (bool(failure), asks) == (True, name == "a")


def test_a_failure_in_a_new_group_ends_its_members() -> None:
    """There is nothing to keep: nobody would see the error otherwise."""
    found = GroupAssignor(TOPOLOGY, assignor=Says(lambda _: {}))([member("a", generation=-1)], COUNTS)
    with pytest.raises(StreamsError, match=r"Says breaks rules: 0_0 goes to 0 members.*no earlier assignment to keep"):
        decode_tasks(found["a"])


class Halves:
    """A grouper that puts two partitions of a topic into each task."""

    def __init__(self, name: str = "halves", error: Exception | None = None) -> None:
        self.name = name
        self.error = error

    def group(self, topics: Mapping[int, Any], partitions: Mapping[str, int]) -> dict[TaskId, list[TopicPartition]]:
        if self.error is not None:
            raise self.error
        found: dict[TaskId, list[TopicPartition]] = {}
        for subtopology, names in topics.items():
            for topic in names:
                for number in range(partitions[topic]):
                    found.setdefault(TaskId(subtopology, number // 2), []).append(TopicPartition(topic, number))
        return found


@pytest.mark.parametrize("leader", ["", "halves"])
def test_a_newcomer_with_another_grouper_is_refused_by_any_leader(leader: str) -> None:
    """The others keep their tasks, also if the leader is the newcomer."""
    assignor = GroupAssignor(TOPOLOGY, grouping=Grouping(Halves() if leader else None))
    for here, new in (("", "halves"), ("halves", "")):
        found = assignor([member("a", "0_0", grouping=here), member("b", grouping=new, generation=-1)], {"t": 4, "u": 1})
        with pytest.raises(TopologyError, match=r"grouper 'halves'.*all members need the same one. Nothing was started"):
            decode_tasks(found["b"])
        if here and not leader:
            assert (decode_list(found["a"]).kept, "lacks the partition grouper 'halves'" in decode_list(found["a"]).failure) == (True, True)
            view = GroupView("a", 1)
            view.tasks(assignor([member("a", generation=-1)], COUNTS)["a"])
            kept = set(view.tasks(found["a"]))
            assert kept == tasks("0_0", "0_1", "1_0")
        else:
            number = len(decode_tasks(found["a"]))
            assert number == (3 if here else 5)


def test_a_grouper_that_fails_later_keeps_the_tasks_of_members_that_have_some() -> None:
    """A newcomer gets the error."""
    assignor = GroupAssignor(TOPOLOGY, grouping=Grouping(Halves(error=ValueError("no"))))
    found = assignor([member("a", "0_0", grouping="halves"), member("b", generation=-1, grouping="halves")], COUNTS)
    assert decode_list(found["a"]).kept
    with pytest.raises(TopologyError, match=r"the partition grouper 'halves' .*raised ValueError: no"):
        decode_tasks(found["b"])


def test_a_member_with_a_grouper_refuses_a_leader_that_knows_none() -> None:
    """A leader of an earlier release would group by numbers."""
    given = GroupAssignor(TOPOLOGY)([member("a")], COUNTS)["a"]
    earlier = MemberAssignment(given.partitions, msgspec.msgpack.encode([3, *msgspec.msgpack.decode(given.user_data)[1:5]]))
    with pytest.raises(TopologyError, match="knows no partition groupers"):
        GroupView("a", 1, traits=MemberTraits(grouping="halves")).tasks(earlier)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 2), st.lists(st.booleans(), min_size=4, max_size=4))
def test_the_sticky_assignor_gives_tasks_only_where_they_may_be(members: int, partitions: int, replicas: int, may: list[bool]) -> None:
    """Each task on one member that may have it, spread evenly; its answer stays, once it is the assignment."""
    allowed = {f"m{number}" for number in range(members) if may[number]}
    sticky = StickyTaskAssignor(lambda _, facts: facts.process_id in allowed)
    assignor = GroupAssignor(TOPOLOGY, assignor=sticky, replicas=replicas)
    counts = {"t": partitions, "u": 1}
    names = [f"m{number}" for number in range(members)]
    found = assignor([member(name, generation=-1) for name in names], counts)
    if not allowed:
        with pytest.raises(StreamsError, match=r"no member of the group may have this task \(task 0_0\)"):
            decode_tasks(found["m0"])
        return
    given = active(found)
    assert sorted(task for each in given.values() for task in each) == sorted([*(TaskId(0, n) for n in range(partitions)), TaskId(1, 0)])
    sizes = [len(given[name]) for name in allowed]
    assert max(sizes) - min(sizes) <= 1
    standing = {name: decode_standbys(each) for name, each in found.items()}
    assert all(not given[name] and not standing[name] for name in set(names) - allowed)
    assert sum(map(len, standing.values())) == partitions * min(replicas, len(allowed) - 1)
    again = assignor([member(name, *map(str, given[name]), standbys=standing[name]) for name in names], counts)
    assert active(again) == given
