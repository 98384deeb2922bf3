"""One budget for the memory of all stores of all tasks of an instance."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import Batch, TaskId
from ks_actors.runtime.stores._flusher import Flusher, Writing
from ks_actors.serdes import LONG
from ks_actors.state import SharedResources, TaskStores
from ks_actors.state.core._memory_budget import MemoryBudget, TaskMemory, level
from ks_actors.task._store_registry import StoreRegistry
from tests.ks_actors.state.helpers import Task, key_value, window

pytestmark = pytest.mark.unmeasured

ROOT = Path(__file__).parents[4]
ROOM = 300_000


@pytest.fixture
def shared() -> Iterator[SharedResources]:
    resources = SharedResources(resident_bytes=ROOM)
    yield resources
    resources.close()


def fill(task: Task, rows: int, first: int = 0) -> None:
    for number in range(first, first + rows):
        task["s"].put(f"k{number:05}", number)
    task.commit()


def short(task: Task) -> bool:
    return task.stores.behind


def test_a_writer_waits_when_much_would_be_replayed(tmp_path: Path) -> None:
    """Committed rows that are not on disk are bounded, with any number of puts: from the longest replay on, until they are written."""
    shared = SharedResources(tail_records=100)
    task = Task([key_value()], tmp_path, shared=shared)
    fill(task, 90)
    assert not task.stores.wants_flush(idle=False)
    assert not short(task)
    fill(task, 20, first=90)
    assert task.stores.wants_flush(idle=False)
    assert short(task)
    task.flush()
    assert not short(task)
    task.close()
    shared.close()


def flush_while_wanted(*tasks: Task) -> None:
    for task in tasks:
        if task.stores.wants_flush(idle=False):
            task.flush()


@given(amounts=st.lists(st.integers(0, 1000), max_size=8), total=st.integers(0, 5000))
def test_the_memory_of_tasks_is_cut_to_one_level(amounts: list[int], total: int) -> None:
    """A task below the level keeps all, no task gets more than the total allows, and next to nothing of it is left over."""
    most = level(amounts, total)
    kept = sum(min(amount, most) for amount in amounts)
    assert kept <= total or not amounts
    assert kept == sum(amounts) or kept > total - len(amounts)


def test_a_task_beyond_its_share_evicts(tmp_path: Path, shared: SharedResources) -> None:
    """A small task keeps its rows while a large one writes and evicts, and nothing is lost."""
    large, small = (Task([key_value()], tmp_path / name, shared=shared) for name in ("large", "small"))
    fill(small, 50)
    assert not small.stores.wants_flush(idle=False)
    fill(large, 2000)
    assert shared.memory.used > ROOM
    assert not small.stores.wants_flush(idle=False)
    assert large.stores.wants_flush(idle=False)
    large.flush()
    assert shared.memory.used <= ROOM
    assert len(small["s"]._view) == 50
    assert 50 < len(large["s"]._view) < 1200
    assert [large["s"].get(f"k{number:05}") for number in range(2000)] == list(range(2000))
    large.close()
    assert 0 < shared.memory.used < ROOM // 2
    small.close()
    assert shared.memory.used == 0


def test_of_two_large_tasks_both_let_go(tmp_path: Path, shared: SharedResources) -> None:
    """The same level is for all."""
    tasks = [Task([key_value()], tmp_path / str(number), shared=shared) for number in range(2)]
    for task in tasks:
        fill(task, 2000)
    flush_while_wanted(*tasks)
    assert shared.memory.used <= ROOM
    sizes = [len(task["s"]._view) for task in tasks]
    assert max(sizes) < 2 * min(sizes)
    for task in tasks:
        task.close()


def test_the_replay_after_a_crash_is_shared_by_the_tasks(tmp_path: Path) -> None:
    """With several tasks each writes earlier, so that not more is replayed than of one."""
    shared = SharedResources(tail_records=100)
    first = Task([key_value()], tmp_path / "first", shared=shared)
    fill(first, 60)
    assert not first.stores.wants_flush(idle=False)
    second = Task([key_value()], tmp_path / "second", shared=shared)
    fill(second, 40)
    assert first.stores.wants_flush(idle=False)
    assert not second.stores.wants_flush(idle=False)
    first.close()
    second.close()
    shared.close()


def test_the_replay_after_a_crash_may_be_longer_while_a_task_restores(tmp_path: Path) -> None:
    """Four times as much, until it is processed: then it is written at once."""
    shared = SharedResources(tail_records=100)
    task = Task([key_value(value=LONG)], tmp_path, shared=shared)
    task.stores.restoring = True
    for number in range(399):
        task.stores.restore("s", Batch([b"%d" % (number % 10)], [bytes(8)], [0]), number + 1)
    assert not task.stores.wants_flush(idle=False)
    task.stores.restoring = False
    assert task.stores.wants_flush(idle=False)
    task.stores.restoring = True
    task.stores.restore("s", Batch([b"0"], [bytes(8)], [0]), 400)
    assert task.stores.wants_flush(idle=False)
    task.close()
    shared.close()


def test_windows_and_restored_rows_count(tmp_path: Path, shared: SharedResources) -> None:
    """For any kind of store, and any source of its rows."""
    task = Task([key_value(), window("w", retention_ms=1 << 40), window("d", retention_ms=1 << 40, retain_duplicates=True)], tmp_path, shared=shared)
    assert shared.memory.used == 0
    task["w"].put("k", "v", 5)
    task.commit()
    windows = shared.memory.used
    task["d"].put("k", "v", 5)
    task.commit()
    duplicates = shared.memory.used
    task.stores.restore("s", Batch([b"a", b"b"], [LONG.serializer("")(1), None], [1, 2]), 2)
    assert 0 < windows < duplicates < shared.memory.used
    task.close()


def test_nothing_is_tried_again_at_once_that_has_not_helped(tmp_path: Path) -> None:
    """Memory that cannot be let go of is not flushed for again and again, only when it has grown."""
    shared = SharedResources(resident_bytes=6_400)
    task = Task([window("w", retention_ms=1 << 40)], tmp_path, shared=shared)
    for number in range(60):  # of a window store the latest half stays
        task["w"].put(f"k{number}", "v", 5)
    task.commit()
    while task.stores.wants_flush(idle=False):
        task.flush()
    assert shared.memory.used > 6_400
    assert not task.stores.wants_flush(idle=False)
    for number in range(60, 70):
        task["w"].put(f"k{number}", "v", 5)
    task.commit()
    assert task.stores.wants_flush(idle=False)
    task.close()
    shared.close()


def test_writing_takes_long_turns_while_memory_is_short(tmp_path: Path, shared: SharedResources) -> None:
    """A step at a time else; and until the turn is over when much more is in memory than may be."""
    task = Task([key_value()], tmp_path, shared=shared)
    flusher = Flusher({TaskId(0, 0): task.stores})
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    fill(task, 300)
    assert not short(task)
    assert flusher.begin(idle=True)
    assert flusher.turn(clock)
    assert now == 0.0
    while flusher.turn(clock):
        pass
    fill(task, 3000, first=300)
    assert short(task)
    assert flusher.begin()
    assert flusher.turn(clock)
    assert 0.010 < now < 0.013
    while flusher.turn(clock):
        pass
    assert not short(task)
    task.close()


def test_all_is_written_while_there_is_nothing_else_to_do(tmp_path: Path, shared: SharedResources) -> None:
    """All tasks' rows are written, one task after the other."""
    specs = [key_value(), key_value("m", type="in_memory")]
    tasks = {TaskId(0, number): Task(specs, tmp_path / str(number), shared=shared) for number in range(3)}
    soon: list[None] = []
    open_stores: dict[TaskId, TaskStores] = {}
    writing = Writing(
        open_stores,
        StoreRegistry(),
        pausing=lambda: False,
        clock=lambda: 0.0,
        soon=lambda: soon.append(None),
        failed=lambda *_: None,
        taken=lambda: None,
    )
    for task in tasks.values():
        task.specs[1] = key_value("m", type="in_memory")
        task.reopen()
        task["m"].put("k", 1)
        fill(task, 10)
    open_stores |= {name: task.stores for name, task in tasks.items()}
    writing.begin()
    assert not soon
    writing.begin(idle=True)
    steps = 0
    while soon:
        soon.clear()
        writing.step()
        steps += 1
        assert steps < 100
    assert not any(task.stores.wants_flush(idle=True) for task in tasks.values())
    for task in tasks.values():
        task.close()


def test_tasks_that_are_to_be_written_take_turns(tmp_path: Path, shared: SharedResources) -> None:
    """One that always has a little more than its share does not keep one waiting that has much more."""
    tasks = {TaskId(0, number): Task([key_value()], tmp_path / str(number), shared=shared) for number in range(3)}
    flusher = Flusher({name: task.stores for name, task in tasks.items()})
    for task in tasks.values():
        fill(task, 1000)
    written: list[TaskId | None] = []
    for first in (1000, 1500, 2000):
        assert flusher.begin()
        written.append(flusher.task)
        while flusher.step():
            pass
        fill(tasks[TaskId(0, 0)], 500, first)
        assert tasks[TaskId(0, 0)].stores.wants_flush(idle=False)
    assert written == list(tasks)
    for task in tasks.values():
        task.close()


def test_all_of_rocksdb_and_python_is_within_one_setting() -> None:
    """A quarter is for RocksDB, a sixteenth for uncounted memory; buffers are small where the budget is."""
    resources = SharedResources.within(1 << 20)
    assert resources.memory.limit == (1 << 20) * 11 // 16
    assert resources._memtable_bytes == 64 << 10
    assert SharedResources.within(1 << 30)._memtable_bytes == 16 << 20


def test_a_task_that_has_left_takes_nothing() -> None:
    """An unknown task has no surplus."""
    budget = MemoryBudget(10)
    task, other = TaskMemory(budget, ()), TaskMemory(budget, ())
    budget.note(task, 100)
    assert (budget.used, budget.surplus(task), budget.surplus(other)) == (100, 91, 0)
    task.leave()
    task.leave()
    assert budget.used == 0


@pytest.mark.extended
@pytest.mark.heavy("500,000 updates")
@pytest.mark.skipif(sys.platform != "linux", reason="what a process takes is read from /proc")
def test_a_run_over_many_stores_stays_within_the_budget() -> None:
    """Updates over 200 stores of 8 tasks, many times the budget: a small run of `benchmarks/memory.py`, the same on any machine."""
    command = [sys.executable, "benchmarks/memory.py", "--counted", "--updates", "500000", "--budget", str(32 << 20)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (figures["stores"], figures["tasks"]) == (200, 8)
    assert figures["updates"] >= 500_000
    # What is uncommitted is not in the budget; the rest of the room is for 200 open stores and 8 open databases.
    assert figures["peak_bytes"] < figures["budget_bytes"] + figures["uncommitted_bytes"] + (12 << 20)
