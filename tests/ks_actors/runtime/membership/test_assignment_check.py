"""Tasks that are not as the topology says are not begun, and are asked for once more."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ks_actors import TopologyError
from ks_actors.assignment import TopologyInfo
from ks_actors.log import TopicPartition
from ks_actors.records._task_id import TaskId
from ks_actors.runtime.membership._assignment_check import AssignmentCheck
from ks_actors.task import TopicSizes

TOPOLOGY = TopologyInfo.of({0: ["a", "b"]})
COUNTS = {"a": 2, "b": 1}
FIRST, SECOND = TaskId(0, 0), TaskId(0, 1)


def of(*topics: str, number: int = 0) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for topic in topics)


def fitting_of(*matched: str) -> AssignmentCheck:
    """Return the check of an app that reads a and b, and topics that `matched` a pattern."""

    def matched_of(partitions: Iterable[TopicPartition]) -> frozenset[str]:
        return frozenset(matched).intersection(one.topic for one in partitions)

    return AssignmentCheck(lambda: TOPOLOGY, TopicSizes(COUNTS.get), matched_of)


def test_tasks_that_fit_are_begun() -> None:
    """A topic that has fewer partitions is in none of the tasks beyond them."""
    assigned = {FIRST: of("a", "b"), SECOND: of("a", number=1)}
    assert fitting_of().fit(assigned) == (assigned, False)


def test_foreign_partitions_are_asked_for_again_and_then_refused() -> None:
    """A static member that comes back with a new version gets the old one's tasks; a leader that insists runs another version."""
    assignment_check = fitting_of()
    good = {SECOND: of("a", number=1)}
    assert assignment_check.fit({FIRST: of("a", "b", "old"), **good}) == (good, True)
    assert assignment_check.fit({FIRST: of("a", "b"), **good}) == ({FIRST: of("a", "b"), **good}, False)
    assert assignment_check.fit({FIRST: of("old"), TaskId(3, 0): of("a")}) == ({}, True)
    with pytest.raises(TopologyError, match=r"old-0 \(task 0_0\).*stop all members"):
        assignment_check.fit({FIRST: of("old")})


def test_the_group_is_asked_about_each_topic_that_is_foreign() -> None:
    """Topics that a pattern matched may go one behind the other, faster than the group assigns: an app does not end by that."""
    assignment_check = fitting_of()
    assert assignment_check.fit({FIRST: of("a", "b", "gone")}) == ({}, True)
    assert assignment_check.fit({FIRST: of("a", "b", "gone-later")}) == ({}, True)
    assert assignment_check.fit({FIRST: of("a")}) == ({FIRST: of("a")}, True)
    with pytest.raises(TopologyError, match=r"does not read: gone-0 \(task 0_0\)\."):
        for _ in range(2):
            assignment_check.fit({FIRST: of("a", "b", "gone")})


def test_topics_that_are_gone_may_be_assigned_again_and_again() -> None:
    """A leader that learns later than its members that a topic which matched a pattern is gone gives it to them until it does."""
    assignment_check = fitting_of("gone")
    for _ in range(3):
        assert assignment_check.fit({FIRST: of("a", "b", "gone")}) == ({FIRST: of("a", "b", "gone")}, False)


def test_partitions_that_are_lacking_are_asked_for_once_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """The task begins without them: a leader of an earlier release knows its own topology only."""
    assignment_check = fitting_of()
    assert assignment_check.fit({FIRST: of("a")}) == ({FIRST: of("a")}, True)
    assert assignment_check.fit({FIRST: of("a")}) == ({FIRST: of("a")}, False)
    assert "no member reads b-0 (task 0_0) for now" in caplog.text
