"""The assignment of standbys, also when members come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors.assignment import (
    GroupAssignor,
    MemberTraits,
    TopologyInfo,
    assign_standbys,
    assign_sticky,
    decode_standbys,
    decode_tasks,
    encode_member,
)  # fmt: skip
from ks_actors.log import MemberInfo

Warm = dict[str, dict[TaskId, int]]
ALL = (1 << 63) - 1


def sized(sizes: list[int]) -> list[TaskId]:
    return [TaskId(number, each) for number, size in enumerate(sizes) for each in range(size)]


TASKS = st.lists(st.integers(0, 6), max_size=4).map(sized)
MEMBERS = st.integers(1, 6).map(lambda count: [f"m{number}" for number in range(count)])


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[str], list[TaskId], Warm]:
    """Members, tasks, and any state that members may have of them."""
    members, tasks = draw(MEMBERS), draw(TASKS)
    states = st.dictionaries(st.sampled_from([*tasks, TaskId(9, 9)]), st.integers(0, 100))
    return members, tasks, {member: draw(states) for member in members}


def loads(active: Mapping[str, tuple[TaskId, ...]], standby: Mapping[str, tuple[TaskId, ...]]) -> dict[str, int]:
    return {member: len(active[member]) + len(standby[member]) for member in active}


# --- where standbys go ----------------------------------------------------------------------------------------------------


@given(groups(), st.integers(0, 7))
def test_every_task_has_its_standbys_on_other_members(group: tuple[list[str], list[TaskId], Warm], replicas: int) -> None:
    """As many as are wanted, or one on each other member; never on the one that has the task."""
    members, tasks, warm = group
    active = assign_sticky(dict.fromkeys(members, ()), tasks, warm)
    standby = assign_standbys(active, tasks, replicas, warm)
    assert standby.keys() == active.keys()
    expected = min(replicas, len(members) - 1)
    assert Counter(task for each in standby.values() for task in each) == (dict.fromkeys(tasks, expected) if expected else {})
    for member in members:
        assert len(set(standby[member])) == len(standby[member])
        assert not set(standby[member]) & set(active[member])


@given(groups(), st.integers(0, 4), st.data())
def test_copies_of_a_task_are_on_different_hosts(group: tuple[list[str], list[TaskId], Warm], replicas: int, data: st.DataObject) -> None:
    """As far as there are hosts; the same again when the standbys have their state."""
    members, tasks, warm = group
    hosts = {member: data.draw(st.sampled_from("abc")) for member in members}
    active = assign_sticky(dict.fromkeys(members, ()), tasks, warm)
    standby = assign_standbys(active, tasks, replicas, warm, hosts)
    for task in tasks:
        copies = [hosts[member] for member in members if task in {*active[member], *standby[member]}]
        assert len(copies) == min(replicas, len(members) - 1) + 1
        assert len(set(copies)) == min(len(copies), len(set(hosts.values())))
    there = {member: dict.fromkeys(standby[member], 100) for member in members}
    assert assign_standbys(active, tasks, replicas, there, hosts) == standby


@given(groups(), st.integers(0, 4), st.data())
def test_tasks_without_state_have_no_standbys(group: tuple[list[str], list[TaskId], Warm], replicas: int, data: st.DataObject) -> None:
    """Standbys exist for stateful tasks alone, spread so that no single move would even out the members more."""
    members, tasks, warm = group
    stateful = [task for task in tasks if data.draw(st.booleans())]
    active = assign_sticky(dict.fromkeys(members, ()), tasks)
    standby = assign_standbys(active, stateful, replicas, warm)
    assert {task for each in standby.values() for task in each} <= set(stateful)
    load = loads(active, standby)
    for giver in members:
        for taker in members:
            if load[giver] >= load[taker] + 2:
                assert set(standby[giver]) <= {*active[taker], *standby[taker]}


@given(groups(), st.integers(0, 6))
def test_members_have_equally_much_to_do(group: tuple[list[str], list[TaskId], Warm], replicas: int) -> None:
    """When all tasks have state: no member has two more than another one, tasks and standbys together."""
    members, tasks, warm = group
    active = assign_sticky(dict.fromkeys(members, ()), tasks, warm)
    load = loads(active, assign_standbys(active, tasks, replicas, warm))
    assert max(load.values()) - min(load.values()) <= 1


@given(groups(), st.integers(0, 4))
def test_standbys_stay_in_their_places(group: tuple[list[str], list[TaskId], Warm], replicas: int) -> None:
    """The result is its own next input, with any other state on members' disks, as long as the standbys are further."""
    members, tasks, warm = group
    active = assign_sticky(dict.fromkeys(members, ()), tasks, warm)
    standby = assign_standbys(active, tasks, replicas, warm)
    later = {member: {**warm[member], **dict.fromkeys(standby[member], 1000), **dict.fromkeys(active[member], ALL)} for member in members}
    assert assign_sticky(active, tasks, later) == active
    assert assign_standbys(active, tasks, replicas, later) == standby


def test_standbys_of_one_member_are_spread() -> None:
    """The standbys of one member's tasks lie on several members, so that its tasks are spread when it dies."""
    tasks = sized([6])
    active = assign_sticky(dict.fromkeys("abc", ()), tasks)
    standby = assign_standbys(active, tasks, 1, {})
    owner = {task: member for member, each in active.items() for task in each}
    pairs = Counter((owner[task], member) for member, each in standby.items() for task in each)
    assert set(pairs.values()) == {1}


def test_the_former_owner_of_a_task_keeps_its_state() -> None:
    """Rather than one that was a standby: it has all of it."""
    (task,) = tasks = sized([1])
    assert assign_standbys({"a": (task,), "b": (), "c": ()}, tasks, 1, {"b": {task: ALL}, "c": {task: 10}}) == {"a": (), "b": (task,), "c": ()}


def test_standbys_leave_the_host_that_members_name() -> None:
    """By the host in their user data: the members of one supervisor fail together."""
    assignor = GroupAssignor(TopologyInfo.of({0: ["t"]}, (), {0}), replicas=1)
    hosts = {"a": "north", "b": "north", "c": "south"}
    infos = [MemberInfo(name, frozenset(), encode_member((), process_id=name, traits=MemberTraits(host=host))) for name, host in hosts.items()]
    found = assignor(infos, {"t": 6})
    active = {task: hosts[name] for name, each in found.items() for task in decode_tasks(each)}
    standby = {task: hosts[name] for name, each in found.items() for task in decode_standbys(each)}
    assert active.keys() == standby.keys()
    assert all(active[task] != standby[task] for task in active)


# --- where tasks go -------------------------------------------------------------------------------------------------------


@given(groups())
def test_a_task_goes_to_the_owner_of_its_state(group: tuple[list[str], list[TaskId], Warm]) -> None:
    """No task begins anew somewhere while a member that has its state has more room than others."""
    members, tasks, warm = group
    after = assign_sticky(dict.fromkeys(members, ()), tasks, warm)
    sizes = [len(each) for each in after.values()]
    assert sorted(task for each in after.values() for task in each) == sorted(tasks)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    for member in members:
        for task in after[member]:
            if task not in warm[member]:
                assert not [other for other in members if task in warm[other] and len(after[other]) < len(after[member])]


@given(TASKS, st.integers(2, 6), st.integers(1, 3))
def test_the_tasks_of_a_member_that_dies_go_to_its_standbys(tasks: list[TaskId], count: int, replicas: int) -> None:
    """As far as the balance allows: a member with room takes over the tasks of its standbys."""
    members = [f"m{number}" for number in range(count)]
    active = assign_sticky(dict.fromkeys(members, ()), tasks)
    standby = assign_standbys(active, tasks, replicas, {})
    dead, left = members[0], members[1:]
    warm = {member: dict.fromkeys(standby[member], 5) for member in left}
    after = assign_sticky({member: active[member] for member in left}, tasks, warm)
    for member in left:
        assert set(active[member]) <= set(after[member])
    cold = [task for member in left for task in set(after[member]) & set(active[dead]) if task not in warm[member]]
    if count == 2:
        assert cold == []
    # Who is a standby for one that went elsewhere has its share, and there is no more for anybody.
    share = len(tasks) // len(left)
    for task in cold:
        assert all(len(after[member]) >= share for member in left if task in warm[member])


def test_a_returning_member_gets_the_tasks_of_its_disk() -> None:
    """Others give up the tasks for which it has the state, and no others."""
    tasks = sized([6])
    owned = {"a": tasks[:3], "b": tasks[3:], "c": []}
    after = assign_sticky(owned, tasks, {"c": {tasks[1]: 7, tasks[4]: 7}})
    assert after["c"] == (tasks[1], tasks[4])


def test_of_several_the_one_with_most_state_is_first() -> None:
    """The member with most state comes first; a member that can take nothing else still gets a task."""
    tasks = sized([2])
    assert assign_sticky({"a": (), "b": ()}, tasks, {"a": {tasks[0]: 9, tasks[1]: 9}, "b": {tasks[0]: 3}}) == {"a": (tasks[1],), "b": (tasks[0],)}
    assert assign_sticky({"a": (), "b": ()}, tasks[:1], {"a": {tasks[0]: 1}, "b": {tasks[0]: 3}}) == {"a": (), "b": (tasks[0],)}
    three = sized([3])
    warm = {"a": {three[0]: 9, three[1]: 8}, "b": {three[1]: 9, three[2]: 9}, "c": {three[2]: 1}}
    assert assign_sticky(dict.fromkeys("abc", ()), three, warm) == {"a": (three[0],), "b": (three[1],), "c": (three[2],)}


# --- the group ------------------------------------------------------------------------------------------------------------


class Group:
    """Members that behave as real ones: they keep tasks until an assignment lacks them, and keep their standbys up to date."""

    def __init__(self, replicas: int, counts: dict[str, int]) -> None:
        self.assignor = GroupAssignor(TopologyInfo.of({0: ["t"], 1: ["u"]}, (), {0}), replicas=replicas)
        self.counts = counts
        self.replicas = replicas
        self.held: dict[str, set[TaskId]] = {}
        self.standing: dict[str, set[TaskId]] = {}
        self.generation = 0

    def rebalance(self) -> bool:
        """Return whether another rebalance has to follow, since somebody had to let go."""
        self.generation += 1
        infos = [
            MemberInfo(
                name,
                frozenset(),
                encode_member(held, process_id=name, generation=self.generation - 1, offsets=dict.fromkeys(self.standing[name] - held, 10)),
            )
            for name, held in self.held.items()
        ]
        assignments = self.assignor(infos, self.counts)
        active = {name: set(decode_tasks(each)) for name, each in assignments.items()}
        standby = {name: set(decode_standbys(each)) for name, each in assignments.items()}
        for name, mine in active.items():
            others = set[TaskId]().union(*(held for other, held in self.held.items() if other != name))
            assert not mine & others, "what another member held was given away"
            assert not mine & standby[name], "both at once"
            assert all(task.subtopology == 0 for task in standby[name])
        lost = any(self.held[name] - active[name] for name in active)
        self.held, self.standing = active, standby
        return lost


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=12), st.integers(1, 7), st.integers(0, 3), st.integers(0, 3))
def test_a_group_settles_with_all_its_standbys(changes: list[tuple[bool, int]], first: int, second: int, replicas: int) -> None:
    """Members come and go: after at most one more rebalance every task has one owner and its standbys; then nothing moves any more."""
    group = Group(replicas, {"t": first, "u": second} if second else {"t": first, "u": 1})
    for comes, number in changes:
        if comes:
            group.held.setdefault(f"m{number}", set())
            group.standing.setdefault(f"m{number}", set())
        else:
            group.held.pop(f"m{number}", None)
            group.standing.pop(f"m{number}", None)
        if not group.held:
            continue
        if group.rebalance():
            assert not group.rebalance()
        copies = Counter(task for each in group.standing.values() for task in each)
        expected = min(replicas, len(group.held) - 1)
        assert copies == ({TaskId(0, number): expected for number in range(first)} if expected else {})
        before = group.held, group.standing
        assert not group.rebalance()
        assert (group.held, group.standing) == before


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_task_on_its_way_is_a_standby_of_its_next_owner(replicas: int) -> None:
    """The next owner restores it as a standby, and its owner keeps the whole state after giving it up."""
    group = Group(replicas, {"t": 4, "u": 1})
    group.held, group.standing = {"a": {*sized([4]), TaskId(1, 0)}, "b": set()}, {"a": set(), "b": set()}
    assert group.rebalance()
    moved = set(sized([4])) - group.held["a"]
    assert moved
    assert group.held["b"] == set()
    assert moved <= group.standing["b"]
    assert moved <= group.standing["a"]
    assert not group.rebalance()
    assert moved <= group.held["b"]
    assert moved <= group.standing["a"]
