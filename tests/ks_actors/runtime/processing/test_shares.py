"""Queries in one instance: time by weight, and buffers that one query cannot take from another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors.log import TopicPartition
from ks_actors.records._batch import Batch
from ks_actors.runtime.processing._input_budget import InputBudget
from ks_actors.runtime.processing._scheduler import Schedule
from ks_actors.runtime.processing._shares import Shares

SLICE = 0.005


def task(subtopology: int, number: int, buffered: int = 10) -> Any:
    return SimpleNamespace(id=TaskId(subtopology, number), group=SimpleNamespace(buffered=buffered))


def batch(count: int) -> Batch:
    return Batch([b"k"] * count, [b"v"] * count, [0] * count, None, range(count))


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.floats(0.2, 3.0))
def test_time_is_divided_by_weight(first: int, second: int, tasks: int, others: int, slow: float) -> None:
    """With work in both queries at all times each gets time by its weight, however many tasks it has and however long its turns are."""
    shares = Shares({0: "a", 1: "b"}, {"a": first, "b": second})
    schedule = Schedule(None, shares)
    used = [0.0, 0.0]
    now = 0.0
    for each in [task(0, number) for number in range(tasks)] + [task(1, number, 1_000) for number in range(others)]:
        schedule.enter(each, now)
    for _ in range(300):
        found = schedule.pick(now)
        assert found is not None
        picked = found[0]
        # The clock stands, so that no task counts as starved.
        seconds = SLICE * slow if picked.id.subtopology else SLICE
        used[picked.id.subtopology] += seconds
        shares.spent(picked.id, seconds)
        schedule.enter(picked, now)
    assert abs(used[0] / first - used[1] / second) <= 2 * SLICE * max(1.0, slow)


def test_many_waiting_tasks_do_not_change_the_shares() -> None:
    """A query of little weight with a hundred tasks, which all wait for more than a second, gets its share."""
    shares = Shares({0: "a", 1: "b"}, {"a": 9, "b": 1})
    schedule = Schedule(None, shares)
    for each in [task(0, 0), *(task(1, number) for number in range(100))]:
        schedule.enter(each, 0.0)
    turns = []
    for turn in range(1_000):
        found = schedule.pick(turn * SLICE)
        assert found is not None
        turns.append(found[0].id.subtopology)
        shares.spent(found[0].id, SLICE)
        schedule.enter(found[0], (turn + 1) * SLICE)
    assert 95 <= turns.count(1) <= 105


def test_an_idle_query_saves_up_no_time() -> None:
    """After a thousand turns without work it gets its share, not those turns."""
    shares = Shares({0: "a", 1: "b"}, {"a": 1, "b": 1})
    schedule = Schedule(None, shares)
    schedule.enter(task(0, 0), 0.0)
    for _ in range(1_000):
        found = schedule.pick(0.0)
        assert found is not None
        shares.spent(found[0].id, SLICE)
        schedule.enter(found[0], 0.0)
    schedule.enter(task(1, 0), 0.0)
    turns = []
    for _ in range(20):
        found = schedule.pick(0.0)
        assert found is not None
        turns.append(found[0].id.subtopology)
        shares.spent(found[0].id, SLICE)
        schedule.enter(found[0], 0.0)
    assert 9 <= turns.count(1) <= 11


def test_priorities_come_before_weights() -> None:
    """A query of any weight waits for tasks of a higher priority."""
    schedule = Schedule(lambda each: each.subtopology, Shares({0: "a", 1: "b"}, {"a": 9, "b": 1}))
    schedule.enter(task(0, 0), 0.0)
    schedule.enter(task(1, 0), 0.0)
    found = schedule.pick(0.0)
    assert found is not None
    assert found[0].id == TaskId(1, 0)


def test_a_query_that_stands_still_leaves_others_their_share() -> None:
    """It borrows what is free; then it is stopped, and the other query is fetched up to its share."""
    stuck, busy = TopicPartition("a", 0), TopicPartition("b", 0)
    budget = InputBudget(10**6, 10_000)
    budget.divide(stuck, "a", 0.5)
    budget.divide(busy, "b", 0.5)
    while not budget.added(stuck, batch(5)):
        pass
    assert 10_000 < budget.estimate < 12_000
    fetched = 0
    while not budget.added(busy, batch(5)):
        fetched += 5
    assert fetched * 122 > 4_000
    # As it works off its records it is fetched again, while the other still stands.
    assert budget.consumed([(busy, 10)]) == (busy,)
    assert budget.consumed([(busy, 0)]) == ()
    assert budget.consumed([(stuck, 1)]) == (stuck,)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["add", "consume"]), st.integers(0, 12)), max_size=60))
def test_shares_never_stop_a_query_below_its_share(steps: list[tuple[int, str, int]]) -> None:
    """A partition is stopped only beyond its query's share, and is fetched again once it has no records."""
    budget = InputBudget(10**6, 2_000)
    partitions = [TopicPartition("t", number) for number in range(4)]
    for number, partition in enumerate(partitions):
        budget.divide(partition, "ab"[number % 2], (0.25, 0.75)[number % 2])
    counts = [0] * 4
    stopped: set[TopicPartition] = set()
    for number, action, count in steps:
        partition = partitions[number]
        if action == "add":
            counts[number] += count
            if budget.added(partition, batch(count)):
                stopped.add(partition)
                assert (counts[number % 2] + counts[number % 2 + 2]) * 122 > 2_000 * (0.25, 0.75)[number % 2]
        else:
            counts[number] -= min(count, counts[number])
            stopped -= set(budget.consumed([(partition, counts[number])]))
        assert all(counts[partitions.index(each)] for each in stopped)
