"""Which task a free worker gets."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from ks_actors import TaskId
from ks_actors.runtime._schedule import PATIENCE_MS, Schedule


def task(number: int, buffered: int) -> tuple[Any, bool]:
    """Return what the schedule looks at of a task."""
    return SimpleNamespace(id=TaskId(0, number), group=SimpleNamespace(buffered=buffered)), False


def picked(schedule: Schedule, fit: list[tuple[Any, bool]], now: int) -> int:
    best = schedule.pick(fit, now)
    assert best is not None
    return best[0].id.partition


def test_the_task_with_the_most_records_comes_first() -> None:
    """As long as nobody has waited for too long; and the priority is above all."""
    assert Schedule(None).pick([], 0) is None
    fit = [task(0, 5), task(1, 7), task(2, 6)]
    schedule = Schedule(None)
    assert [picked(schedule, fit, now) for now in range(0, PATIENCE_MS, 5)] == [1] * (PATIENCE_MS // 5)
    schedule = Schedule(lambda task: -task.partition)
    assert [picked(schedule, fit, now) for now in range(0, 3 * PATIENCE_MS, 5)] == [0] * (3 * PATIENCE_MS // 5)


def test_nobody_waits_until_all_others_have_nothing_to_do() -> None:
    """Who has been passed over for too long has a turn, the one that has waited for longest first; so all have turns, however many there are."""
    schedule = Schedule(None)
    fit = [task(number, 1_000 - number) for number in range(40)]
    turns = [picked(schedule, fit, now) for now in range(0, 5_000, 5)]
    assert set(turns) == set(range(40))
    for number in range(40):
        at = [place for place, turn in enumerate(turns) if turn == number]
        assert max(later - earlier for earlier, later in pairwise(at)) <= 60


def test_a_task_that_had_nothing_to_do_has_not_waited() -> None:
    """Time counts from when it could have had its turn."""
    schedule = Schedule(None)
    assert picked(schedule, [task(0, 9), task(1, 1)], 0) == 0
    assert picked(schedule, [task(0, 9)], PATIENCE_MS) == 0
    assert picked(schedule, [task(0, 9), task(1, 1)], PATIENCE_MS) == 0
    assert picked(schedule, [task(0, 9), task(1, 1)], 2 * PATIENCE_MS - 1) == 0
    assert picked(schedule, [task(0, 9), task(1, 1)], 2 * PATIENCE_MS) == 1
