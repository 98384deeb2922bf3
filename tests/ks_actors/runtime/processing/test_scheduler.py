"""The task that a free worker gets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors.runtime.processing._ready_tasks import DueTimes
from ks_actors.runtime.processing._scheduler import PATIENCE_S, STARVED_S, Schedule
from tests.examples_of import examples

SLICE = 0.005


def task(number: int, buffered: int) -> Any:
    """Return the schedule's view of a task."""
    return SimpleNamespace(id=TaskId(0, number), group=SimpleNamespace(buffered=buffered))


def first(schedule: Schedule, now: float) -> Any:
    """Return the next task, None when there is none."""
    found = schedule.pick(now)
    return None if found is None else found[0]


def turns(schedule: Schedule, tasks: Sequence[Any], count: int) -> list[int]:
    """Return the order of turns when all of these always have work."""
    found: list[int] = []
    for each in tasks:
        schedule.enter(each, 0.0)
    for turn in range(count):
        now = turn * SLICE
        picked = first(schedule, now)
        assert picked is not None
        assert picked.id not in schedule
        found.append(picked.id.partition)
        schedule.enter(picked, now + SLICE)
    return found


def longest_gaps(found: Sequence[int]) -> dict[int, int]:
    """Return the most turns from one turn of each task to its next."""
    places: dict[int, list[int]] = {}
    for place, number in enumerate(found):
        places.setdefault(number, [0]).append(place)
    return {number: max(later - earlier for earlier, later in pairwise([*at, len(found)])) for number, at in places.items()}


def test_the_task_with_the_most_records_comes_first() -> None:
    """Of equal priority the one with the most buffered records comes first, as long as nobody has waited for too long."""
    assert Schedule(None).pick(0.0) is None
    few = int(PATIENCE_S / SLICE)
    assert turns(Schedule(None), [task(0, 5), task(1, 7), task(2, 6)], few) == [1] * few
    schedule = Schedule(None)
    growing = task(0, 1)
    schedule.enter(growing, 0.0)
    schedule.enter(task(1, 5), 0.0)
    growing.group.buffered = 9
    schedule.enter(growing, 0.0)
    assert schedule.pick(0.0) == (growing, 0.0)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 5)), min_size=1, max_size=30))
def test_a_turn_that_takes_all_tasks_takes_them_in_the_order_of_single_turns(waits: list[tuple[float, int]]) -> None:
    """All together have the order that they would have one by one."""
    alone, together = Schedule(None), Schedule(None)
    for number, (since, buffered) in enumerate(waits):
        each = task(number, buffered)
        each.work_ms, each.blocking = 0.1, False
        alone.enter(each, since)
        together.enter(each, since)
    assert together.take_all(0.3, len(waits) - 1, 5.0) == ()
    assert together.take_all(0.3, len(waits), 0.1 * len(waits) - 0.05) == ()
    assert list(together.take_all(0.3, len(waits), 0.1 * len(waits) + 0.05)) == [alone.pick(0.3) for _ in waits]
    assert len(together) == len(alone) == 0


def test_the_priority_comes_before_the_number_of_records() -> None:
    """A task of a higher priority comes before one that has more records, or has waited longer, up to STARVED_S."""
    many = int(STARVED_S / SLICE)
    assert turns(Schedule(lambda task: -task.partition), [task(0, 1), task(1, 9)], many) == [0] * many


def test_nobody_waits_until_all_others_have_nothing_to_do() -> None:
    """A task that has been passed over for too long has a turn, the one that has waited for longest first."""
    found = turns(Schedule(None), [task(number, 1_000 - number) for number in range(40)], 1_000)
    gaps = longest_gaps(found)
    assert set(gaps) == set(range(40))
    assert max(gaps.values()) <= 60


@pytest.mark.extended
@pytest.mark.unmeasured
@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 9)), min_size=2, max_size=30))
def test_a_low_priority_is_no_reason_to_wait_for_ever(tasks: list[tuple[int, int]]) -> None:
    """A ready task is picked after STARVED_S and two turns for each other task, with any priorities of the others."""
    schedule = Schedule(lambda task: tasks[task.partition][0])
    bound = int(STARVED_S / SLICE) + 2 * len(tasks) + 1
    # Twice the bound, so that a longer wait would show.
    found = turns(schedule, [task(number, buffered) for number, (_, buffered) in enumerate(tasks)], 2 * bound)
    gaps = longest_gaps(found)
    assert set(gaps) == set(range(len(tasks)))
    assert max(gaps.values()) <= bound


def test_half_of_the_turns_belong_to_the_highest_priority() -> None:
    """However many tasks of lower priority have waited for too long, each second turn is that of the highest one."""
    found = turns(Schedule(lambda task: task.partition == 0), [task(number, 1) for number in range(400)], 2_000)
    assert found.count(0) >= 1_000


def test_a_task_that_had_nothing_to_do_has_not_waited() -> None:
    """Time counts from when it could have had its turn."""
    schedule = Schedule(None)
    full, small = task(0, 9), task(1, 1)
    for now, wanted in ((0.0, full), (PATIENCE_S, full), (2 * PATIENCE_S - 0.001, full), (2 * PATIENCE_S, small)):
        schedule.enter(full, now)
        if now == 0.0 or now >= PATIENCE_S:
            schedule.enter(small, now)
        assert first(schedule, now) is wanted
        if now == 0.0:
            schedule.leave(small.id)


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "pick"]), st.integers(0, 5), st.integers(0, 9)), max_size=300))
def test_the_schedule_holds_the_entered_tasks(steps: list[tuple[str, int, int]]) -> None:
    """A task is in from its entry until it is picked or leaves, and the fullest one is picked while nobody has waited for long."""
    schedule = Schedule(None)
    tasks = [task(number, 0) for number in range(6)]
    inside: dict[int, Any] = {}
    for action, number, buffered in steps:
        if action == "enter":
            inside[number] = tasks[number]
            tasks[number].group.buffered = buffered
            schedule.enter(tasks[number], 0.0)
        elif action == "leave":
            schedule.leave(TaskId(0, number))
            inside.pop(number, None)
        else:
            picked = first(schedule, 0.0)
            assert (picked is None) == (not inside)
            if picked is not None:
                assert inside[picked.id.partition].group.buffered == max(each.group.buffered for each in inside.values())
                del inside[picked.id.partition]
        assert {task_id.partition for task_id in schedule} == inside.keys()


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 50), st.booleans()), max_size=300))
def test_alarms_ring_once_at_their_time(steps: list[tuple[int, int | None, bool]]) -> None:
    """The next alarm is the earliest of those that are set, and each that is due rings once."""
    alarms = DueTimes()
    times: dict[int, int] = {}
    for number, at, look in steps:
        alarms.set(TaskId(0, number), at)
        times.pop(number, None)
        if at is not None:
            times[number] = at
        assert alarms.next == min(times.values(), default=None)
        if look:
            due = {number for number, time in times.items() if time <= 25}
            assert {task.partition for task in alarms.due(25)} == due
            times = {number: time for number, time in times.items() if number not in due}
