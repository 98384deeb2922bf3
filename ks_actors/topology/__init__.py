"""What an app is made of: nodes, stores and how they hang together; built by hand here, or by the DSL."""

from ks_actors.topology import _store_specs as stores
from ks_actors.topology._description import TopologyDescription
from ks_actors.topology._nodes import (
    GlobalStore,
    InputRecord,
    InternalTopic,
    Node,
    OffsetReset,
    Partitioner,
    ProcessorNode,
    RecordContext,
    SinkNode,
    SourceNode,
    TimestampExtractor,
    TopicExtractor,
)
from ks_actors.topology._stores import StoreKind, StoreSpec, StoreType
from ks_actors.topology._subtopologies import Subtopology
from ks_actors.topology._topology import Topology

__all__ = [
    "GlobalStore",
    "InputRecord",
    "InternalTopic",
    "Node",
    "OffsetReset",
    "Partitioner",
    "ProcessorNode",
    "RecordContext",
    "SinkNode",
    "SourceNode",
    "StoreKind",
    "StoreSpec",
    "StoreType",
    "Subtopology",
    "TimestampExtractor",
    "TopicExtractor",
    "Topology",
    "TopologyDescription",
    "stores",
]
