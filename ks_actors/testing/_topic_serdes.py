"""The serdes of a topic in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.serdes import serde_of, with_default, wraps_key
from ks_actors.task import is_internal
from ks_actors.topology import SinkNode, SourceNode, topic_name, with_topic

if TYPE_CHECKING:
    from ks_actors.config import StreamsConfig
    from ks_actors.serdes import Serde
    from ks_actors.topology import TopicOrName, Topology


def topic_serdes(
    topology: Topology, config: StreamsConfig, topic: TopicOrName, key: Any, value: Any
) -> tuple[Serde[Any] | None, Serde[Any] | None]:
    """Return the serdes of a topic: those given, a Topic's, a node's, or the app's defaults.

    Changelogs and dead letters have none but those given: they are bytes.
    """
    name = topic_name(topic)
    of = f"topic {name!r}"
    _, given = with_topic(
        topic,
        of,
        key=serde_of(key, role="key", of=of),
        value=serde_of(value, role="value", of=of),
    )
    known = _known(topology, config, name)
    return given["key"] or known[0], given["value"] or known[1]


def _known(
    topology: Topology, config: StreamsConfig, topic: str
) -> tuple[Serde[Any] | None, Serde[Any] | None]:
    keys, values = config.default_key_serde, config.default_value_serde
    for node in topology.nodes.values():
        if (isinstance(node, SourceNode) and _reads(node, topic)) or (
            isinstance(node, SinkNode) and node.topic == topic
        ):
            return with_default(node.key, keys), with_default(
                node.value, keys if wraps_key(node.value) else values
            )
    if is_internal(topic, config.application_id) or (
        topic == config.errors_dead_letter_queue_topic_name
    ):
        return None, None
    return keys, values


def _reads(node: SourceNode, topic: str) -> bool:
    return topic in node.topics or (
        node.pattern is not None and node.pattern.fullmatch(topic) is not None
    )
