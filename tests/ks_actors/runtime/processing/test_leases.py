"""A worker that is given several tasks at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors.runtime import UncaughtResponse
from ks_actors.runtime.commit._states import Uncommitted
from ks_actors.runtime.messages import Lease
from ks_actors.runtime.processing._ready_tasks import ReadyTasks
from ks_actors.runtime.processing._worker import Worker
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import ALOS, by_key, counting, echo

SLICE_MS = 5.0
work, give_back = Worker._work, Worker._give_back


def task(number: int, work_ms: float, *, blocking: bool = False) -> Any:
    """Return the schedule's view of a task that has records; the more work, the more records."""
    group = SimpleNamespace(buffered=int(100 * work_ms), wakes_at=lambda: None)
    return SimpleNamespace(
        id=TaskId(0, number), group=group, work_ms=work_ms, blocking=blocking, can_drain=True, next_punctuation=None, ready=lambda _: True
    )


def ready(tasks: Sequence[Any], *, drained: Sequence[Any] = ()) -> ReadyTasks:
    """Return a schedule that all of these tasks are ready in, `drained` only to be drained."""
    clocks: Any = SimpleNamespace(wall_time=lambda: 0, steady_time=lambda: 0.0)
    found = ReadyTasks(clocks, lambda each: each in drained, None, slice_ms=SLICE_MS)
    for each in tasks:
        found.update(each)
    return found


@given(st.lists(st.tuples(st.floats(0.05, 8), st.booleans()), min_size=1, max_size=60), st.integers(1, 4), st.integers(0, 3))
def test_a_lease_holds_the_tasks_that_fill_a_slice(tasks: list[tuple[float, bool]], workers: int, drained: int) -> None:
    """Tasks are leased in the schedule's order: together while they fit into a slice, and alone when they block, drain or have much to do."""
    all_tasks = [task(number, work_ms, blocking=blocking) for number, (work_ms, blocking) in enumerate(tasks)]
    schedule = ready(all_tasks, drained=all_tasks[:drained])
    order: list[Any] = []
    while (picked := schedule.pick(workers)) is not None:
        leased, draining = picked
        waiting = len(all_tasks) - len(order)
        if draining:
            assert len(leased) == 1
            assert leased[0] in all_tasks[:drained]
        if len(leased) > 1:
            assert sum(each.work_ms for each in leased) <= SLICE_MS + 1e-9
            assert not any(each.blocking for each in leased)
            assert len(leased) <= -(-waiting // workers)
        order += leased
    assert {each.id for each in order} == {each.id for each in all_tasks}
    assert len(order) == len(all_tasks)
    counts = [each.group.buffered for each in order[min(drained, len(tasks)) :]]
    assert counts == sorted(counts, reverse=True)


def test_free_workers_share_ready_tasks() -> None:
    """Each of several free workers gets an equal share of many small tasks, the last one the rest."""
    schedule = ready([task(number, 0.06) for number in range(40)])
    shares = [schedule.pick(workers) for workers in (4, 3, 2, 1)]
    assert [share and len(share[0]) for share in shares] == [10, 10, 10, 10]
    assert schedule.pick(1) is None


def test_leases_are_small_where_stores_have_little_room() -> None:
    """While stores may hold little more uncommitted, as many tasks are leased together as may bring that; one is leased in any case."""
    tasks = [task(number, 0.06) for number in range(9)]
    schedule, uncommitted = ready(tasks), Uncommitted(1_000)
    assert uncommitted.room == inf
    tasks[0].uncommitted_bytes, tasks[0].commit_requested = 200, False
    tasks[1].uncommitted_bytes, tasks[1].commit_requested = 100, False
    uncommitted.reason_to_commit(tasks[:2])
    assert uncommitted.room == 3
    assert [len(leased) for leased, _ in (schedule.pick(1, most) or ((), False) for most in (uncommitted.room, 0, inf))] == [3, 1, 5]
    assert Uncommitted(-1).room == inf


def test_a_task_that_comes_back_untouched_has_waited_all_the_time() -> None:
    """A task that a slice did not come to is picked before one that became ready after it, and one that had its turn is not."""
    now = 0.0
    clocks: Any = SimpleNamespace(wall_time=lambda: 0, steady_time=lambda: now * 1_000)
    schedule = ReadyTasks(clocks, lambda _: False, None, slice_ms=SLICE_MS)
    done, untouched, later = task(0, 0.3), task(1, 0.1), task(2, 0.2)
    schedule.update(done)
    schedule.update(untouched)
    assert schedule.pick() == ((done, untouched), False)
    now = 0.2
    schedule.update(later)
    schedule.had_turn([(done.id, 0.0)])
    schedule.update(done)
    schedule.update(untouched)
    assert schedule.pick() == ((untouched, done, later), False)


class Failing:
    """A function for `peek` that raises once for a key, and counts how often each key was seen."""

    def __init__(self, key: str) -> None:
        self.seen: Counter[str] = Counter()
        self._key = key

    def __call__(self, key: str, _: Any) -> None:
        self.seen[key] += 1
        if key == self._key and self.seen[key] == 1:
            raise RuntimeError(f"boom at {key}")


@pytest.mark.parametrize("seed", range(4))
def test_a_task_that_fails_fails_alone(guarantee: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a lease in which a task fails the tasks before it are done, and those behind it are processed by others; at least once, each record once."""
    leases: list[int] = []
    failing = Failing("k5")

    async def counted(worker: Worker, lease: Lease) -> None:
        leases.append(len(lease.tasks))
        await work(worker, lease)

    monkeypatch.setattr(Worker, "_work", counted)

    async def test(harness: AppHarness) -> None:
        await harness.app.pause()
        for number in range(12):
            await harness.produce("in", f"k{number}", "v", partition=number)
        await harness.kit.clock.advance(0.2)
        await harness.app.resume()
        await harness.caught_up()
        assert by_key(await harness.read("out")) == {f"k{number}": [1] for number in range(12)}

    run_app(
        test,
        counting(None, failing),
        seed=seed,
        topics={"in": 12, "out": 3},
        processing_guarantee=guarantee,
        num_workers=2,
        commit_interval_ms=100,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    )
    assert max(leases) > 1
    assert failing.seen["k5"] == 2
    if guarantee == ALOS:
        assert {times for key, times in failing.seen.items() if key != "k5"} == {1}


def test_tasks_with_little_to_do_share_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record in each of 100 tasks takes a few leases, not 100, and each record is processed once."""
    leases: list[tuple[int, int]] = []

    def counted(worker: Worker, lease: Lease, done: dict[TaskId, float], records: int, *others: Any, **named: Any) -> None:
        leases.append((len(done), records))
        give_back(worker, lease, done, records, *others, **named)

    monkeypatch.setattr(Worker, "_give_back", counted)

    async def test(harness: AppHarness) -> None:
        await harness.app.pause()
        for number in range(100):
            await harness.produce("in", f"k{number}", "v", partition=number)
        await harness.kit.clock.advance(0.2)
        await harness.app.resume()
        await harness.caught_up()
        assert len(await harness.read("out")) == 100

    run_app(test, echo(), topics={"in": 100, "out": 1}, worker_slice_ms=1_000)
    assert sum(records for _, records in leases) == 100
    assert len(leases) <= 10
