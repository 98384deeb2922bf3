"""Joins of two tables by a foreign key (KIP-213).

The left table sends subscriptions to the right table through a topic, and gets responses through
another topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import TopologyError
from ks_actors.dsl import _table
from ks_actors.dsl._infer import value_of
from ks_actors.dsl._logic import SourceLogic, add_logic
from ks_actors.dsl._materialize import check_materialized, history_ms, key_value_store
from ks_actors.dsl._options import TableJoined
from ks_actors.dsl.graph import named_or_behind
from ks_actors.processors.api import check_function, check_kind, check_options, takes_headers
from ks_actors.processors.foreign_keys import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionResponse,
    SubscriptionResponseSerde,
    SubscriptionSend,
    SubscriptionSerde,
)
from ks_actors.processors.tables import stored_in
from ks_actors.serdes import BYTES
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._table import Table
    from ks_actors.dsl.graph import GraphBuilder, GraphNode
    from ks_actors.records import Headers
    from ks_actors.topology import Partitioner, Topology

_OUTPUT: Final = "KTABLE-FK-JOIN-OUTPUT-"
_PROCESSOR: Final = "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-"
_REGISTRATION: Final = "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-"
_RESOLVER: Final = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
_RESPONSE: Final = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-"
_SINK: Final = "KTABLE-SINK-"
_SOURCE: Final = "KTABLE-SOURCE-"
_STORE: Final = "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-"
_TOPIC: Final = "-topic"
_WITH_KEY: Final = 2
_JOINER: Final = (2, 3, 4)
"""The arguments of joiners: the values, the key before them, and the foreign key between."""


def foreign_key_join(
    this: Table[Any, Any],
    other: Table[Any, Any],
    foreign_key: Callable[..., Any],
    joiner: Callable[..., Any],
    joined: TableJoined[Any, Any] | None,
    materialized: Materialized[Any, Any] | str | None,
    name: str | None,
    *,
    left: bool,
) -> Table[Any, Any]:
    """Join rows of `this` table with the rows of the other table to which foreign keys refer.

    `left` keeps rows without a match. The names and their order are those of Kafka Streams.
    """
    graph = this.graph
    options, keyed, arguments = _checked(this, other, foreign_key, joiner, joined, name, left=left)
    materialized = check_materialized(materialized, _called(this, options.name, left=left))
    # Both sides send old values, which show that a row was deleted or changed its foreign key.
    other.send_old(force=True)
    this.send_old(force=True)
    if (store := stored_in(this.view())) is not None:
        graph.as_written.add(store)
    # The order of these steps is that of Kafka Streams: each takes the next numbers for its names.
    topic = graph.suffixed_or(options.name, "-subscription-registration", _REGISTRATION) + _TOPIC
    parts = _Parts(graph, this, other, foreign_key, options, topic, keyed=keyed, left=left)
    subscriptions = parts.add_subscriptions()
    responses = parts.add_responses(*parts.add_right_side(subscriptions))
    resolved = parts.add_resolver(responses, joiner, arguments)
    result = parts.named("-result", _OUTPUT)
    spec, stored = key_value_store(
        graph, materialized, _OUTPUT, key=this.key, value=value_of(joiner)
    )
    logic = SourceLogic(spec, stored=stored or history_ms(spec) is not None)
    return _table.Table(
        graph,
        add_logic(graph, result, logic, resolved),
        this.sources | {responses.name},
        spec.key,
        spec.value,
        logic,
        store_name=spec.name if stored else None,
    )


@dataclass(frozen=True)
class _Parts:
    """The parts of one join: each method adds one part. Call them in order of definition."""

    graph: GraphBuilder
    this: Table[Any, Any]
    other: Table[Any, Any]
    foreign_key: Callable[..., Any]
    options: TableJoined[Any, Any]
    topic: str
    keyed: bool
    left: bool

    def named(self, suffix: str, prefix: str) -> str:
        """Return the name of a part: the user's name with a suffix, or a name with a number."""
        return self.graph.suffixed_or(self.options.name, suffix, prefix)

    def add_subscriptions(self) -> GraphNode:
        """Add the sender of subscriptions and their topic; return the topic's source."""
        this, other = self.this, self.other
        send = SubscriptionSend(
            extractor=self.foreign_key,
            keyed=self.keyed,
            topic=self.topic,
            key=other.key,
            primary_key=this.key,
            value=this.value,
            left=self.left,
            computed=stored_in(this.view()) is None,
            versioned=this.history_ms is not None,
        )
        sent = self.graph.add_processor(
            self.named("-subscription-registration-processor", _REGISTRATION), send, this.node
        )
        source = _add_topic(
            self.graph,
            self.topic,
            self.named("-subscription-registration-sink", _SINK),
            self.named("-subscription-registration-source", _SOURCE),
            other.key,
            SubscriptionSerde(this.key),
            _by_key(self.options.other_partitioner),
            sent,
        )
        # A subscription must come to the task that has the right row of its foreign key.
        self.graph.copartition(other.sources | {source.name})
        return source

    def add_right_side(self, subscriptions: GraphNode) -> tuple[GraphNode, GraphNode]:
        """Add the store of subscriptions; return the nodes that answer them.

        The first answers new subscriptions, the second changes of the right table.
        """
        other = self.other
        store = StoreSpec(
            name=self.named("-subscription-store", _STORE),
            kind=StoreKind.TIMESTAMPED_KEY_VALUE,
            key=BYTES,
            value=BYTES,
            rows_of=(other.key, self.this.key, self.this.value),
        )
        received = self.graph.add_processor(
            self.named("-subscription-receive", _PROCESSOR),
            SubscriptionReceive(store=store.name, topic=self.topic, key=other.key),
            subscriptions,
            stores=(store,),
        )
        view = other.view()
        answered = self.graph.add_processor(
            self.named("-subscription-join-foreign", _PROCESSOR),
            SubscriptionJoin(view=view),
            received,
            connected=view.stores,
        )
        changed = self.graph.add_processor(
            self.named("-foreign-join-subscription", _PROCESSOR),
            ForeignTableJoin(
                store=store.name,
                topic=self.topic,
                key=other.key,
                primary_key=self.this.key,
                versioned=other.history_ms is not None,
            ),
            other.node,
            stores=(store,),
        )
        return answered, changed

    def add_responses(self, *answers: GraphNode) -> GraphNode:
        """Add the topic of responses; return its source."""
        source = _add_topic(
            self.graph,
            self.named("-subscription-response", _RESPONSE) + _TOPIC,
            self.named("-subscription-response-sink", _SINK),
            self.named("-subscription-response-source", _SOURCE),
            self.this.key,
            SubscriptionResponseSerde(self.other.value),
            _by_key(self.options.partitioner) or _to_primary_partition,
            *answers,
        )
        # A response must come to the task that has the left row.
        self.graph.copartition(self.this.sources | {source.name})
        return source

    def add_resolver(
        self, responses: GraphNode, joiner: Callable[..., Any], arguments: int
    ) -> GraphNode:
        """Add the node that joins responses with the left rows of their subscriptions."""
        this, view = self.this, self.this.view()
        return self.graph.add_processor(
            self.named("-subscription-response-resolver", _RESOLVER),
            ResponseJoin(
                view=view,
                joiner=joiner,
                arguments=arguments,
                extractor=self.foreign_key,
                keyed=self.keyed,
                topic=self.topic,
                key=this.key,
                value=this.value,
                left=self.left,
                store=stored_in(view),
            ),
            responses,
            connected=view.stores,
        )


def _called(this: Table[Any, Any], name: str | None, *, left: bool) -> str:
    return named_or_behind("left_join" if left else "join", name, this.node)


def _checked(
    this: Table[Any, Any],
    other: Any,
    foreign_key: Any,
    joiner: Any,
    joined: Any,
    name: str | None,
    *,
    left: bool,
) -> tuple[TableJoined[Any, Any], bool, int]:
    """Return the options, whether the extractor takes the key, and the joiner's arguments."""
    of = _called(this, name, left=left)
    check_kind(
        other,
        _table.Table,
        role="argument 'other'",
        of=of,
        remedy="give a Table; make one of a stream by to_table()",
    )
    options: TableJoined[Any, Any] = check_options(joined, TableJoined, of=of)
    if name is not None:
        raise TopologyError(
            f"argument 'name' of {of} is for joins on the key: with foreign_key=… give "
            f"joined=TableJoined({name!r})"
        )
    of = _called(this, options.name, left=left)
    this.graph.check_same(other.graph, of)
    keyed = check_function(foreign_key, 1, _WITH_KEY, role="foreign_key", of=of) == _WITH_KEY
    return options, keyed, check_function(joiner, *_JOINER, role="joiner", of=of)


def _add_topic(
    graph: GraphBuilder,
    topic: str,
    sink: str,
    source: str,
    key: Any,
    value: Any,
    partitioner: Partitioner | None,
    *parents: GraphNode,
) -> GraphNode:
    """Add an internal topic with its sink below the parents; return its source."""

    def write_sink(topology: Topology, above: tuple[str, ...]) -> None:
        topology.add_internal_topic(topic)
        topology.add_sink(sink, topic, *above, key=key, value=value, partitioner=partitioner)

    def write_source(topology: Topology, _: tuple[str, ...]) -> None:
        topology.add_source(source, topic, key=key, value=value)

    return graph.add_node(source, write_source, graph.add_node(sink, write_sink, *parents))


@dataclass(frozen=True)
class _ByKey:
    """A partitioner of keys in the form of a sink's partitioner; it gets no value."""

    partitioner: Callable[..., int | None]
    takes_headers: bool

    def __call__(self, topic: str, key: Any, _: Any, headers: Headers, count: int) -> int | None:
        """Return the partition of a record."""
        if self.takes_headers:
            return self.partitioner(topic, key, None, headers, count)
        return self.partitioner(topic, key, None, count)


def _by_key(partitioner: Partitioner | None) -> Partitioner | None:
    return (
        None
        if partitioner is None
        else _ByKey(partitioner, takes_headers(partitioner, "TableJoined"))
    )


def _to_primary_partition(
    _topic: str, _key: Any, response: SubscriptionResponse, _count: int
) -> int | None:
    """Return the left row's own partition, None if its subscription does not name it."""
    return response.primary_partition
