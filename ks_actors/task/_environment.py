"""The settings, topology metadata and clocks that all tasks of an instance share."""

from __future__ import annotations

import re
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ks_actors._errors import ConfigError, TopologyError
from ks_actors.config import ProcessingGuarantee
from ks_actors.log import TransactionScope
from ks_actors.metrics import STILL, Histogram
from ks_actors.serdes import is_complete, with_default, wraps_key
from ks_actors.task._cache_budget import CacheBudget
from ks_actors.task._store_registry import StoreRegistry
from ks_actors.task._topic_sizes import TopicSizes
from ks_actors.task.calls import check_threads, needs_thread
from ks_actors.topology import (
    FailOnInvalidTimestamp,
    ProcessorNode,
    SinkNode,
    SourceNode,
    StoreKind,
    refuse_unnamed,
    spec_with_headers,
    wanted_by,
    with_headers,
)
from ks_actors.tracing import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.config import StreamsConfig
    from ks_actors.metrics import Window
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.serdes import Serde
    from ks_actors.topology import StoreSpec, TimestampExtractor, Topology
    from ks_actors.tracing import TaskTracing, Tracing

_OWN_TIME = FailOnInvalidTimestamp()
_INTERNAL: Final = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)",
    re.DOTALL,
)
"""The suffixes of internal topics."""


class Environment:
    """The topology with the log's topic names, the settings, and the clocks.

    `partitions` returns a topic's number of partitions, None while it is unknown. `nodes` returns
    the nodes of a task. `work_time` measures slices of work, in seconds. `steady_time` is a
    monotonic time in ms; it defaults to the wall clock. `window` is the time window of the metrics,
    and `detailed` says whether their level is above INFO. With `replayable` the same records give
    the same output in the same order each time: records without keys are spread over the partitions
    one by one, not in batches, and asynchronous nodes emit results in the records' order, when one
    of them is full. `tracing` records spans.
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
        window: Window = STILL,
        tracing: Tracing | None = None,
    ) -> None:
        if config.dsl_store_format == "HEADERS":
            topology = with_headers(topology, config.default_dsl_store)
        _check_optimizations(topology, config)
        if config.ensure_explicit_internal_resource_naming:
            refuse_unnamed(topology)
        check_threads(topology, config.default_timestamp_extractor)
        self.topology: Topology = topology
        self.config: StreamsConfig = config
        self.application_id: str = config.application_id
        self.transactional: bool = (
            config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        )
        self.wall_time: Callable[[], int] = wall_time
        self.work_time: Callable[[], float] = work_time
        self.steady_time: Callable[[], float] = wall_time if steady_time is None else steady_time
        self.window: Window = window
        self._tracing = tracing
        # The ages of output by topic, and the answers of exception handlers by kind and response.
        self.ages: dict[str, Histogram] = {}
        self.answers: Counter[tuple[str, str]] = Counter()
        self.detailed: bool = config.metrics_recording_level != "INFO"
        self.partitions: TopicSizes = TopicSizes(partitions)
        self.node_names: Callable[[TaskId], Iterable[str]] = nodes
        self.max_task_idle_ms: int = config.max_task_idle_ms
        # Never 0, even if poll_ms is: an app without records would fetch in a tight loop.
        self.poll_ms: int = max(1, config.poll_ms)
        self.timestamp_extractor: TimestampExtractor = config.default_timestamp_extractor
        self.global_stores: Mapping[str, Any] = {}
        self.replayable: bool = False
        # Topics with records that do not come from the log: their offsets mean nothing there.
        self.unlogged: frozenset[str] = frozenset()
        self.cache: CacheBudget = CacheBudget(config.statestore_cache_max_bytes)
        self.cached_stores: Mapping[str, StoreSpec] = {}
        if self.cache.limit:
            self.cached_stores = {
                name: self._store_spec(spec)
                for name, spec in topology.stores.items()
                if spec.caching
            }
        self.store_registry: StoreRegistry = StoreRegistry(_behind(topology, self.cached_stores))
        # As at the start. A log may have no ids, and topics may be created while the app runs.
        self.topic_ids: Mapping[str, str] = {}
        # By subtopology. Each task needs them, so they are cached until topics appear or disappear.
        self._topics_read: Mapping[int, tuple[str, ...]] | None = None
        self._internal = frozenset(topology.internal_topics)
        self._sources: dict[str, SourceNode] = {
            self.topic(topic): node
            for node in topology.nodes.values()
            if isinstance(node, SourceNode)
            for topic in node.topics
        }
        self._matched: dict[str, SourceNode] = self.matching(existing_topics)
        self._sources |= self._matched
        # Deleted topics are still assigned, fetched and committed for a while.
        self._ever_matched: dict[str, SourceNode] = dict(self._matched)

    def tracing(self, task: TaskId) -> TaskTracing:
        """Return the tracing of a task."""
        return (
            UNTRACED
            if self._tracing is None
            else self._tracing.task(
                task, application_id=self.application_id, client_id=self.config.client_id
            )
        )

    def topic(self, name: str) -> str:
        """Return a topic's name in the log; internal topics get the application id as prefix."""
        return f"{self.application_id}-{name}" if name in self._internal else name

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
            else self.timestamp_extractor
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

    def store_specs(self, specs: Mapping[str, StoreSpec]) -> list[StoreSpec]:
        """Return the specs of stores with the app's defaults filled in."""
        return [self._store_spec(spec) for spec in specs.values()]

    def _store_spec(self, spec: StoreSpec) -> StoreSpec:
        if spec.kind is StoreKind.CUSTOM:
            return spec
        if self.config.dsl_store_format == "HEADERS":
            spec = spec_with_headers(spec, self.config.default_dsl_store)
        key, value = self.serdes(spec.key, spec.value, of=f"store {spec.name}")
        return msgspec.structs.replace(
            spec,
            key=key,
            value=value,
            type=spec.type or self.config.default_dsl_store,
            spare_ms=0 if self.config.kafka_streams_faults else spec.spare_ms,
        )

    @property
    def reused_topics(self) -> frozenset[str]:
        """The topics that the app reads and that also serve as changelogs."""
        return frozenset(
            spec.source_topic
            for spec in self.topology.stores.values()
            if spec.source_topic is not None
        )

    @property
    def whole_commits(self) -> bool:
        """Whether workers have to pause for the whole of a commit.

        Custom stores do not separate the next transaction from the one that is being committed. And
        while a thread processes a task, nothing else may touch the task's stores.
        """
        return any(
            any(spec.supplier is not None for spec in part.stores.values())
            or (part.stores and any(needs_thread(self.topology.nodes[name]) for name in part.nodes))
            for part in self.topology.subtopologies()
        )

    def stores_of(self, task: TaskId, specs: Iterable[StoreSpec]) -> list[StoreSpec]:
        """Return the specs of a task's stores, among `specs`.

        A store's source topic may have fewer partitions than there are tasks: such a task's store
        gets neither source topic nor changelog. It stays empty, so it is in memory: on disk it
        would look like an only copy.
        """
        return [
            spec
            if spec.source_topic is None
            or task.partition < (self.partitions(spec.source_topic) or 0)
            else msgspec.structs.replace(spec, logging=False, source_topic=None, type="in_memory")
            for spec in specs
        ]

    def changelog(self, store: str) -> str:
        """Return the name of a store's changelog topic, which may be a source topic of the app."""
        spec = self.topology.stores.get(store)
        if spec is not None and spec.source_topic is not None:
            return spec.source_topic
        return f"{self.application_id}-{store}-changelog"

    def serdes(
        self, key: Serde[Any] | None, value: Serde[Any] | None, *, of: str
    ) -> tuple[Serde[Any], Serde[Any]]:
        """Return the serdes of a node or store, with the app's defaults for missing ones.

        Raises TopologyError, with `of` in its text, when one is missing.
        """
        return self.key_serde(key, of=of), self.value_serde(value, of=of)

    def key_serde(self, serde: Serde[Any] | None, *, of: str) -> Serde[Any]:
        """Return a serde of keys, with the app's default for missing parts.

        Raises TopologyError, with `of` in its text, when one is missing.
        """
        return self._required(serde, "key", of)

    def value_serde(self, serde: Serde[Any] | None, *, of: str) -> Serde[Any]:
        """Return a serde of values, with the app's default for missing parts.

        A serde of values that wraps a key takes the default of keys. Raises TopologyError, with
        `of` in its text, when one is missing.
        """
        return self._required(serde, "key" if wraps_key(serde) else "value", of)

    def _required(self, serde: Serde[Any] | None, what: str, of: str) -> Serde[Any]:
        config = self.config
        default = config.default_key_serde if what == "key" else config.default_value_serde
        found = with_default(serde, default)
        if found is None or not is_complete(found):
            raise TopologyError(
                f"the {what} serde of {of} is missing: give it where the topic or store is named "
                "(Consumed, Produced, Grouped, Materialized ...), or set "
                f"default_{what}_serde for the app"
            )
        return found

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
                        and not is_internal(topic, self.application_id)
                    }
                )
        return found

    @property
    def matched(self) -> frozenset[str]:
        """The topics that patterns read."""
        return frozenset(self._matched)

    def matched_of(self, partitions: Iterable[TopicPartition]) -> frozenset[str]:
        """Return the topics that a pattern matches, or has matched since the start.

        They may be deleted at any time, or be deleted already.
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
            group_id=self.application_id,
            sources=frozenset(self.source_topics),
        )

    def topics_in_use(self) -> frozenset[str]:
        """Return the topics that the app reads, and those that it writes to as far as known.

        Of topics that functions choose, it has those chosen so far.
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


def _behind(topology: Topology, cached: Iterable[str]) -> frozenset[str]:
    """Return the stores downstream of caches, which cached updates have not reached.

    Only the first node with a cached store writes to it, the others read.
    """
    processors = {
        name: node for name, node in topology.nodes.items() if isinstance(node, ProcessorNode)
    }
    owners = {
        store: next(name for name, node in processors.items() if store in node.stores)
        for store in cached
    }
    stack = [processors[name] for name in owners.values()]
    found: set[str] = set()
    while stack:
        for name in stack.pop().children:
            if name in processors and name not in found:
                found.add(name)
                stack.append(processors[name])
    return frozenset(
        store
        for name in found
        for store in processors[name].stores
        if owners.get(store, name) in found
    )


def _check_optimizations(topology: Topology, config: StreamsConfig) -> None:
    """Raise ConfigError when the topology lacks an optimization that the config asks for.

    A topology made by hand has nothing to optimize.
    """
    if topology.optimizations is not None and (
        missing := sorted(wanted_by(config.topology_optimization) - topology.optimizations)
    ):
        raise ConfigError(
            f"topology_optimization has {', '.join(missing)}, but the topology was built without: "
            "pass the config to StreamsBuilder.build, too"
        )


def nodes_of(topology: Topology, task: TaskId) -> Iterable[str]:
    """Return the nodes of a task; a negative subtopology stands for global stores."""
    if task.subtopology < 0:
        return [
            name
            for store in topology.global_topics.values()
            for name in (store.source, store.processor)
        ]
    return next(
        subtopology.nodes
        for subtopology in topology.subtopologies()
        if subtopology.id == task.subtopology
    )
