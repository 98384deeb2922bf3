"""The entry point of the DSL."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted
from ks_actors.dsl import _stream
from ks_actors.dsl._options import consumed_from, whole_topic
from ks_actors.dsl.graph import GraphBuilder, StreamSource, optimize
from ks_actors.processors.api import check_kind
from ks_actors.system import Later
from ks_actors.topology import (
    StoreSpec,
    check_serdes,
    checked_topics,
    refuse_unnamed,
    topic_name,
    valid_topic,
    wanted_by,
    warn_of_unnamed,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

    from ks_actors.config import StreamsConfig
    from ks_actors.dsl._options import Consumed, Materialized
    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl._table import GlobalTable, Table
    from ks_actors.processors.api import AnySupplier
    from ks_actors.topology import Topic, TopicOrName, Topology

if TYPE_CHECKING:
    from ks_actors.dsl import _table
else:
    _table = Later("ks_actors.dsl._table")

K = TypeVar("K")
V = TypeVar("V")


class StreamsBuilder(metaclass=Hinted):
    """The builder of a topology from streams and tables.

    Operations without a name are numbered as Kafka Streams does: `KSTREAM-FILTER-0000000001`.
    """

    def __init__(self) -> None:
        self._graph: GraphBuilder = GraphBuilder()

    @overload
    def stream(
        self, topics: Topic[K, V] | Sequence[Topic[K, V]], consumed: Consumed[K, V] | None = None
    ) -> Stream[K, V]: ...
    @overload
    def stream(
        self, topics: str | Sequence[str] | re.Pattern[str], consumed: None = None
    ) -> Stream[Any, Any]: ...
    @overload
    def stream(
        self,
        topics: TopicOrName | Sequence[TopicOrName] | re.Pattern[str],
        consumed: Consumed[K, V],
    ) -> Stream[K, V]: ...
    def stream(
        self,
        topics: TopicOrName | Sequence[TopicOrName] | re.Pattern[str],
        consumed: Consumed[Any, Any] | None = None,
    ) -> Stream[Any, Any]:
        """Read a topic, several topics, or all that match a pattern in full, as a stream.

        Options in `consumed` override those of a Topic. The same topics can be read more than once,
        if serdes, timestamp extractor and offset reset are the same: then one source reads the
        topics.
        """
        named, options = consumed_from(topics, consumed, of="stream")
        wanted = checked_topics(named, "stream")
        name = self._graph.name_or(options.name, "KSTREAM-SOURCE-")

        def write(topology: Topology, _: tuple[str, ...]) -> None:
            topology.add_source(
                name,
                wanted if named is topics else topics,
                key=options.key,
                value=options.value,
                timestamp_extractor=options.timestamp_extractor,
                offset_reset=options.offset_reset,
            )

        node = self._graph.attach(
            StreamSource(
                name,
                write,
                wanted,
                key=options.key,
                value=options.value,
                timestamp_extractor=options.timestamp_extractor,
                offset_reset=options.offset_reset,
            )
        )
        return _stream.Stream(
            self._graph, node, frozenset((name,)), key=options.key, value=options.value
        )

    @overload
    def table(
        self,
        topic: Topic[K, V],
        consumed: Consumed[K, V] | None = None,
        materialized: Materialized[K, V] | str | None = None,
    ) -> Table[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        consumed: None = None,
        materialized: Materialized[Any, Any] | str | None = None,
    ) -> Table[Any, Any]: ...
    @overload
    def table(
        self,
        topic: TopicOrName,
        consumed: Consumed[K, V],
        materialized: Materialized[K, V] | str | None = None,
    ) -> Table[K, V]: ...
    def table(
        self,
        topic: TopicOrName,
        consumed: Consumed[Any, Any] | None = None,
        materialized: Materialized[Any, Any] | str | None = None,
    ) -> Table[Any, Any]:
        """Read a topic as a table: the latest value of each key, None deletes.

        It is stored if an operation needs the store, or if it is materialized by name.
        """
        _, options = consumed_from(topic, consumed, of=f"table of topic {topic}")
        return _table.source_table(self._graph, topic, options, materialized)

    @overload
    def global_table(
        self,
        topic: Topic[K, V],
        consumed: Consumed[K, V] | None = None,
        materialized: Materialized[K, V] | str | None = None,
    ) -> GlobalTable[K, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        consumed: None = None,
        materialized: Materialized[Any, Any] | str | None = None,
    ) -> GlobalTable[Any, Any]: ...
    @overload
    def global_table(
        self,
        topic: TopicOrName,
        consumed: Consumed[K, V],
        materialized: Materialized[K, V] | str | None = None,
    ) -> GlobalTable[K, V]: ...
    def global_table(
        self,
        topic: TopicOrName,
        consumed: Consumed[Any, Any] | None = None,
        materialized: Materialized[Any, Any] | str | None = None,
    ) -> GlobalTable[Any, Any]:
        """Read all partitions of a topic into a table; every instance has all of it.

        Joins with it need no copartitioning.
        """
        of = f"global_table of topic {topic}"
        options = whole_topic(topic, consumed, of)
        return _table.global_table(self._graph, topic, options, materialized)

    @contextmanager
    def query(
        self, name: str, *, weight: int = 1, commit_interval_ms: int | timedelta | None = None
    ) -> Iterator[None]:
        """Let operations inside the `with` block belong to the query `name`.

        See `Topology.query`. The setting `queries` decides which queries an instance runs.
        """
        with self._graph.queries.open(name, weight, commit_interval_ms):
            yield

    def add_state_store(self, spec: StoreSpec) -> StreamsBuilder:
        """Add a store; processors connect to it by name."""
        check_kind(
            spec,
            StoreSpec,
            role="argument 'spec'",
            of="add_state_store",
            remedy="give one from ks_actors.stores",
        )
        self._graph.add_store(spec)
        return self

    def add_global_store(
        self,
        spec: StoreSpec,
        topic: TopicOrName,
        supplier: AnySupplier,
        consumed: Consumed[Any, Any] | None = None,
    ) -> StreamsBuilder:
        """Add a store that every instance fills with all of a topic, through its own processor.

        All other processors can read it without being connected to it.
        """
        check_kind(
            spec,
            StoreSpec,
            role="argument 'spec'",
            of="add_global_store",
            remedy="give one from ks_actors.stores",
        )
        valid_topic(topic_name(topic), f"global store {spec.name}")
        options = whole_topic(topic, consumed, f"global store {spec.name}")
        source = self._graph.suffixed_or(options.name, "-source", "KSTREAM-SOURCE-")
        processor = self._graph.name_or(options.name, "KTABLE-SOURCE-")

        def write(topology: Topology, _: tuple[str, ...]) -> None:
            topology.add_global_store(
                spec,
                source,
                topic,
                processor,
                supplier,
                key=options.key,
                value=options.value,
                timestamp_extractor=options.timestamp_extractor,
            )

        self._graph.add_node(spec.name, write)
        return self

    def build(self, config: StreamsConfig | None = None) -> Topology:
        """Return the topology, optimized by the config's `topology_optimization`.

        Without a config it is not optimized. You can call `build` again after further operations;
        the new topology includes them. With a config, generated names of stores and internal topics
        cause a warning, or an error by `ensure_explicit_internal_resource_naming` (KIP-1111).
        Raises TopologyError for anything but a config.
        """
        if config is not None and not hasattr(config, "topology_optimization"):
            raise TopologyError(
                f"argument 'config' of build is {config!r}: give a StreamsConfig, with its "
                "topology_optimization"
            )
        self._graph.has_default_value = (
            config is not None and config.default_value_serde is not None
        )
        topology = self._graph.build(
            frozenset() if config is None else wanted_by(config.topology_optimization), optimize
        )
        if config is not None:
            check_serdes(topology, key=config.default_key_serde, value=config.default_value_serde)
            if config.ensure_explicit_internal_resource_naming:
                refuse_unnamed(topology)
            warn_of_unnamed(topology)
        return topology
