"""Find missing serdes of a topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import TopologyError
from ks_actors.processors.api import check_kind
from ks_actors.serdes import is_complete, wraps_key
from ks_actors.topology._nodes import ProcessorNode, SinkNode, SourceNode
from ks_actors.topology._stores import StoreKind
from ks_actors.topology._topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXAMPLES: Final = {"key": "key=str", "value": "value=Order", "key and value": "str, Order"}
_INTERNAL: Final = "Grouped({0}), Repartitioned({0}) or Joined({0})"
_OF_STORE: Final = "{0} where the store is made, or in StreamJoined({0}) or Joined({0})"


def topology_of(given: Any, config: Any, *, of: str) -> Topology:
    """Return the given topology, or the topology that a given StreamsBuilder builds for the config.

    Raises TopologyError unless the result is a Topology that reads a topic.
    """
    build = None if isinstance(given, type) else getattr(given, "build", None)
    built: Any = build(config) if callable(build) else given
    topology: Topology = built
    check_topology(topology, of=of)
    return topology


def check_topology(topology: Any, *, of: str) -> None:
    """Raise TopologyError unless it is a Topology that reads a topic."""
    check_kind(
        topology,
        Topology,
        role="argument 'topology'",
        of=of,
        remedy="give a StreamsBuilder, or the Topology that its build() returns",
    )
    if not topology.global_topics and not any(
        isinstance(node, SourceNode) for node in topology.nodes.values()
    ):
        raise TopologyError(
            f"the topology of {of} reads no topic, so it would do nothing: add a source or a "
            "global table, before build() and to the same StreamsBuilder"
        )


def check_serdes(topology: Topology, *, key: Any, value: Any) -> None:
    """Raise TopologyError unless all nodes have serdes of their own or defaults.

    `key` and `value` are the defaults. The error names each node, topic and store without a serde,
    its line of code, the operations upstream that make the keys or values, and the options to
    write.
    """
    missing = list(_missing(topology, has_key=key is not None, has_value=value is not None))
    if missing:
        raise TopologyError(
            f"serdes are missing: {'; '.join(missing)}. Give the types of keys and values there, "
            "or annotate the functions whose results they are, as in 'def total(order: Order) -> "
            "int', or set default_key_serde and default_value_serde for the app"
        )


def _missing(topology: Topology, *, has_key: bool, has_value: bool) -> Iterator[str]:
    def missing_of(found: Any) -> str:
        has = has_key if wraps_key(found.value) else has_value
        wanted = ((found.key, has_key, "key"), (found.value, has, "value"))
        return " and ".join(
            word for serde, default, word in wanted if not default and not is_complete(serde)
        )

    def told(text: str, node: str | None, options: str, words: str) -> str:
        line = topology.lines.get(node or "")
        calls = dict.fromkeys(
            call
            for word in words.split(" and ")
            for call in topology.made_by.get((node or "", word), ())
        )
        place = f", at {line}" if line else ""
        maker = f", made by {' and '.join(calls)}" if calls else ""
        return f"{text}{place}{maker}: write {options.format(_EXAMPLES[words])}"

    for node in topology.nodes.values():
        match node:
            case SourceNode() if words := missing_of(node):
                topics = (
                    node.pattern.pattern if node.pattern is not None else ", ".join(node.topics)
                )
                options = _INTERNAL if topics in topology.internal_topics else "Consumed({})"
                text = f"{words} of source {node.name}, which reads {topics}"
                yield told(text, node.name, options, words)
            case SinkNode() if words := missing_of(node):
                topics = (
                    node.topic if isinstance(node.topic, str) else "topics chosen by a function"
                )
                options = _INTERNAL if topics in topology.internal_topics else "Produced({})"
                text = f"{words} of sink {node.name}, which writes to {topics}"
                yield told(text, node.name, options, words)
            case ProcessorNode(operator=operator) if (
                use := getattr(operator, "serde_use", None)
            ) and (words := missing_of(operator)):
                text = f"{words} of processor {node.name}, {use}"
                yield told(text, node.name, 'Materialized("name", {}) for the tables', words)
    for specs in (topology.stores, topology.global_stores):
        for spec in specs.values():
            if spec.kind is not StoreKind.CUSTOM and (words := missing_of(spec)):
                users = [
                    name
                    for name, node in topology.nodes.items()
                    if spec.name in getattr(node, "stores", ())
                ]
                text = (
                    f"{words} of store {spec.name}, which {' and '.join(users) or 'no node'} uses"
                )
                options = 'Materialized("name", {})' if spec.of_dsl else _OF_STORE
                yield told(text, users[0] if users else None, options, words)
