"""Kafka's error codes and their meaning here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._errors import (
    Fenced,
    IllegalGeneration,
    InvalidRecord,
    LogError,
    NotAuthorized,
    RecordTooLarge,
    TopicExists,
    TransactionAborted,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN_SERVER_ERROR = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC_EXCEPTION = 17
RECORD_LIST_TOO_LARGE = 18
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
INVALID_COMMIT_OFFSET_SIZE = 28
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
NOT_CONTROLLER = 41
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
OPERATION_NOT_ATTEMPTED = 55
UNKNOWN_PRODUCER_ID = 59
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
TRANSACTION_ABORTABLE = 120
REBOOTSTRAP_REQUIRED = 129

# Kafka's error names in the order of their codes, from 0 on.
_IN_ORDER = (
    "NONE OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION INVALID_FETCH_SIZE "
    "LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE "
    "REPLICA_NOT_AVAILABLE MESSAGE_TOO_LARGE STALE_CONTROLLER_EPOCH OFFSET_METADATA_TOO_LARGE "
    "NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR "
    "INVALID_TOPIC_EXCEPTION RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS "
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS ILLEGAL_GENERATION "
    "INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT "
    "REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE TOPIC_AUTHORIZATION_FAILED "
    "GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED INVALID_TIMESTAMP "
    "UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE UNSUPPORTED_VERSION TOPIC_ALREADY_EXISTS "
    "INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG "
    "NOT_CONTROLLER INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION "
    "OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH "
    "INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING INVALID_TRANSACTION_TIMEOUT "
    "CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
    "SECURITY_DISABLED OPERATION_NOT_ATTEMPTED KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND "
    "SASL_AUTHENTICATION_FAILED UNKNOWN_PRODUCER_ID REASSIGNMENT_IN_PROGRESS "
    "DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH "
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED "
    "DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND "
    "FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH LISTENER_NOT_FOUND "
    "TOPIC_DELETION_DISABLED FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH "
    "UNSUPPORTED_COMPRESSION_TYPE STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED "
    "PREFERRED_LEADER_NOT_AVAILABLE GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID "
    "ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS "
    "GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED "
    "PRODUCER_FENCED RESOURCE_NOT_FOUND DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL "
    "INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED "
    "PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE UNKNOWN_TOPIC_ID "
    "DUPLICATE_BROKER_REGISTRATION BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID "
    "INCONSISTENT_CLUSTER_ID TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR "
    "INELIGIBLE_REPLICA NEW_LEADER_ELECTED OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH "
    "UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE "
    "UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE "
    "INVALID_REGISTRATION TRANSACTION_ABORTABLE INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND "
    "INVALID_SHARE_SESSION_EPOCH FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER "
    "VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION REBOOTSTRAP_REQUIRED STREAMS_INVALID_TOPOLOGY "
    "STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED SHARE_SESSION_LIMIT_REACHED "
    "GROUP_DELETION_FAILED STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED CONTROLLER_ID_NOT_REGISTERED"
)
_NAMES = tuple(_IN_ORDER.split())

RETRIABLE = frozenset(
    {
        2,
        3,
        5,
        6,
        7,
        8,
        9,
        13,
        14,
        15,
        16,
        19,
        20,
        41,
        51,
        56,
        70,
        71,
        72,
        74,
        75,
        78,
        80,
        83,
        84,
        88,
        89,
        100,
        103,
        106,
        122,
        123,
        133,
    }
)
"""Errors after which a retry may succeed: Kafka's own list, and BROKER_NOT_AVAILABLE."""

STALE_METADATA = frozenset({3, 5, 6, 7, 8, 9, 13, 41, 56, 72, 74, 80, 83, 84, 100, 103})
"""The retriable errors that require a new lookup of leaders: Kafka's own list, and 7, 8 and 41.

If the followers of a leader already follow another leader, it answers REQUEST_TIMED_OUT.
"""

WRONG_COORDINATOR = frozenset({COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
"""Errors that require a new lookup of the coordinator."""

SOON = frozenset({CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT})
"""Errors that usually pass within milliseconds, so that an immediate retry is worthwhile."""

FENCED = frozenset({INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED})
"""Errors for an outdated epoch: another producer has the id, or the transaction timed out."""

_ERRORS: Mapping[int, type[LogError]] = {
    3: UnknownTopicOrPartition,
    10: RecordTooLarge,
    18: RecordTooLarge,
    22: IllegalGeneration,
    25: IllegalGeneration,
    27: IllegalGeneration,
    29: NotAuthorized,
    30: NotAuthorized,
    31: NotAuthorized,
    32: InvalidRecord,
    36: TopicExists,
    47: Fenced,
    48: TransactionAborted,
    49: Fenced,
    53: NotAuthorized,
    58: NotAuthorized,
    65: NotAuthorized,
    82: IllegalGeneration,
    87: InvalidRecord,
    90: Fenced,
    100: UnknownTopicOrPartition,
    120: TransactionAborted,
}

_ADVICE: Mapping[int, str] = {
    3: "create it, or wait until it has been created",
    10: "raise max.message.bytes of the topic, or write smaller records",
    12: "raise offset.metadata.max.bytes of the brokers: a task's stream times are metadata of its "
    "offsets",
    18: "raise segment.bytes of the topic, or write smaller records",
    22: "rejoin the group",
    23: "the group has members of another kind, such as a Kafka Streams app or a consumer: close "
    "them first, or use another application_id",
    25: "rejoin the group",
    26: "choose session_timeout_ms between group.min.session.timeout.ms and "
    "group.max.session.timeout.ms of the brokers",
    27: "rejoin the group",
    28: "raise message.max.bytes of the brokers",
    29: "grant this principal the right to the topic (ACLs: Describe, Read, Write, Create)",
    30: "grant this principal the right to the group (ACLs: Describe, Read)",
    31: "grant this principal the right to the cluster (ACLs: Create, DescribeConfigs)",
    32: "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic do not "
    "allow its timestamp",
    35: "the broker is too old or too new for this client",
    38: "the topic needs more replicas than there are brokers: set replication_factor",
    50: "choose transaction_timeout_ms up to transaction.max.timeout.ms of the brokers, or raise "
    "the latter",
    53: "grant this principal the right to the transactional id (ACLs: Describe, Write)",
    58: "check user name, password and mechanism",
    69: "the group was deleted, or is of another kind: use another application_id",
    81: "run fewer instances, or raise group.max.size of the brokers",
    82: "another member has this instance id: give each member its own",
}
# Likely reasons, for errors without a reason from the broker.
_GUESSES: Mapping[int, str] = {87: "a compacted topic takes no records without keys"}


def name_of(code: int) -> str:
    """Return Kafka's name of an error code."""
    if code == -1:
        return "UNKNOWN_SERVER_ERROR"
    return _NAMES[code] if 0 <= code < len(_NAMES) else f"error {code}"


def error_of(code: int, what: str, detail: str | None = None) -> LogError:
    """Return the error for a code.

    `what` names the failed action, `detail` is the broker's message.
    """
    reason = f"{name_of(code)} ({code})"
    parts = [f"{what}: Kafka answered {reason}"]
    if detail:
        parts.append(f": {detail}")
    elif code in _GUESSES:
        parts.append(f"; {_GUESSES[code]}")
    if code in _ADVICE:
        parts.append(f"; {_ADVICE[code]}")
    return _ERRORS.get(code, LogError)("".join(parts))
