"""Requests for the permissions of a user (KIP-430)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.log.kafka._aiokafka import (
    Array,
    Boolean,
    Bytes,
    DescribeGroupsResponse_v2,
    Int16,
    Int32,
    MetadataResponse_v5,
    RequestStruct,
    Schema,
    String,
)
from ks_actors.log.kafka.wire._requests import Pinned

if TYPE_CHECKING:
    from collections.abc import Iterable

_TEXT = String("utf-8")
_NUMBERS = Array(Int32)
_OPERATIONS: Final = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}
# The smallest number of 32 bits means that the operations were not requested, or are unknown.
_UNKNOWN: Final = -(1 << 31)


class _MetadataResponse(MetadataResponse_v5):  # type: ignore[misc]
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        ("topics", Array(
            ("error_code", Int16), ("topic", _TEXT), ("is_internal", Boolean),
            ("partitions", Array(
                ("error_code", Int16), ("partition", Int32), ("leader", Int32),
                ("leader_epoch", Int32), ("replicas", _NUMBERS), ("isr", _NUMBERS),
                ("offline", _NUMBERS),
            )),
            ("operations", Int32),
        )),
        ("operations", Int32),
    )  # fmt: skip


class _MetadataRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", Array(_TEXT)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
    )


class _DescribeGroupsResponse(DescribeGroupsResponse_v2):  # type: ignore[misc]
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("groups", Array(
            ("error_code", Int16), ("group", _TEXT), ("state", _TEXT), ("protocol_type", _TEXT),
            ("protocol", _TEXT),
            ("members", Array(
                ("member_id", _TEXT), ("client_id", _TEXT), ("host", _TEXT),
                ("metadata", Bytes), ("assignment", Bytes),
            )),
            ("operations", Int32),
        )),
    )  # fmt: skip


class _DescribeGroupsRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _DescribeGroupsResponse
    SCHEMA = Schema(("groups", Array(_TEXT)), ("include_operations", Boolean))


def topic_operations(topics: Iterable[str]) -> Pinned:
    """Build a request for the user's permissions for topics and the cluster."""
    return Pinned(_MetadataRequest, sorted(topics), False, True, True)


def group_operations(group_id: str) -> Pinned:
    """Build a request for the user's permissions for a group."""
    return Pinned(_DescribeGroupsRequest, [group_id], True)


def operations(bits: Any) -> frozenset[str] | None:
    """Return the names of operations as in Kafka's ACLs; None if they are unknown."""
    if bits == _UNKNOWN:
        return None
    return frozenset(name for bit, name in _OPERATIONS.items() if bits & (1 << bit))
