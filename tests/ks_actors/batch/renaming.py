"""A topology with other topics: so that several of the same are kept apart in one log."""

from __future__ import annotations

import re
from copy import copy
from functools import partial
from typing import Any

from msgspec.structs import replace

from ks_actors import Topology
from ks_actors.topology import RecordContext, SinkNode, SourceNode, TopicExtractor


def renamed(topology: Topology, prefix: str) -> Topology:
    """Return one with a prefix before the names of all topics that are not the app's own; it is the same else."""

    def named(topic: str) -> str:
        return topic if topic in topology.internal_topics else prefix + topic

    found = copy(topology)
    found._nodes = dict(topology.nodes)
    for name, node in topology.nodes.items():
        if isinstance(node, SourceNode):
            pattern = None if node.pattern is None else re.compile(re.escape(prefix) + node.pattern.pattern)
            found._nodes[name] = replace(node, topics=tuple(map(named, node.topics)), pattern=pattern)
        elif isinstance(node, SinkNode):
            topic = named(node.topic) if isinstance(node.topic, str) else partial(_chosen, prefix, node.topic)
            found._nodes[name] = replace(node, topic=topic)
    found._stores = {
        name: replace(store, source_topic=None if store.source_topic is None else named(store.source_topic))
        for name, store in topology.stores.items()
    }
    found._global_topics = {named(topic): replace(keeper, topic=named(topic)) for topic, keeper in topology.global_topics.items()}
    return found


def _chosen(prefix: str, choose: TopicExtractor, key: Any, value: Any, context: RecordContext) -> str:
    return prefix + choose(key, value, context)
