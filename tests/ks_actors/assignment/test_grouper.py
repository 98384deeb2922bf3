"""The partitions that make up a task."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors._errors import MissingSourceTopics, TopologyError
from ks_actors.assignment import GrouperFailed, Grouping, check_copartitioning, group_partitions
from ks_actors.log import TopicPartition


def test_partitions_of_one_number_go_together() -> None:
    """As many tasks as the largest topic has partitions; smaller topics are missing in the last ones."""
    assert group_partitions({1: ["c"], 0: ["b", "a"]}, {"a": 2, "b": 1, "c": 1, "other": 9}) == {
        TaskId(0, 0): (TopicPartition("a", 0), TopicPartition("b", 0)),
        TaskId(0, 1): (TopicPartition("a", 1),),
        TaskId(1, 0): (TopicPartition("c", 0),),
    }


@given(st.dictionaries(st.integers(0, 5), st.sets(st.sampled_from("abcdef"))), st.fixed_dictionaries(dict.fromkeys("abcdef", st.integers(1, 9))))
def test_every_partition_is_in_one_task_of_its_subtopology(subtopologies: dict[int, set[str]], partitions: dict[str, int]) -> None:
    """Each partition belongs to exactly one task, and the tasks are sorted."""
    tasks = group_partitions(subtopologies, partitions)
    assert list(tasks) == sorted(tasks)
    for subtopology, topics in subtopologies.items():
        grouped = [partition for task, each in tasks.items() if task.subtopology == subtopology for partition in each]
        assert sorted(grouped) == sorted(TopicPartition(topic, number) for topic in topics for number in range(partitions[topic]))


def test_topics_that_do_not_exist_are_told() -> None:
    """All of them."""
    with pytest.raises(MissingSourceTopics, match=r"source topics a, c do not exist; create them"):
        Grouping().tasks({0: ["a", "b"], 1: ["c", "a"]}, {"b": 1, "c": 0})


def test_topics_that_are_joined_have_equal_partitions() -> None:
    """Unequal counts raise an error that names the topics; absent topics are left to another check."""
    check_copartitioning([{"a", "b", "missing"}, {"c"}], {"a": 2, "b": 2, "c": 3})
    with pytest.raises(TopologyError, match=r"same number of partitions, but a has 2, b has 2, c has 3; repartition"):
        check_copartitioning([("c", "b", "a")], {"a": 2, "b": 2, "c": 3})


class Says:
    """A grouper that gives a fixed answer, or raises it, and counts the calls."""

    name = "says"

    def __init__(self, answer: Mapping[str, Collection[str]] | Exception) -> None:
        self.answer = answer
        self.calls = 0

    def group(self, topics: Mapping[int, Collection[str]], partitions: Mapping[str, int]) -> dict[TaskId, list[TopicPartition]]:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return {TaskId.parse(task): [TopicPartition(each[0], int(each[1:])) for each in group] for task, group in self.answer.items()}


def test_a_users_grouper_makes_the_tasks_and_is_asked_once_for_equal_arguments() -> None:
    """Partitions of a task are in order, whatever order the grouper has."""
    says = Says({"0_1": ["b1", "a0"], "0_0": ["b0", "a1"]})
    grouping = Grouping(says)
    for _ in range(3):
        assert grouping.tasks({0: ["a", "b"]}, {"a": 2, "b": 2, "other": 1}) == {
            TaskId(0, 0): (TopicPartition("a", 1), TopicPartition("b", 0)),
            TaskId(0, 1): (TopicPartition("a", 0), TopicPartition("b", 1)),
        }
    assert (grouping.name, says.calls) == ("says", 1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"0_0": ["a0", "b0"]}, "a-1 is in no task, b-1 is in no task"),
        ({"0_0": ["a0", "a1", "b0", "b1"], "0_1": ["a1"]}, "a-1 is in 0_0 and 0_1"),
        ({"0_0": ["a0", "a1", "a2", "b0", "b1"]}, "task 0_0 reads a-2, which its subtopology does not have"),
        ({"0_0": ["a0", "a1", "b0", "b1"], "7_0": ["a0"]}, "task 7_0 reads a-0"),
        ({"0_0": ["a0", "a1", "b0", "b1"], "0_1": []}, "task 0_1 has a negative number or no partitions"),
        ({"0_0": ["a0", "b1"], "0_1": ["a1", "b0"]}, "partitions 0 of a, b are not in one task"),
        (ValueError("no idea"), r"'says' \(Says\) raised ValueError: no idea"),
    ],
)
def test_a_grouping_that_breaks_a_rule_is_an_error(answer: Mapping[str, Collection[str]] | Exception, message: str) -> None:
    """The error names the grouper, and the partitions and tasks that are wrong."""
    with pytest.raises(GrouperFailed, match=message):
        Grouping(Says(answer)).tasks({0: ["a", "b"]}, {"a": 2, "b": 2}, [{"a", "b"}])
