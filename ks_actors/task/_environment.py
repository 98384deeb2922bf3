"""What all tasks of an instance have in common."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from ks_actors._errors import ConfigError, TopologyError
from ks_actors.config import ProcessingGuarantee
from ks_actors.log import TransactionScope
from ks_actors.serdes import is_told, with_default
from ks_actors.task._cache_budget import CacheBudget
from ks_actors.task._store_registry import StoreRegistry
from ks_actors.task._topic_sizes import TopicSizes
from ks_actors.task.calls import check_threads, needs_thread
from ks_actors.topology import FailOnInvalidTimestamp, ProcessorNode, SinkNode, SourceNode, StoreKind, wanted_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.config import StreamsConfig
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.serdes import Serde
    from ks_actors.topology import StoreSpec, TimestampExtractor, Topology

_OWN_TIME = FailOnInvalidTimestamp()


class Environment:
    """The topology with its topics by the names they have in the log, the settings, and the clock.

    `partitions` tells how many partitions a topic has, None when that is not known (yet). `nodes` tells the nodes of a task. `work_time` is what
    slices of work are measured by, in seconds; `steady_time` a time in ms that never goes back, the clock's unless given. `replayable` tells whether
    the same records are to give the same output in the same order each time: those without keys go to partitions in turn one by one, not in batches,
    and asynchronous nodes hand on when one is full, in the records' order.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        wall_time: Callable[[], int],
        partitions: Callable[[str], int | None],
        nodes: Callable[[TaskId], Iterable[str]],
        existing_topics: Iterable[str] = (),
        work_time: Callable[[], float] = perf_counter,
        steady_time: Callable[[], float] | None = None,
    ) -> None:
        _check_optimizations(topology, config)
        check_threads(topology, config.default_timestamp_extractor)
        self.topology: Topology = topology
        self.config: StreamsConfig = config
        self.application_id: str = config.application_id
        self.transactional: bool = config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        self.wall_time: Callable[[], int] = wall_time
        self.work_time: Callable[[], float] = work_time
        self.steady_time: Callable[[], float] = wall_time if steady_time is None else steady_time
        self.partitions: TopicSizes = TopicSizes(partitions)
        self.node_names: Callable[[TaskId], Iterable[str]] = nodes
        self.max_task_idle_ms: int = config.max_task_idle_ms
        self.timestamp_extractor: TimestampExtractor = config.default_timestamp_extractor
        self.global_stores: Mapping[str, Any] = {}
        self.replayable: bool = False
        # Topics whose records do not come from the log: their offsets are nothing to look for there.
        self.unlogged: frozenset[str] = frozenset()
        self.cache: CacheBudget = CacheBudget(config.statestore_cache_max_bytes)
        self.cached_stores: Mapping[str, StoreSpec] = {}
        if self.cache.limit:
            self.cached_stores = {name: self._store_spec(spec) for name, spec in topology.stores.items() if spec.caching}
        self.residents: StoreRegistry = StoreRegistry(_behind(topology, self.cached_stores))
        self._internal = frozenset(topology.internal_topics)
        self._sources: dict[str, SourceNode] = {
            self.topic(topic): node for node in topology.nodes.values() if isinstance(node, SourceNode) for topic in node.topics
        }
        self._matched: dict[str, SourceNode] = self.matching(existing_topics)
        self._sources |= self._matched
        # Topics that are gone are assigned, fetched and committed for a while yet.
        self._ever_matched: dict[str, SourceNode] = dict(self._matched)

    def topic(self, name: str) -> str:
        """Return the name in the log of a topic of the topology: internal ones begin with the application's id."""
        return f"{self.application_id}-{name}" if name in self._internal else name

    def extractor_of(self, topic: str) -> TimestampExtractor:
        """Return what tells the time of a topic's records; those of internal topics have the time that they were written with."""
        node = self.source_of(topic)
        if node.timestamp_extractor is not None:
            return node.timestamp_extractor
        return _OWN_TIME if any(name in self._internal for name in node.topics) else self.timestamp_extractor

    def source_of(self, topic: str) -> SourceNode:
        """Return the source node that reads a topic, or has read it, as a pattern matched it that is gone now."""
        return self._sources.get(topic) or self._ever_matched[topic]

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics that tasks read, by their names in the log."""
        return tuple(topic for topic in self._sources if topic not in self.topology.global_topics)

    def store_specs(self, specs: Mapping[str, StoreSpec]) -> list[StoreSpec]:
        """Return what stores are to be, with the app's defaults filled in."""
        return [self._store_spec(spec) for spec in specs.values()]

    def _store_spec(self, spec: StoreSpec) -> StoreSpec:
        if spec.kind is StoreKind.CUSTOM:
            return spec
        key, value = self.serdes(spec.key, spec.value, of=f"store {spec.name}")
        return msgspec.structs.replace(spec, key=key, value=value, type=spec.type or self.config.default_dsl_store)

    @property
    def reused_topics(self) -> frozenset[str]:
        """The topics that the app reads and that are changelogs of stores, too."""
        return frozenset(spec.source_topic for spec in self.topology.stores.values() if spec.source_topic is not None)

    @property
    def whole_commits(self) -> bool:
        """Whether workers have to stand still for the whole of a commit.

        Stores of the user's own do not tell the next transaction from the one that is being committed, and nobody is to be at the stores of a task
        while a thread is.
        """
        return any(
            any(spec.supplier is not None for spec in part.stores.values())
            or (part.stores and any(needs_thread(self.topology.nodes[name]) for name in part.nodes))
            for part in self.topology.subtopologies()
        )

    def stores_of(self, task: TaskId, specs: Iterable[StoreSpec]) -> list[StoreSpec]:
        """Return what the stores of a task are, among `specs`: a topic that one is filled from may have fewer partitions than there are tasks."""
        return [
            spec
            if spec.source_topic is None or task.partition < (self.partitions(spec.source_topic) or 0)
            else msgspec.structs.replace(spec, logging=False, source_topic=None)
            for spec in specs
        ]

    def changelog(self, store: str) -> str:
        """Return the name of a store's changelog topic, which may be one that the app reads."""
        spec = self.topology.stores.get(store)
        if spec is not None and spec.source_topic is not None:
            return spec.source_topic
        return f"{self.application_id}-{store}-changelog"

    def serdes(self, key: Serde[Any] | None, value: Serde[Any] | None, *, of: str) -> tuple[Serde[Any], Serde[Any]]:
        """Return the serdes `of` a node or store, the app's defaults where it leaves them to these. Raises TopologyError, which names it."""
        return (
            self._required(key, self.config.default_key_serde, "key", of),
            self._required(value, self.config.default_value_serde, "value", of),
        )

    def _required(self, serde: Serde[Any] | None, default: Serde[Any] | None, what: str, of: str) -> Serde[Any]:
        found = with_default(serde, default)
        if found is None or not is_told(found):
            raise TopologyError(
                f"the {what} serde of {of} is missing: give it where the topic or store is named (Consumed, Produced, Grouped, Materialized ...), "
                f"or set default_{what}_serde for the app"
            )
        return found

    def know_topics(self, counts: Mapping[str, int]) -> None:
        """Take note of all topics there are, and how many partitions they have: patterns read those that match from now on."""
        self.partitions.know(counts)
        self._matched = self.matching(counts)
        self._ever_matched |= self._matched
        self._sources = self._matched | {topic: node for topic, node in self._sources.items() if node.pattern is None}

    def matching(self, topics: Iterable[str]) -> dict[str, SourceNode]:
        """Return those of the topics that a pattern matches, with the node that reads them; never the app's internal ones, nor Kafka's."""
        found: dict[str, SourceNode] = {}
        for node in self.topology.nodes.values():
            if isinstance(node, SourceNode) and node.pattern is not None:
                found.update(
                    {
                        topic: node
                        for topic in topics
                        if topic not in found and node.pattern.fullmatch(topic) and not is_internal(topic, self.application_id)
                    }
                )
        return found

    @property
    def matched(self) -> frozenset[str]:
        """The topics that patterns read."""
        return frozenset(self._matched)

    def matched_of(self, partitions: Iterable[TopicPartition]) -> frozenset[str]:
        """Return those of the topics that a pattern matches, or has matched since the start: they may go at any time, and may be gone already."""
        return frozenset(one.topic for one in partitions if one.topic in self._ever_matched)

    def transaction_scope(self) -> TransactionScope:
        """Return what the app's transactions may have in them. What goes to topics that functions tell is not foreseen."""
        topology = self.topology
        sinks = [node.topic for node in topology.nodes.values() if isinstance(node, SinkNode)]
        written = {self.topic(topic) for topic in sinks if isinstance(topic, str)}
        written |= {self.config.errors_dead_letter_queue_topic_name or ""} - {""}
        logged = {self.changelog(name) for name, spec in topology.stores.items() if spec.logging and spec.source_topic is None}
        return TransactionScope(topics=frozenset(written | logged), group_id=self.application_id, sources=frozenset(self.source_topics))

    def topics_in_use(self) -> frozenset[str]:
        """Return the topics that the app reads, and those that it writes to, as far as that is known: of functions that tell one, those so far."""
        written = {self.topic(node.topic) for node in self.topology.nodes.values() if isinstance(node, SinkNode) and isinstance(node.topic, str)}
        letters = {self.config.errors_dead_letter_queue_topic_name or ""} - {""}
        return self.partitions.followed.union(written, letters, self._sources)

    def subtopology_topics(self) -> dict[int, tuple[str, ...]]:
        """Return the source topics of each subtopology, by their names in the log."""
        topics: dict[int, tuple[str, ...]] = {}
        for subtopology in self.topology.subtopologies():
            nodes = set(subtopology.nodes)
            # A repartition topic behind a pattern that has found no topic yet is not made before it has.
            topics[subtopology.id] = tuple(
                topic
                for topic, node in self._sources.items()
                if node.name in nodes and (self.partitions(topic) is not None or self._internal.isdisjoint(node.topics))
            )
        return topics

    def copartition_groups(self) -> list[frozenset[str]]:
        """Return the groups of topics that need the same number of partitions, by their names in the log."""
        return [frozenset(map(self.topic, group)) for subtopology in self.topology.subtopologies() for group in subtopology.copartition_groups]


def is_internal(topic: str, application_id: str) -> bool:
    """Return whether a topic is one that the app makes for itself, or Kafka's own: patterns never match these."""
    return topic.startswith("__") or (topic.startswith(f"{application_id}-") and topic.endswith(("-changelog", "-repartition")))


def _behind(topology: Topology, cached: Iterable[str]) -> frozenset[str]:
    """Return the stores that what caches hold back has not come to. Only the first node with a cached store writes to it, others look."""
    processors = {name: node for name, node in topology.nodes.items() if isinstance(node, ProcessorNode)}
    owners = {store: next(name for name, node in processors.items() if store in node.stores) for store in cached}
    stack = [processors[name] for name in owners.values()]
    found: set[str] = set()
    while stack:
        for name in stack.pop().children:
            if name in processors and name not in found:
                found.add(name)
                stack.append(processors[name])
    return frozenset(store for name in found for store in processors[name].stores if owners.get(store, name) in found)


def _check_optimizations(topology: Topology, config: StreamsConfig) -> None:
    """Raise ConfigError when the topology is not optimized as is wanted. One that is made by hand has nothing to be optimized."""
    if topology.optimizations is not None and (missing := sorted(wanted_by(config.topology_optimization) - topology.optimizations)):
        raise ConfigError(
            f"topology_optimization: {', '.join(missing)} is wanted, and the topology was built without: give the config to StreamsBuilder.build, too"
        )


def nodes_of(topology: Topology, task: TaskId) -> Iterable[str]:
    """Return the nodes of a task; a negative subtopology stands for global stores."""
    if task.subtopology < 0:
        return [name for store in topology.global_topics.values() for name in (store.source, store.processor)]
    return next(subtopology.nodes for subtopology in topology.subtopologies() if subtopology.id == task.subtopology)
