"""The cases in which a due commit waits for tasks that have just begun."""

from __future__ import annotations

from collections import UserDict
from collections.abc import ItemsView
from typing import cast

from ks_actors import TaskId
from ks_actors.log import TopicPartition
from ks_actors.runtime.commit._commit_timing import CHECK_AGAIN_S, LONGEST_DELAY_S, FirstCommit
from ks_actors.task._task import Task
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import ALOS, EOS, echo, in_app

ONE, TWO = TaskId(0, 0), TaskId(0, 1)
BEHIND, BESIDE = TaskId(1, 0), TaskId(1, 1)


class Begun:
    """As much of a task as is looked at."""

    def __init__(self, *, commit_needed: bool = False) -> None:
        self.commit_needed = commit_needed


def gathering(**tasks: Begun) -> tuple[FirstCommit, dict[TaskId, Begun]]:
    known = {TaskId(0, number): task for number, task in enumerate(tasks.values())}
    tasks_known = cast("dict[TaskId, Task]", known)
    return FirstCommit(tasks_known, tasks_known.values), known


def test_it_waits_until_all_that_begin_together_have_something_to_commit() -> None:
    """The wait ends for them with the first of their work, and later work commits without it."""
    looked, tasks = gathering(one=Begun(commit_needed=True), two=Begun())
    assert looked.waits(5.0)
    tasks[TWO].commit_needed = True
    assert not looked.waits(5.02)
    tasks[TWO].commit_needed = False
    assert not looked.waits(5.12)


def test_tasks_that_have_begun_are_not_gone_through() -> None:
    """A look goes through all tasks only when one that has just begun has something to commit."""
    looks = 0

    class Watched(UserDict[TaskId, Begun]):
        def items(self) -> ItemsView[TaskId, Begun]:
            nonlocal looks
            looks += 1
            return super().items()

    task, touched = Begun(), list[Begun]()
    looked = FirstCommit(cast("dict[TaskId, Task]", Watched({ONE: task})), lambda: cast("list[Task]", touched))
    assert not looked.waits(0.0)
    assert looks == 0
    task.commit_needed = True
    touched.append(task)
    assert not looked.waits(1.0)
    assert not looked.waits(2.0)
    assert looks == 1


def test_it_does_not_wait_for_long() -> None:
    """A partition may have no records; once that was found out nobody waits for its task again."""
    looked, _ = gathering(one=Begun(commit_needed=True), two=Begun())
    assert looked.waits(1.0)
    assert looked.waits(1.0 + LONGEST_DELAY_S - 0.01)
    assert not looked.waits(1.0 + LONGEST_DELAY_S)
    assert not looked.waits(9.0)


def test_it_does_not_wait_when_nothing_of_those_that_begin_is_to_be_committed() -> None:
    """Work of others is not held up by them."""
    looked, tasks = gathering(one=Begun(commit_needed=True))
    assert not looked.waits(0.0)
    tasks[TWO] = Begun()
    assert not looked.waits(1.0)
    tasks[TaskId(0, 2)] = Begun()
    tasks[TWO].commit_needed = True
    assert looked.waits(2.0)


def test_it_does_not_wait_for_another_subtopology() -> None:
    """Its input may be the very output of this commit; when its turn comes it is waited for like any other."""
    looked, tasks = gathering(one=Begun(commit_needed=True), two=Begun(commit_needed=True))
    tasks |= {BEHIND: Begun(), BESIDE: Begun()}
    assert not looked.waits(1.0)
    tasks[BEHIND].commit_needed = True
    assert looked.waits(1.1)
    tasks[BESIDE].commit_needed = True
    assert not looked.waits(1.2)


def test_it_waits_for_the_whole_time_after_commits_were_held() -> None:
    """Its earlier waits do not count any more."""
    looked, tasks = gathering(one=Begun(commit_needed=True), two=Begun())
    assert looked.waits(1.0)
    looked.forget()
    assert looked.waits(9.0)
    assert looked.waits(9.0 + LONGEST_DELAY_S - 0.01)
    assert not looked.waits(9.0 + LONGEST_DELAY_S)
    assert tasks[ONE].commit_needed


def test_a_task_that_comes_back_begins_anew() -> None:
    """It is fetched for anew."""
    looked, tasks = gathering(one=Begun(commit_needed=True), two=Begun(commit_needed=True))
    assert not looked.waits(0.0)
    tasks[TWO] = Begun()
    tasks[ONE] = Begun(commit_needed=True)
    assert looked.waits(1.0)


@in_app(echo(), topics={"in": 2, "out": 1}, processing_guarantee=EOS)
async def test_one_transaction_holds_the_first_records_of_all_tasks(harness: AppHarness) -> None:
    """Though the commit is due when only one task has had some."""

    def committed() -> int:
        return sum(one.offset for one in harness.log._groups.get("app").committed().values())

    await harness.produce("in", "a", "1", partition=0)
    await harness.kit.clock.advance(0.105)
    assert committed() == 0
    await harness.produce("in", "b", "1", partition=1)
    await harness.kit.clock.advance(2 * CHECK_AGAIN_S)
    assert committed() == 2
    # From now on neither is waited for.
    await harness.produce("in", "a", "2", partition=0)
    await harness.kit.clock.advance(0.1)
    assert committed() == 3


def test_a_partition_without_records_holds_the_first_commit_up_for_a_moment() -> None:
    """Without transactions not even that: records are visible there as soon as they are written."""

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "a", "1", partition=0)
        await harness.kit.clock.advance(0.105)
        transactional = harness.config.processing_guarantee.value == EOS
        found = harness.log._groups.get("app").committed()
        assert (TopicPartition("in", 0) in found) is not transactional
        await harness.kit.clock.advance(LONGEST_DELAY_S + CHECK_AGAIN_S)
        assert harness.log._groups.get("app").committed()[TopicPartition("in", 0)].offset == 1

    for guarantee in (EOS, ALOS):
        run_app(test, echo(), topics={"in": 2, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100)
