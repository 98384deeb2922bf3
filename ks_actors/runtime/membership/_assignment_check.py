"""Checks of assigned tasks against this instance's topology.

The group's leader may run another version of the topology.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self, TypeAlias, final

from ks_actors._errors import TopologyError
from ks_actors.assignment import GroupAssignor, TopologyInfo
from ks_actors.lifecycle import component_log
from ks_actors.runtime.shared import check_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

    from ks_actors.assignment import Tasks
    from ks_actors.log import Log
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.task import AppTopics, TaskParts, TopicSizes

_Reading: TypeAlias = "tuple[int, str]"
_log = component_log(__name__)


@final
class AssignmentCheck:
    """Find assigned tasks that do not fit the topology.

    Such a task has partitions that the topology does not read, or lacks partitions that it reads.
    This happens in two cases. A static member that returns with a new version gets the old
    version's tasks: asking for another assignment fixes this. And leaders before version 3 of the
    user data know only their own topology.
    """

    def __init__(
        self,
        topology: Callable[[], TopologyInfo],
        sizes: TopicSizes,
        matched_of: Callable[[Iterable[TopicPartition]], frozenset[str]],
        tasks: Callable[[], Tasks] | None = None,
    ) -> None:
        self._topology: Callable[[], TopologyInfo] = topology
        # The tasks that a user's grouper makes of the known partitions.
        self._tasks: Callable[[], Tasks] | None = tasks
        # Return the topics of these partitions that a pattern matches, or has matched since the
        # start.
        self.matched_of: Callable[[Iterable[TopicPartition]], frozenset[str]] = matched_of
        self._sizes: TopicSizes = sizes
        # The partition counts at the start.
        self._first: dict[str, int | None] = {
            topic: sizes(topic) for topics in topology().topics.values() for topic in topics
        }
        # The mismatches for which the group was asked to assign again: partitions of a task that
        # does not read them, and partitions that no member reads.
        self._asked: tuple[frozenset[_Reading], frozenset[_Reading]] = frozenset(), frozenset()

    @classmethod
    def of(cls, topics: AppTopics, stateful: Collection[int]) -> Self:
        """Return the check of an instance; the `stateful` subtopologies have changelogs."""
        groups = topics.copartition_groups()
        return cls(
            lambda: TopologyInfo.of(topics.subtopology_topics(), groups, stateful, topics.matched),
            topics.partitions,
            topics.matched_of,
            topics.tasks if topics.grouping.custom else None,
        )

    @property
    def topology(self) -> TopologyInfo:
        """The current topology: patterns may have matched other topics than at the start."""
        return self._topology()

    def was_added(self, partition: TopicPartition) -> bool:
        """Return whether a partition was added to its topic since the start."""
        first = self._first.get(partition.topic)
        return first is not None and partition.partition >= first

    async def refresh_sizes(self, tasks: Iterable[TaskId], log: Log) -> None:
        """Ask the log for the sizes of topics that have grown.

        A topic has grown when a task number is beyond all known sizes.
        """
        topics = self.topology.topics
        grown = {
            topic
            for task in tasks
            if not self._reads(task, topics.get(task.subtopology, ()))
            for topic in topics.get(task.subtopology, ())
        }
        if grown:
            described = await log.describe_topics(sorted(grown), configs=False)
            self._sizes.know({name: topic.partitions for name, topic in described.items()})

    def _reads(self, task: TaskId, topics: Iterable[str]) -> frozenset[str]:
        """Return those of a subtopology's topics that a task reads, by the known sizes."""
        if self._tasks is None:
            return frozenset(
                topic for topic in topics if task.partition < (self._sizes(topic) or 0)
            )
        return frozenset(topic for topic, _ in self._tasks().get(task, ())).intersection(topics)

    def fit(
        self, assigned: Mapping[TaskId, tuple[TopicPartition, ...]]
    ) -> tuple[dict[TaskId, tuple[TopicPartition, ...]], bool]:
        """Return the tasks that can begin, and whether to ask the group for another assignment.

        Raises TopologyError when the leader was asked before and still assigns partitions of topics
        that the topology does not read. Topics that a pattern has matched do not count: the leader
        may learn later than this instance that they are gone.
        """
        topology = self.topology
        topics = topology.topics
        matched = self.matched_of(
            partition for partitions in assigned.values() for partition in partitions
        )
        self._sizes.see(partition for partitions in assigned.values() for partition in partitions)
        foreign = [
            (task, partition.topic)
            for task, partitions in sorted(assigned.items())
            for partition in partitions
            if partition.topic not in topics.get(task.subtopology, ())
            and partition.topic not in matched
        ]
        lacking = [
            (task, topic)
            for task, partitions in sorted(assigned.items())
            for topic in sorted(self._reads(task, topics.get(task.subtopology, ())))
            if topic not in topology.matched
            if all(partition.topic != topic for partition in partitions)
        ]
        asked, self._asked = self._asked, (_readings(foreign), _readings(lacking))
        still_foreign, still_lacking = self._asked[0] & asked[0], self._asked[1] & asked[1]
        if still_foreign:
            raise TopologyError(
                "the group's leader assigns partitions to this instance that its topology does "
                f"not read: {_named(foreign, still_foreign)}. Its version cannot run beside this "
                "one: stop all members before the first one with this version starts"
            )
        if still_lacking:
            _log.warning(
                "no member reads %s for now: the group's leader does not know of them yet, or runs "
                "an earlier release, which assigns by its own topology. They are read once it "
                "knows of them, or has left",
                _named(lacking, still_lacking),
            )
        usable = {
            task: partitions
            for task, partitions in assigned.items()
            if all(
                partition.topic in topics.get(task.subtopology, ()) or partition.topic in matched
                for partition in partitions
            )
        }
        return usable, self._asked[0] > still_foreign or self._asked[1] > still_lacking


def group_assignor(parts: TaskParts, topology: TopologyInfo) -> GroupAssignor:
    """Return the assignor that an instance has as the leader of its group."""
    return GroupAssignor(
        topology,
        grouping=parts.topics.grouping,
        assignor=parts.assignor,
        replicas=parts.config.num_standby_replicas,
        left_out=left_out(parts.topics),
        check=partial(check_sizes, parts.topics),
    )


def left_out(topics: AppTopics) -> dict[int, str]:
    """Return the subtopologies of the queries that this instance does not run, with the query."""
    own = topics.topology.queries()
    return {
        number: query
        for query, numbers in topics.topology.queries(whole=True).items()
        if query not in own
        for number in numbers
    }


def _readings(found: Iterable[tuple[TaskId, str]]) -> frozenset[_Reading]:
    return frozenset((task.subtopology, topic) for task, topic in found)


def _named(found: Iterable[tuple[TaskId, str]], wanted: Container[_Reading]) -> str:
    return ", ".join(
        f"{topic}-{task.partition} (task {task})"
        for task, topic in found
        if (task.subtopology, topic) in wanted
    )


def moved(
    owned: Mapping[TaskId, tuple[TopicPartition, ...]],
    assigned: Mapping[TaskId, tuple[TopicPartition, ...]],
    parting: Container[TaskId],
    lacking: Container[TaskId],
) -> tuple[frozenset[TaskId], dict[TaskId, tuple[TopicPartition, ...]]]:
    """Return the tasks of `owned` to close and of `assigned` to begin, except `parting` ones.

    A task is in both results if its partitions have changed, or if it is `lacking`: it does not
    read one of its partitions. Such a task is committed, closed and begun again.
    """
    gone = frozenset(
        task
        for task, partitions in owned.items()
        if task in lacking or set(assigned.get(task, ())) != set(partitions)
    )
    new = {
        task: partitions
        for task, partitions in assigned.items()
        if task not in parting and (task in gone or task not in owned)
    }
    return gone, new


def named(tasks: Iterable[TaskId]) -> str:
    """Return the names of tasks in order, for a line of the log; `none` without any."""
    return ", ".join(map(str, sorted(tasks))) or "none"
