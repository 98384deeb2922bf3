"""Topologies: nodes, stores and their connections; built by hand here, or by the DSL."""

from ks_actors.topology import _store_specs as stores
from ks_actors.topology._custom_store import StateStore as StateStore
from ks_actors.topology._custom_store import StateStoreContext as StateStoreContext
from ks_actors.topology._description import TopologyDescription
from ks_actors.topology._diff import Change, Effect
from ks_actors.topology._diff import compare as compare
from ks_actors.topology._missing_serdes import check_serdes as check_serdes
from ks_actors.topology._missing_serdes import check_topology as check_topology
from ks_actors.topology._missing_serdes import topology_of as topology_of
from ks_actors.topology._named_queries import REST as REST
from ks_actors.topology._named_queries import QueryNames as QueryNames
from ks_actors.topology._named_queries import checked_queries as checked_queries
from ks_actors.topology._names import checked_topics as checked_topics
from ks_actors.topology._names import valid_name as valid_name
from ks_actors.topology._names import valid_topic as valid_topic
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
from ks_actors.topology._optimizations import MERGE_REPARTITION_TOPICS as MERGE_REPARTITION_TOPICS
from ks_actors.topology._optimizations import REUSE_SOURCE_TOPICS as REUSE_SOURCE_TOPICS
from ks_actors.topology._optimizations import SINGLE_STORE_SELF_JOIN as SINGLE_STORE_SELF_JOIN
from ks_actors.topology._optimizations import optimization as optimization
from ks_actors.topology._optimizations import wanted_by as wanted_by
from ks_actors.topology._queryable_store import QueryableStore
from ks_actors.topology._services import check_services as check_services
from ks_actors.topology._services import enter_services as enter_services
from ks_actors.topology._store_engine import STORE_NAMES as STORE_NAMES
from ks_actors.topology._store_engine import StoreEngine as StoreEngine
from ks_actors.topology._store_engine import StoreEngineContext as StoreEngineContext
from ks_actors.topology._store_engine import StoreEngineSupplier as StoreEngineSupplier
from ks_actors.topology._store_engine import StoreType
from ks_actors.topology._store_engine import check_store_type as check_store_type
from ks_actors.topology._store_formats import spec_with_headers as spec_with_headers
from ks_actors.topology._store_formats import with_headers as with_headers
from ks_actors.topology._store_formats import without_engines as without_engines
from ks_actors.topology._store_specs import versioned_key_value as versioned_key_value
from ks_actors.topology._stores import HEADED as HEADED
from ks_actors.topology._stores import WITH_HEADERS as WITH_HEADERS
from ks_actors.topology._stores import StoreKind, StoreSpec
from ks_actors.topology._stores import StorePlace as StorePlace
from ks_actors.topology._stores import bare_kind as bare_kind
from ks_actors.topology._subtopologies import GROWN, Subtopology
from ks_actors.topology._timestamp_extractors import (
    FailOnInvalidTimestamp as FailOnInvalidTimestamp,
)
from ks_actors.topology._timestamp_extractors import (
    LogAndSkipOnInvalidTimestamp as LogAndSkipOnInvalidTimestamp,
)
from ks_actors.topology._timestamp_extractors import RecordTimestamp as RecordTimestamp
from ks_actors.topology._timestamp_extractors import (
    UsePartitionTimeOnInvalidTimestamp as UsePartitionTimeOnInvalidTimestamp,
)
from ks_actors.topology._timestamp_extractors import (
    WallclockTimestampExtractor as WallclockTimestampExtractor,
)
from ks_actors.topology._topic import ByTopic as ByTopic
from ks_actors.topology._topic import Topic
from ks_actors.topology._topic import TopicOrName as TopicOrName
from ks_actors.topology._topic import by_name as by_name
from ks_actors.topology._topic import topic_name as topic_name
from ks_actors.topology._topic import with_topic as with_topic
from ks_actors.topology._topology import Topology
from ks_actors.topology._unnamed import find_unnamed as find_unnamed
from ks_actors.topology._unnamed import refuse_unnamed as refuse_unnamed
from ks_actors.topology._unnamed import warn_of_unnamed as warn_of_unnamed

__all__ = [
    "GROWN",
    "Change",
    "Effect",
    "GlobalStore",
    "InputRecord",
    "InternalTopic",
    "Node",
    "OffsetReset",
    "Partitioner",
    "ProcessorNode",
    "QueryableStore",
    "RecordContext",
    "SinkNode",
    "SourceNode",
    "StoreKind",
    "StoreSpec",
    "StoreType",
    "Subtopology",
    "TimestampExtractor",
    "Topic",
    "TopicExtractor",
    "Topology",
    "TopologyDescription",
    "stores",
]
