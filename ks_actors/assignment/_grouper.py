"""Grouping of partitions into tasks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

from ks_actors._errors import MissingSourceTopics, TopologyError
from ks_actors.records import TaskId, TopicPartition
from ks_actors.topology import GROWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

Tasks: TypeAlias = "Mapping[TaskId, tuple[TopicPartition, ...]]"
"""The partitions that each task reads."""

_SHOWN: Final = 10


class PartitionGrouper(Protocol):
    """Group the partitions that an app reads into tasks.

    All members of a group need the same grouper, by its `name`: a member with another one is
    refused. A subclass of Protocol is not needed.
    """

    @property
    def name(self) -> str:
        """The name of this grouping. Give a changed grouping another name."""
        ...

    def group(
        self, topics: Mapping[int, Collection[str]], partitions: Mapping[str, int], /
    ) -> Mapping[TaskId, Collection[TopicPartition]]:
        """Return the partitions of each task.

        `topics` are the source topics by subtopology, and `partitions` their partition counts. Each
        partition of these topics belongs to one task of its subtopology, and partitions with the
        same number of joined topics belong to one task.

        The number of a task is the partition of its changelogs, which have as many partitions as
        the largest number requires. A partition stays in its task as long as the task has state:
        when a topic grows, only new partitions may be placed anew. `group_partitions` makes the
        groups of apps without a grouper. The call may come from another thread, at any rebalance,
        and equal arguments give an equal answer.
        """
        ...


def group_partitions(
    topics: Mapping[int, Collection[str]], partitions: Mapping[str, int]
) -> dict[TaskId, tuple[TopicPartition, ...]]:
    """Make as many tasks of each subtopology as its largest source topic has partitions.

    Partitions with the same number go together. A task does not read topics that have no partition
    with the task's number.
    """
    return {
        TaskId(subtopology, number): tuple(
            TopicPartition(topic, number) for topic in sorted(names) if number < partitions[topic]
        )
        for subtopology, names in sorted(topics.items())
        for number in range(max((partitions[topic] for topic in names), default=0))
    }


class GrouperFailed(TopologyError):
    """The partition grouper of a user raised, or its answer breaks a rule."""


_Arguments: TypeAlias = (
    "tuple[dict[int, tuple[str, ...]], dict[str, int], tuple[frozenset[str], ...]]"
)


@final
class Grouping:
    """The grouping of an app's partitions into tasks, by a user's grouper or by default.

    Callable from any thread.
    """

    def __init__(self, grouper: PartitionGrouper | None = None) -> None:
        self._grouper: PartitionGrouper | None = grouper
        self.name: str = "" if grouper is None else grouper.name
        """The grouper's name; empty for the default grouping."""
        self._last: tuple[_Arguments, Tasks] | None = None

    @property
    def custom(self) -> bool:
        """Whether a user's grouper makes the tasks."""
        return self._grouper is not None

    def tasks(
        self,
        topics: Mapping[int, Collection[str]],
        partitions: Mapping[str, int],
        copartitioned: Iterable[Collection[str]] = (),
    ) -> Tasks:
        """Return the partitions of each task, given the source topics by subtopology.

        Raises MissingSourceTopics, naming all topics that are not in `partitions`. Raises
        GrouperFailed if the user's grouper raises or breaks a rule.
        """
        read = {topic for names in topics.values() for topic in names}
        if missing := sorted(topic for topic in read if not partitions.get(topic)):
            raise MissingSourceTopics(
                f"source topics {', '.join(missing)} do not exist; create them and start again"
            )
        if self._grouper is None:
            return group_partitions(topics, partitions)
        arguments = (
            {number: tuple(sorted(names)) for number, names in sorted(topics.items())},
            {topic: partitions[topic] for topic in sorted(read)},
            tuple(map(frozenset, copartitioned)),
        )
        # Equal arguments are the rule: tasks, queries and changelogs ask again and again.
        last = self._last
        if last is None or last[0] != arguments:
            last = self._last = arguments, self._asked(self._grouper, *arguments)
        return last[1]

    def _asked(
        self,
        grouper: PartitionGrouper,
        topics: dict[int, tuple[str, ...]],
        partitions: dict[str, int],
        copartitioned: tuple[frozenset[str], ...],
    ) -> Tasks:
        try:
            found = grouper.group(dict(topics), dict(partitions))
            tasks = {task: tuple(sorted(found[task])) for task in sorted(found)}
            wrong = list(_wrong(tasks, topics, partitions, copartitioned))
        except Exception as error:
            raise self.failed(f"raised {type(error).__name__}: {error}") from error
        if wrong:
            raise self.failed(
                "must put each partition into one task of its subtopology, and joined partitions "
                f"into the same task: {', '.join(wrong[:_SHOWN])}"
            )
        return tasks

    def failed(self, why: str) -> GrouperFailed:
        """Return the error of the grouper."""
        kind = type(self._grouper).__qualname__
        return GrouperFailed(f"the partition grouper {self.name!r} ({kind}) {why}")


def _wrong(
    tasks: Tasks,
    topics: Mapping[int, Collection[str]],
    partitions: Mapping[str, int],
    copartitioned: Iterable[Collection[str]],
) -> Iterator[str]:
    """Describe each rule that a user's grouping breaks."""
    readers: dict[TopicPartition, list[TaskId]] = {
        TopicPartition(topic, number): []
        for names in topics.values()
        for topic in names
        for number in range(partitions[topic])
    }
    for task, group in tasks.items():
        if task.partition < 0 or not group:
            yield f"task {task} has a negative number or no partitions"
        for partition in group:
            if partition not in readers or partition.topic not in topics.get(task.subtopology, ()):
                yield f"task {task} reads {partition}, which its subtopology does not have"
            else:
                readers[partition].append(task)
    for partition, found in readers.items():
        if len(found) != 1:
            yield f"{partition} is in {' and '.join(map(str, found)) or 'no task'}"
    for joined in copartitioned:
        by_number: dict[int, set[TaskId]] = {}
        for partition, found in readers.items():
            if partition.topic in joined:
                by_number.setdefault(partition.partition, set()).update(found)
        for number, ids in by_number.items():
            if len(ids) > 1:
                yield f"partitions {number} of {', '.join(sorted(joined))} are not in one task"


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
