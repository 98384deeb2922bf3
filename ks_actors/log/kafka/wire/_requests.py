"""Requests to brokers: aiokafka's requests, and some that it lacks.

Only this module knows the wire layout of these requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import LogError
from ks_actors.lifecycle import component_log
from ks_actors.log.kafka._aiokafka import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    Boolean,
    CompactArray,
    CompactString,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    Int8,
    Int16,
    Int32,
    Int64,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetRequest,
    RequestStruct,
    Response,
    Schema,
)
from ks_actors.log.kafka.wire._flexible import FlexibleRequest, TaggedFields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log._types import GroupMetadata, OffsetAndMetadata
    from ks_actors.records import TopicPartition

__all__ = [
    "WIRE_LOG",
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "DeleteRecordsRequest",
    "DeleteTopicsRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "EndTxnRequest",
    "FindCoordinatorRequest",
    "ListGroupsRequest",
    "OffsetCommitRequest",
    "OffsetRequest",
    "Pinned",
    "check_version",
    "describe_transactions",
    "incremental_alter_configs",
    "init_producer_id",
    "offset_fetch",
    "offset_for_leader_epoch",
    "txn_offset_commit",
]

# The logger for each request and answer, separate from the logger for events of the client.
WIRE_LOG = component_log(__name__)
_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)


def check_version(struct: Any, versions: Mapping[int, tuple[int, int]]) -> None:
    """Raise LogError if a broker of these API versions does not support a request."""
    low, high = versions.get(struct.API_KEY, (0, -1))
    if not low <= struct.API_VERSION <= high:
        there = f"has only versions {low} to {high} of it" if high >= 0 else "does not have it"
        raise LogError(
            f"the client needs {struct.__name__}, and the broker {there}: use Kafka 2.8 to 4.x"
        )


class Pinned:
    """A request in a fixed version; `Connection.send` calls its `prepare`."""

    def __init__(self, struct: Any, *fields: Any) -> None:
        self.struct: Any = struct
        self.fields: tuple[Any, ...] = fields

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """Return the message.

        Raises LogError if a broker of these API versions does not support it.
        """
        check_version(self.struct, versions)
        return self.struct(*self.fields)

    def __repr__(self) -> str:
        return f"<{self.struct.__name__}>"


def _flexible(
    name: str,
    key: int,
    version: int,
    request: Sequence[tuple[str, Any]],
    response: Sequence[tuple[str, Any]],
) -> Any:
    """Make the class of a request with tagged fields, and the class of its response."""
    common = {"API_KEY": key, "API_VERSION": version}
    answer = type(
        f"{name}Response_v{version}", (Response,), {**common, "SCHEMA": Schema(*response, _TAGS)}
    )
    body = {
        **common,
        "RESPONSE_TYPE": answer,
        "SCHEMA": Schema(*request, _TAGS),
    }
    return type(f"{name}Request_v{version}", (FlexibleRequest, RequestStruct), body)


_INIT_PRODUCER_ID = _flexible(
    "InitProducerId", 22, 4,
    [
        ("transactional_id", _TEXT), ("transaction_timeout_ms", Int32),
        ("producer_id", Int64), ("producer_epoch", Int16),
    ],
    [
        ("throttle_time_ms", Int32), ("error_code", Int16),
        ("producer_id", Int64), ("producer_epoch", Int16),
    ],
)  # fmt: skip

_TXN_OFFSET_COMMIT = _flexible(
    "TxnOffsetCommit", 28, 3,
    [
        ("transactional_id", _TEXT), ("group_id", _TEXT),
        ("producer_id", Int64), ("producer_epoch", Int16),
        ("generation_id", Int32), ("member_id", _TEXT), ("group_instance_id", _TEXT),
        ("topics", CompactArray(
            ("topic", _TEXT),
            ("partitions", CompactArray(
                ("partition", Int32), ("offset", Int64), ("leader_epoch", Int32),
                ("metadata", _TEXT), _TAGS,
            )),
            _TAGS,
        )),
    ],
    [
        ("throttle_time_ms", Int32),
        ("topics", CompactArray(
            ("topic", _TEXT),
            ("partitions", CompactArray(("partition", Int32), ("error_code", Int16), _TAGS)),
            _TAGS,
        )),
    ],
)  # fmt: skip

_OFFSET_FETCH = _flexible(
    "OffsetFetch", 9, 7,
    [
        ("group_id", _TEXT),
        ("topics", CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
        ("require_stable", Boolean),
    ],
    [
        ("throttle_time_ms", Int32),
        ("topics", CompactArray(
            ("topic", _TEXT),
            ("partitions", CompactArray(
                ("partition", Int32), ("offset", Int64), ("leader_epoch", Int32),
                ("metadata", _TEXT), ("error_code", Int16), _TAGS,
            )),
            _TAGS,
        )),
        ("error_code", Int16),
    ],
)  # fmt: skip

_OFFSET_FOR_LEADER_EPOCH = _flexible(
    "OffsetForLeaderEpoch", 23, 4,
    [
        ("replica_id", Int32),
        ("topics", CompactArray(
            ("topic", _TEXT),
            ("partitions", CompactArray(
                ("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32),
                _TAGS,
            )),
            _TAGS,
        )),
    ],
    [
        ("throttle_time_ms", Int32),
        ("topics", CompactArray(
            ("topic", _TEXT),
            ("partitions", CompactArray(
                ("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32),
                ("end_offset", Int64), _TAGS,
            )),
            _TAGS,
        )),
    ],
)  # fmt: skip

_DESCRIBE_TRANSACTIONS = _flexible(
    "DescribeTransactions", 65, 0,
    [("transactional_ids", CompactArray(_TEXT))],
    [
        ("throttle_time_ms", Int32),
        ("transactions", CompactArray(
            ("error_code", Int16), ("transactional_id", _TEXT), ("state", _TEXT),
            ("timeout_ms", Int32), ("start_time_ms", Int64),
            ("producer_id", Int64), ("producer_epoch", Int16),
            ("topics", CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
            _TAGS,
        )),
    ],
)  # fmt: skip

_INCREMENTAL_ALTER_CONFIGS = _flexible(
    "IncrementalAlterConfigs", 44, 1,
    [
        ("resources", CompactArray(
            ("resource_type", Int8), ("resource_name", _TEXT),
            ("configs", CompactArray(
                ("name", _TEXT), ("operation", Int8), ("value", _TEXT), _TAGS
            )),
            _TAGS,
        )),
        ("validate_only", Boolean),
    ],
    [
        ("throttle_time_ms", Int32),
        ("responses", CompactArray(
            ("error_code", Int16), ("error_message", _TEXT),
            ("resource_type", Int8), ("resource_name", _TEXT), _TAGS,
        )),
    ],
)  # fmt: skip

# Kafka's type of a topic as a config resource, and the operation that sets a config.
TOPIC = 2
_SET = 0


class _TransactionalPinned(Pinned):
    """A request that begins transactions, for brokers that can also describe transactions.

    Without descriptions it is unknown whether a transaction has ended for its readers, or has timed
    out.
    """

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """Return the message. Raises LogError for a broker older than Kafka 3.0."""
        if _DESCRIBE_TRANSACTIONS.API_KEY not in versions:
            raise LogError(
                "exactly-once needs Kafka 3.0 or newer, and the broker has no "
                "DescribeTransactions: set processing_guarantee to at_least_once, or use newer "
                "brokers"
            )
        return super().prepare(versions)


def init_producer_id(
    transactional_id: str | None, timeout_ms: int, producer_id: int = -1, epoch: int = -1
) -> Pinned:
    """Build a request for a producer id.

    With the present id and epoch, the request fails if another producer has taken the id since.
    """
    kind = Pinned if transactional_id is None else _TransactionalPinned
    return kind(_INIT_PRODUCER_ID, transactional_id, timeout_ms, producer_id, epoch, {})


def txn_offset_commit(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    epochs: Mapping[TopicPartition, int],
) -> Pinned:
    """Commit offsets within a transaction, for a member of a group in its generation.

    `epochs` are the leader epochs of the records before the offsets; -1 is unknown.
    """
    topics: dict[str, list[tuple[Any, ...]]] = {}
    for partition, offset in offsets.items():
        topics.setdefault(partition.topic, []).append(
            (partition.partition, offset.offset, epochs[partition], offset.metadata, {})
        )
    return Pinned(
        _TXN_OFFSET_COMMIT,
        transactional_id,
        group.group_id,
        producer_id,
        epoch,
        group.generation,
        group.member_id,
        None,
        [(topic, partitions, {}) for topic, partitions in topics.items()],
        {},
    )


def offset_fetch(group_id: str, partitions: Iterable[TopicPartition] | None) -> Pinned:
    """Build a request for committed offsets; None asks for all partitions.

    If an open transaction is about to change an offset, the coordinator answers error 88 for it.
    """
    if partitions is None:
        return Pinned(_OFFSET_FETCH, group_id, None, True, {})
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return Pinned(
        _OFFSET_FETCH,
        group_id,
        [(topic, numbers, {}) for topic, numbers in topics.items()],
        True,
        {},
    )


def offset_for_leader_epoch(epochs: Mapping[TopicPartition, int]) -> Pinned:
    """Build a request for the end of the largest epoch that is not above each given epoch."""
    topics: dict[str, list[tuple[Any, ...]]] = {}
    for partition, epoch in epochs.items():
        topics.setdefault(partition.topic, []).append((partition.partition, -1, epoch, {}))
    asked: list[Any] = [(topic, partitions, {}) for topic, partitions in topics.items()]
    return Pinned(_OFFSET_FOR_LEADER_EPOCH, -1, asked, {})


def describe_transactions(transactional_ids: Sequence[str]) -> Pinned:
    """Build a request for the states of transactional ids."""
    return Pinned(_DESCRIBE_TRANSACTIONS, list(transactional_ids), {})


def incremental_alter_configs(configs: Mapping[str, Mapping[str, str]]) -> Pinned:
    """Build a request that sets these configs of topics, and no others."""
    resources: list[Any] = [
        (TOPIC, topic, [(name, _SET, value, {}) for name, value in changes.items()], {})
        for topic, changes in configs.items()
    ]
    return Pinned(_INCREMENTAL_ALTER_CONFIGS, resources, False, {})
