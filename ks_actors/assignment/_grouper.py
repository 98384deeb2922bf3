"""Grouping of partitions into tasks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from ks_actors._errors import MissingSourceTopics, TopologyError
from ks_actors.records import TaskId, TopicPartition
from ks_actors.topology import GROWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

Tasks: TypeAlias = "Mapping[TaskId, tuple[TopicPartition, ...]]"
"""The partitions that each task reads."""

PartitionGrouper: TypeAlias = "Callable[[Mapping[int, Collection[str]], Mapping[str, int]], Tasks]"
"""Make tasks from the source topics by subtopology, and the partition counts by topic.

The partition in a TaskId is also the partition of the task's changelogs.
"""


def group_partitions(
    subtopologies: Mapping[int, Collection[str]], partitions: Mapping[str, int]
) -> Tasks:
    """Make as many tasks of each subtopology as its largest source topic has partitions.

    Partitions with the same number go together. A task does not read topics that have no partition
    with the task's number. Raises MissingSourceTopics, naming all topics that are not in
    `partitions`.
    """
    if missing := sorted(
        {
            topic
            for topics in subtopologies.values()
            for topic in topics
            if not partitions.get(topic)
        }
    ):
        raise MissingSourceTopics(
            f"source topics {', '.join(missing)} do not exist; create them and start again"
        )
    return {
        TaskId(subtopology, number): tuple(
            TopicPartition(topic, number) for topic in sorted(topics) if number < partitions[topic]
        )
        for subtopology, topics in sorted(subtopologies.items())
        for number in range(max((partitions[topic] for topic in topics), default=0))
    }


# The internal topics of joins by a foreign key, which have as many partitions as the tables.
_FOREIGN_KEY: Final = re.compile(
    r".+-subscription-re(gistration|sponse)-(.+-)?topic", re.IGNORECASE
)


def check_copartitioning(groups: Iterable[Collection[str]], partitions: Mapping[str, int]) -> None:
    """Raise TopologyError when the joined topics of a group differ in their number of partitions.

    Ignores topics that are not in `partitions`.
    """
    for group in groups:
        counts = {topic: partitions[topic] for topic in sorted(group) if topic in partitions}
        if len(set(counts.values())) > 1:
            counted = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
            if any(map(_FOREIGN_KEY.fullmatch, counts)):
                text = f"internal topics do not match the topology: {counted}"
                raise TopologyError(f"{text}. {GROWN}")
            raise TopologyError(
                f"topics that are joined need the same number of partitions, but {counted}; "
                "repartition() one of the streams, or create the topics again with one number"
            )
