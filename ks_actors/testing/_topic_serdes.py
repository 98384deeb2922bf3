"""The serdes of a topic in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.serdes import serde_of, with_default
from ks_actors.topics import serdes_in
from ks_actors.topology import topic_name, with_topic

if TYPE_CHECKING:
    from ks_actors.config import StreamsConfig
    from ks_actors.serdes import Serde
    from ks_actors.topology import TopicOrName, Topology


def topic_serdes(
    topology: Topology, config: StreamsConfig, topic: TopicOrName, key: Any, value: Any
) -> tuple[Serde[Any] | None, Serde[Any] | None]:
    """Return the serdes of a topic: those given, a Topic's, a node's, or the app's defaults.

    Changelogs and dead letters have no default serdes: their keys and values are bytes.
    """
    name = topic_name(topic)
    of = f"topic {name!r}"
    _, given = with_topic(
        topic,
        of,
        key=serde_of(key, role="key", of=of),
        value=serde_of(value, role="value", of=of),
    )
    known = serdes_in(topology, config, name)
    key, value = given["key"], given["value"]
    return (
        known[0] if key is None else with_default(key, config.default_key_serde),
        known[1] if value is None else with_default(value, config.default_value_serde),
    )
