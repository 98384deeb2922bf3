"""Requests for a commit that wait for tasks which the commit has left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ks_actors import TaskMigrated
from ks_actors.records._task_id import TaskId
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit._awaited_commits import AwaitedCommits
from tests.ks_actors.runtime.commit.test_late_commits import Answer

SLOW, QUICK, OTHER = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)


def there(*tasks: TaskId) -> Any:
    """Return tasks that drain, as the committer sees them."""
    return {task: SimpleNamespace(draining=SimpleNamespace(since=0.0)) for task in tasks}


def asked(awaited: AwaitedCommits, *left_out: TaskId, **options: Any) -> Answer:
    """Ask for a commit that leaves these tasks out."""
    answer = Answer()
    awaited.serve(m.Commit(answer, "the application asks for it", **options), frozenset(left_out), there(SLOW, QUICK, OTHER))
    return answer


def test_a_request_is_served_when_later_commits_have_taken_the_other_tasks() -> None:
    """It need not be one commit for all."""
    awaited = AwaitedCommits(lambda: None)
    answer = asked(awaited, SLOW, QUICK)
    awaited.serve(m.Commit(None, "by time"), frozenset({SLOW}), there(SLOW, QUICK))
    assert answer.heard == []
    awaited.serve(m.Commit(None, "by time"), frozenset(), there(SLOW, QUICK))
    assert answer.heard == [None]


@pytest.mark.parametrize("by_commit", [True, False])
def test_a_request_fails_when_its_task_is_closed_before_it_was_taken(*, by_commit: bool) -> None:
    """Nobody here commits that work any more: to tell of success would be wrong, and to wait would be in vain."""
    awaited = AwaitedCommits(lambda: None)
    unharmed, answer = asked(awaited, QUICK), asked(awaited, SLOW, QUICK)
    if by_commit:
        awaited.serve(m.Commit(None, "by time"), frozenset({QUICK}), there(QUICK))
    else:
        awaited.drop(there(QUICK))
    (error,) = answer.heard
    assert isinstance(error, TaskMigrated)
    assert "task 0_0 was closed before its calls ended" in str(error)
    assert unharmed.heard == []


def test_a_request_for_one_of_some_tasks_waits_for_those_that_are_left() -> None:
    """When none is left there is nothing to wait for."""
    awaited = AwaitedCommits(lambda: None)
    answer = asked(awaited, SLOW, QUICK, one_of=frozenset({SLOW, QUICK}))
    awaited.drop(there(QUICK))
    assert answer.heard == []
    awaited.drop(there(OTHER))
    assert [type(error) for error in answer.heard] == [TaskMigrated]
