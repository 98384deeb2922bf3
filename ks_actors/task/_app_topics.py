"""The topics of an app: names, partition counts, ids, and the nodes that read them."""

from __future__ import annotations

import re
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, final
from weakref import WeakSet

from ks_actors.assignment import Grouping
from ks_actors.log import TransactionScope
from ks_actors.topology import FailOnInvalidTimestamp, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.assignment import Tasks
    from ks_actors.config import StreamsConfig
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.topology import TimestampExtractor, Topology

_BY_NUMBER = Grouping()
_OWN_TIME = FailOnInvalidTimestamp()
_INTERNAL: Final = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)",
    re.DOTALL,
)
"""The suffixes of internal topics."""


class Follower(Protocol):
    """A part that depends on a topic's partition count; a change of the count sets `stale`."""

    stale: bool


@final
class TopicSizes:
    """The number of partitions by topic; None for a topic of unknown size.

    Topics may grow while the app runs: `know` updates the counts, and marks the followers of a
    topic. All methods are thread-safe. `first` returns counts from another source.
    """

    def __init__(self, first: Callable[[str], int | None]) -> None:
        self._first: Callable[[str], int | None] = first
        self._known: dict[str, int] = {}
        self._followers: dict[str, WeakSet[Follower]] = {}
        self._lock = Lock()

    def __call__(self, topic: str) -> int | None:
        """Return the number of partitions of a topic."""
        found = self._known.get(topic)
        return self._first(topic) if found is None else found

    @property
    def followed(self) -> frozenset[str]:
        """The topics that have, or had, followers."""
        with self._lock:
            return frozenset(self._followers)

    def follow(self, topic: str, follower: Follower) -> None:
        """Mark `follower` whenever the topic's partition count changes, as long as it is alive."""
        with self._lock:
            self._followers.setdefault(topic, WeakSet()).add(follower)

    def know(self, counts: Mapping[str, int]) -> None:
        """Update partition counts."""
        with self._lock:
            changed = {
                topic: count for topic, count in counts.items() if self._known.get(topic) != count
            }
            # A new dict, because readers in other threads take no lock.
            self._known = {**self._known, **changed}
            for follower in [
                follower for topic in changed for follower in self._followers.get(topic, ())
            ]:
                follower.stale = True

    def see(self, partitions: Iterable[TopicPartition]) -> None:
        """Learn from existing partitions: their topics have at least as many partitions."""
        seen: dict[str, int] = {}
        for topic, number in partitions:
            if number >= max(self(topic) or 0, seen.get(topic, 0)):
                seen[topic] = number + 1
        self.know(seen)


@final
class AppTopics:
    """The topology with the log's topic names, and the topics that the app reads and writes.

    `config` has the settings of topics. `partitions` returns a topic's number of partitions, None
    while it is unknown. `grouping` makes tasks from partitions.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        partitions: Callable[[str], int | None],
        grouping: Grouping = _BY_NUMBER,
    ) -> None:
        self.topology: Topology = topology
        self.grouping: Grouping = grouping
        self.config: StreamsConfig = config
        self.partitions: TopicSizes = TopicSizes(partitions)
        # The ids at the start. A log may have none, and topics may be created while the app runs.
        self.topic_ids: Mapping[str, str] = {}
        # By subtopology. Each task uses these topics, so they are cached until topics appear or
        # disappear.
        self._topics_read: Mapping[int, tuple[str, ...]] | None = None
        self._internal = frozenset(topology.internal_topics)
        self._sources: dict[str, SourceNode] = {
            self.topic(topic): node
            for node in topology.nodes.values()
            if isinstance(node, SourceNode)
            for topic in node.topics
        }
        self._matched: dict[str, SourceNode] = {}
        # Deleted topics are still assigned, fetched and committed for a while.
        self._ever_matched: dict[str, SourceNode] = {}

    def topic(self, name: str) -> str:
        """Return a topic's name in the log; internal topics get the application id as prefix."""
        return f"{self.config.application_id}-{name}" if name in self._internal else name

    def extractor_of(self, topic: str) -> TimestampExtractor:
        """Return the timestamp extractor of a topic.

        Records of internal topics keep the timestamps that they were written with.
        """
        node = self.source_of(topic)
        if node.timestamp_extractor is not None:
            return node.timestamp_extractor
        return (
            _OWN_TIME
            if any(name in self._internal for name in node.topics)
            else self.config.default_timestamp_extractor
        )

    def source_of(self, topic: str) -> SourceNode:
        """Return the source node that reads a topic.

        This includes topics that a pattern matched and that have been deleted since.
        """
        return self._sources.get(topic) or self._ever_matched[topic]

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics that tasks read, by their names in the log."""
        return tuple(topic for topic in self._sources if topic not in self.topology.global_topics)

    @property
    def reused_topics(self) -> frozenset[str]:
        """The topics that the app reads and that also serve as changelogs."""
        return frozenset(
            spec.source_topic
            for spec in self.topology.stores.values()
            if spec.source_topic is not None
        )

    def changelog(self, store: str) -> str:
        """Return the name of a store's changelog topic, which may be a source topic of the app."""
        spec = self.topology.stores.get(store)
        if spec is not None and spec.source_topic is not None:
            return spec.source_topic
        return f"{self.config.application_id}-{store}-changelog"

    def know_topics(self, counts: Mapping[str, int]) -> None:
        """Update the known topics and their partition counts.

        From now on patterns read the topics that match.
        """
        self.partitions.know(counts)
        self._topics_read = None
        self._matched = self.matching(counts)
        self._ever_matched |= self._matched
        self._sources = self._matched | {
            topic: node for topic, node in self._sources.items() if node.pattern is None
        }

    def matching(self, topics: Iterable[str]) -> dict[str, SourceNode]:
        """Return the topics that a pattern matches, with the node that reads them.

        Patterns never match the app's internal topics, nor Kafka's.
        """
        found: dict[str, SourceNode] = {}
        for node in self.topology.nodes.values():
            if isinstance(node, SourceNode) and node.pattern is not None:
                found.update(
                    {
                        topic: node
                        for topic in topics
                        if topic not in found
                        and node.pattern.fullmatch(topic)
                        and not is_internal(topic, self.config.application_id)
                    }
                )
        return found

    @property
    def matched(self) -> frozenset[str]:
        """The topics that patterns read."""
        return frozenset(self._matched)

    def matched_of(self, partitions: Iterable[TopicPartition]) -> frozenset[str]:
        """Return the topics that a pattern matches, or has matched since the start.

        These topics may be deleted at any time, or may be deleted already.
        """
        return frozenset(one.topic for one in partitions if one.topic in self._ever_matched)

    def transaction_scope(self) -> TransactionScope:
        """Return the topics and group that the app's transactions may touch.

        Topics that functions choose are unknown, so they are left out.
        """
        topology = self.topology
        sinks = [node.topic for node in topology.nodes.values() if isinstance(node, SinkNode)]
        written = {self.topic(topic) for topic in sinks if isinstance(topic, str)}
        written |= {self.config.errors_dead_letter_queue_topic_name or ""} - {""}
        logged = {
            self.changelog(name)
            for name, spec in topology.stores.items()
            if spec.logging and spec.source_topic is None
        }
        return TransactionScope(
            topics=frozenset(written | logged),
            group_id=self.config.application_id,
            sources=frozenset(self.source_topics),
        )

    def topics_in_use(self) -> frozenset[str]:
        """Return the topics that the app reads, and its known output topics.

        Topics that functions choose are included if they have been chosen already.
        """
        written = {
            self.topic(node.topic)
            for node in self.topology.nodes.values()
            if isinstance(node, SinkNode) and isinstance(node.topic, str)
        }
        letters = {self.config.errors_dead_letter_queue_topic_name or ""} - {""}
        return self.partitions.followed.union(written, letters, self._sources)

    def subtopology_topics(self) -> dict[int, tuple[str, ...]]:
        """Return the source topics of each subtopology, by their names in the log."""
        topics: dict[int, tuple[str, ...]] = {}
        for subtopology in self.topology.subtopologies():
            nodes = set(subtopology.nodes)
            # A repartition topic downstream of a pattern is created once the pattern has matched a
            # topic.
            topics[subtopology.id] = tuple(
                topic
                for topic, node in self._sources.items()
                if node.name in nodes
                and (self.partitions(topic) is not None or self._internal.isdisjoint(node.topics))
            )
        return topics

    def tasks(self) -> Tasks:
        """Return all tasks with their partitions, by the known topics and sizes."""
        counts = {
            topic: count
            for topic in self.source_topics
            if (count := self.partitions(topic)) is not None
        }
        topics = {
            number: [topic for topic in names if topic in counts]
            for number, names in self.subtopology_topics().items()
        }
        return self.grouping.tasks(topics, counts, self.copartition_groups())

    def readers(self, subtopology: int, number_of: Callable[[int], int]) -> frozenset[int]:
        """Return the numbers of a subtopology's tasks that read some of its partitions.

        `number_of` returns the partition that is meant of a topic with so many partitions.
        """
        return frozenset(
            task.partition
            for task, partitions in self.tasks().items()
            if task.subtopology == subtopology
            for topic, number in partitions
            if number == number_of(self.partitions(topic) or 1)
        )

    def topic_ids_of(self, task: TaskId, others: Iterable[str]) -> dict[str, str]:
        """Return the ids of a task's source topics and of the `others`, as far as known."""
        if self._topics_read is None:
            self._topics_read = self.subtopology_topics()
        topics = {*self._topics_read.get(task.subtopology, ()), *others}
        return {topic: self.topic_ids[topic] for topic in topics if topic in self.topic_ids}

    def copartition_groups(self) -> list[frozenset[str]]:
        """Return the groups of topics that need equal partition counts, by names in the log."""
        return [
            frozenset(map(self.topic, group))
            for subtopology in self.topology.subtopologies()
            for group in subtopology.copartition_groups
        ]


def is_internal(topic: str, application_id: str) -> bool:
    """Return whether a topic is internal to the app or to Kafka: patterns never match these."""
    return topic.startswith("__") or is_own_internal(topic, application_id)


def is_own_internal(topic: str, application_id: str) -> bool:
    """Return whether a topic is internal to the app by its name, as Kafka's own tools decide it."""
    return topic.startswith(f"{application_id}-") and _INTERNAL.fullmatch(topic) is not None


def nodes_of(topology: Topology) -> Callable[[TaskId], tuple[str, ...]]:
    """Return the nodes by task; a negative subtopology stands for global stores."""
    by_subtopology: dict[int, tuple[str, ...]] = {}

    def nodes(task: TaskId) -> tuple[str, ...]:
        # At the first use: a topology whose queries are wrong raises an error here.
        if not by_subtopology:
            by_subtopology.update((each.id, each.nodes) for each in topology.subtopologies())
            by_subtopology[-1] = tuple(
                name
                for store in topology.global_topics.values()
                for name in (store.source, store.processor)
            )
        return by_subtopology[max(task.subtopology, -1)]

    return nodes
