"""Task directories that move between members when their number changes."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import StateLocked
from ks_actors.cli.processes import Move, adopt, plan_moves
from ks_actors.system import close_locked, open_locked

APP = "app"
TASKS = [f"{subtopology}_{partition}" for subtopology in range(3) for partition in range(5)]


def moved(held: dict[int, dict[str, int]], moves: list[Move]) -> dict[int, dict[str, int]]:
    found = {member: dict(tasks) for member, tasks in held.items()}
    for move in moves:
        found.setdefault(move.target, {})[move.task] = found[move.source].pop(move.task)
    return found


@given(st.dictionaries(st.integers(1, 6), st.dictionaries(st.sampled_from(TASKS), st.integers(0, 3))), st.integers(1, 6))
def test_the_newest_state_of_each_task_goes_to_one_of_the_members(held: dict[int, dict[str, int]], count: int) -> None:
    """Their numbers differ by at most one, each task moves at most once, as few tasks move as possible, and a second plan is empty."""
    newest = {task: max(tasks[task] for tasks in held.values() if task in tasks) for tasks in held.values() for task in tasks}
    moves = plan_moves(held, count)
    after = moved(held, moves)
    assert len({move.task for move in moves}) == len(moves)
    homes: dict[str, int] = {}
    for member in sorted(after):
        for task, changed in after[member].items():
            if changed == newest[task] and member <= count:
                homes.setdefault(task, member)
    assert homes.keys() == newest.keys()
    first = {task: min(member for member in held if held[member].get(task) == newest[task]) for task in newest}
    before = Counter(member for member in first.values() if member <= count)
    share, extra = divmod(len(newest), count)
    sizes = sorted((before[member] for member in range(1, count + 1)), reverse=True)
    stay = sum(min(size, share + (number < extra)) for number, size in enumerate(sizes))
    assert len(moves) == len(newest) - stay
    now = Counter(first.values()) + Counter(move.target for move in moves)
    now.subtract(Counter(move.source for move in moves))
    numbers = [now[member] for member in range(1, count + 1)]
    assert max(numbers) - min(numbers) <= 1


def place(home: Path, member: int) -> Path:
    return home if member == 1 else home / "members" / str(member) / APP


def fill(home: Path, member: int, task: str, text: str, changed: int = 1) -> None:
    directory = place(home, member) / task / "rocksdb"
    directory.mkdir(parents=True)
    (directory / "1.sst").write_text(text)
    for path in (directory / "1.sst", directory.parent):
        os.utime(path, (changed, changed))


def tasks(home: Path, count: int) -> list[set[str]]:
    return [{path.parent.parent.name for path in place(home, number).glob("*_?/rocksdb/1.sst")} for number in range(1, count + 1)]


def test_tasks_go_to_more_members_and_come_back(tmp_path: Path) -> None:
    """1, 3, 2, 1: each time all state is with the members, evenly, and each subtopology is spread."""
    home = tmp_path / APP
    for task in TASKS:
        fill(home, 1, task, task)
    for count, share in ((3, {5}), (2, {7, 8}), (1, {15})):
        adopt(home, APP, count)
        found = tasks(home, count)
        assert {len(each) for each in found} == share
        assert set.union(*found) == set(TASKS)
        assert all(max(Counter(task[0] for task in each).values()) <= -(-5 // count) + 1 for each in found)
        assert adopt(home, APP, count) == []
    assert {(home / task / "rocksdb" / "1.sst").read_text() for task in TASKS} == set(TASKS)


def test_newer_state_takes_the_place_of_older_state(tmp_path: Path) -> None:
    """A member that lost a task keeps its state for a while: that goes, as the start deletes it."""
    home = tmp_path / APP
    fill(home, 1, "0_0", "old", 1)
    fill(home, 2, "0_0", "new", 2)
    assert adopt(home, APP, 1) == [Move("0_0", 2, 1)]
    assert (home / "0_0" / "rocksdb" / "1.sst").read_text() == "new"
    assert [path.name for path in home.glob("*.deleted")] == ["0_0.0.deleted"]


def test_directories_in_use_stay_where_they_are(tmp_path: Path) -> None:
    """Another process has the lock of one of them."""
    home = tmp_path / APP
    fill(home, 1, "0_0", "mine")
    fill(home, 3, "0_1", "theirs")
    lock = open_locked(place(home, 3) / ".lock", os.O_CREAT)
    with pytest.raises(StateLocked, match="in use by another process"):
        adopt(home, APP, 1)
    close_locked(lock)
    assert adopt(home, APP, 1) == [Move("0_1", 3, 1)]


def test_state_of_another_cluster_is_not_taken(tmp_path: Path) -> None:
    """It would be mistaken for state of this one."""
    home = tmp_path / APP
    fill(home, 1, "0_0", "here")
    fill(home, 2, "0_1", "elsewhere")
    for member, cluster in ((1, "one"), (2, "two")):
        (place(home, member) / ".cluster").write_text(cluster)
    assert adopt(home, APP, 1) == []


def test_state_in_a_shared_database_does_not_move(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The directory of a task has none of its rows; a warning says that they are left behind."""
    home = tmp_path / APP
    fill(home, 1, "0_0", "here")
    fill(home, 2, "0_1", "there")
    (place(home, 2) / "shared").mkdir()
    assert adopt(home, APP, 2) == []
    assert not caplog.records
    assert adopt(home, APP, 1) == []
    assert "the state of 1 task stays where it is, as a member keeps all its tasks in one database" in caplog.text
    assert tasks(home, 2) == [{"0_0"}, {"0_1"}]


def test_state_does_not_move_between_queries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With processes by query most members cannot run a task; a warning names state of members that there are no longer."""
    home = tmp_path / APP
    for task in ("0_0", "0_1", "0_2"):
        fill(home, 1, task, task)
    assert adopt(home, APP, 2, "fraud=1,rest=1") == []
    assert not caplog.records
    fill(home, 3, "1_0", "gone")
    assert adopt(home, APP, 2, "fraud=1,rest=1") == []
    assert "the state of 1 task stays where it is, as processes is fraud=1,rest=1" in caplog.text
    assert tasks(home, 3) == [{"0_0", "0_1", "0_2"}, set(), {"1_0"}]


def test_a_first_start_makes_no_directory(tmp_path: Path) -> None:
    """There is nothing to move."""
    assert adopt(tmp_path / APP, APP, 3) == []
    assert list(tmp_path.iterdir()) == []
