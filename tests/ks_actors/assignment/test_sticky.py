"""The assignment of tasks to members."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors.assignment import assign_sticky

TASKS = st.lists(st.integers(0, 6), max_size=4).map(lambda sizes: [TaskId(number, each) for number, size in enumerate(sizes) for each in range(size)])
MEMBERS = st.integers(1, 6).map(lambda count: [f"m{number}" for number in range(count)])


@st.composite
def owned_tasks(draw: st.DrawFn) -> tuple[dict[str, list[TaskId]], list[TaskId]]:
    """Members that own any of the tasks, or tasks that do not exist any more, or the same ones."""
    tasks, members = draw(TASKS), draw(MEMBERS)
    pool = [*tasks, TaskId(9, 9)]
    return {member: draw(st.lists(st.sampled_from(pool), unique=True, max_size=len(pool))) for member in members}, tasks


def kept(before: dict[str, list[TaskId]], after: dict[str, tuple[TaskId, ...]]) -> int:
    return sum(len(set(before[member]) & set(after[member])) for member in before)


@given(owned_tasks())
def test_every_task_goes_to_one_member_and_sizes_are_even(case: tuple[dict[str, list[TaskId]], list[TaskId]]) -> None:
    """With any earlier owners, the result is final."""
    owned, tasks = case
    after = assign_sticky(owned, tasks)
    assert sorted(task for each in after.values() for task in each) == sorted(tasks)
    sizes = [len(each) for each in after.values()]
    assert max(sizes) - min(sizes) <= 1
    assert after.keys() == owned.keys()
    assert assign_sticky(after, tasks) == after


@given(TASKS, MEMBERS)
def test_without_owners_each_subtopology_is_spread_evenly(tasks: list[TaskId], members: list[str]) -> None:
    """Since tasks of one subtopology cost alike."""
    after = assign_sticky(dict.fromkeys(members, ()), tasks)
    for subtopology in {task.subtopology for task in tasks}:
        counts = [Counter(task.subtopology for task in each)[subtopology] for each in after.values()]
        assert max(counts) - min(counts) <= 1


@given(TASKS, st.integers(1, 4), st.data())
def test_as_few_tasks_move_as_evenness_allows(tasks: list[TaskId], count: int, data: st.DataObject) -> None:
    """Compared with every way to give some members one task more than others."""
    members = [f"m{number}" for number in range(count)]
    owner = {task: data.draw(st.sampled_from([*members, None])) for task in tasks}
    owned = {member: [task for task in tasks if owner[task] == member] for member in members}
    share, extra = divmod(len(tasks), count)
    best = max(sum(min(len(owned[member]), share + (member in more)) for member in members) for more in combinations(members, extra))
    assert kept(owned, assign_sticky(owned, tasks)) == best


@given(TASKS, st.integers(2, 6))
def test_nothing_moves_between_members_that_stay(tasks: list[TaskId], count: int) -> None:
    """When a member joins or leaves, tasks move only to it or from it."""
    all_members = [f"m{number}" for number in range(count)]
    before = assign_sticky(dict.fromkeys(all_members[1:], ()), tasks)
    after = assign_sticky({**before, all_members[0]: ()}, tasks)
    assert all(set(after[member]) <= set(before[member]) for member in before)
    again = assign_sticky({member: after[member] for member in before}, tasks)
    assert all(set(again[member]) >= set(after[member]) for member in before)


def test_a_member_gives_up_tasks_of_its_largest_share() -> None:
    """Giving up tasks of the largest share keeps subtopologies spread."""
    tasks = [TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1)]
    after = assign_sticky({"a": tasks, "b": ()}, tasks)
    assert after == {"a": (TaskId(0, 0), TaskId(1, 0)), "b": (TaskId(0, 1), TaskId(1, 1))}
