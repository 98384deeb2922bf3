"""The partitions that make up a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import TaskId
from ks_actors._errors import MissingSourceTopics, TopologyError
from ks_actors.assignment import check_copartitioning, group_partitions
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
        group_partitions({0: ["a", "b"], 1: ["c", "a"]}, {"b": 1, "c": 0})


def test_topics_that_are_joined_have_equal_partitions() -> None:
    """Unequal counts raise an error that names the topics; absent topics are left to another check."""
    check_copartitioning([{"a", "b", "missing"}, {"c"}], {"a": 2, "b": 2, "c": 3})
    with pytest.raises(TopologyError, match=r"same number of partitions, but a has 2, b has 2, c has 3; repartition"):
        check_copartitioning([("c", "b", "a")], {"a": 2, "b": 2, "c": 3})
