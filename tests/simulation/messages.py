"""The requests that the client sends, and their responses, in the versions that it sends to Kafka 4.4."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from tests.simulation.codec import Message, read_tags

# As Kafka 4.4 tells them; `Api` has those that the simulation knows.
VERSIONS: Final[dict[int, tuple[int, int]]] = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6),
    16: (0, 5), 18: (0, 5), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 6), 32: (1, 4),
    37: (0, 3), 44: (0, 1), 65: (0, 0),
}  # fmt: skip

_HEAD: Final = Struct(">hhih")
_CORRELATION: Final = Struct(">i")
API_VERSIONS: Final = 18
_THROTTLE: Final = "throttle_time_ms:i32 "
_BROKERS: Final = "brokers:[node_id:i32 host:str port:i32 rack:str] cluster_id:str controller_id:i32 "
_REPLICAS: Final = "replica_nodes:[i32] isr_nodes:[i32] offline_replicas:[i32]"
_PRODUCER: Final = "transactional_id:str producer_id:i64 producer_epoch:i16 "
_MEMBER: Final = "group_id:str generation_id:i32 member_id:str group_instance_id:str "


class Api(NamedTuple):
    """A kind of request in the version that the client sends."""

    name: str
    key: int
    version: int
    request: Message
    response: Message


def _api(name: str, key: int, version: int, request: str, response: str, *, flexible: bool = False) -> Api:
    return Api(name, key, version, Message(request, flexible=flexible), Message(response, flexible=flexible))


_ALL: Final = (
    _api(
        "Produce", 0, 8,
        "transactional_id:str acks:i16 timeout_ms:i32 topics:[name:str partitions:[index:i32 records:bytes]]",
        "responses:[name:str partitions:[index:i32 error_code:i16 base_offset:i64 log_append_time_ms:i64 log_start_offset:i64 "
        "record_errors:[batch_index:i32 message:str] error_message:str]] throttle_time_ms:i32",
    ),
    _api(
        "Fetch", 1, 12,
        "replica_id:i32 max_wait_ms:i32 min_bytes:i32 max_bytes:i32 isolation_level:i8 session_id:i32 session_epoch:i32 "
        "topics:[topic:str partitions:[partition:i32 current_leader_epoch:i32 fetch_offset:i64 last_fetched_epoch:i32 log_start_offset:i64 "
        "max_bytes:i32]] forgotten:[topic:str partitions:[i32]] rack_id:str",
        _THROTTLE + "error_code:i16 session_id:i32 responses:[topic:str partitions:[partition:i32 error_code:i16 high_watermark:i64 "
        "last_stable_offset:i64 log_start_offset:i64 aborted_transactions:[producer_id:i64 first_offset:i64] preferred_read_replica:i32 "
        "records:bytes]]",
        flexible=True,
    ),
    _api(
        "ListOffsets", 2, 3,
        "replica_id:i32 isolation_level:i8 topics:[name:str partitions:[partition:i32 timestamp:i64]]",
        _THROTTLE + "topics:[name:str partitions:[partition:i32 error_code:i16 timestamp:i64 offset:i64]]",
    ),
    _api(
        "Metadata", 3, 8,
        "topics:[str] allow_auto_topic_creation:bool include_cluster_operations:bool include_topic_operations:bool",
        _THROTTLE + _BROKERS + "topics:[error_code:i16 name:str is_internal:bool partitions:[error_code:i16 partition:i32 leader_id:i32 "
        f"leader_epoch:i32 {_REPLICAS}] operations:i32] operations:i32",
    ),
    _api(
        "Metadata", 3, 10,
        "topics:[topic_id:uuid name:str] allow_auto_topic_creation:bool include_cluster_operations:bool include_topic_operations:bool",
        _THROTTLE + _BROKERS + "topics:[error_code:i16 name:str topic_id:uuid is_internal:bool partitions:[error_code:i16 partition:i32 "
        f"leader_id:i32 leader_epoch:i32 {_REPLICAS}] operations:i32] operations:i32",
        flexible=True,
    ),
    _api(
        "OffsetCommit", 8, 7,
        _MEMBER + "topics:[name:str partitions:[partition:i32 offset:i64 leader_epoch:i32 metadata:str]]",
        _THROTTLE + "topics:[name:str partitions:[partition:i32 error_code:i16]]",
    ),
    _api(
        "OffsetFetch", 9, 7,
        "group_id:str topics:[name:str partitions:[i32]] require_stable:bool",
        _THROTTLE + "topics:[name:str partitions:[partition:i32 offset:i64 leader_epoch:i32 metadata:str error_code:i16]] error_code:i16",
        flexible=True,
    ),
    _api(
        "FindCoordinator", 10, 1,
        "key:str key_type:i8",
        _THROTTLE + "error_code:i16 error_message:str node_id:i32 host:str port:i32",
    ),
    _api(
        "JoinGroup", 11, 5,
        "group_id:str session_timeout_ms:i32 rebalance_timeout_ms:i32 member_id:str group_instance_id:str protocol_type:str "
        "protocols:[name:str metadata:bytes]",
        _THROTTLE + "error_code:i16 generation_id:i32 protocol_name:str leader:str member_id:str "
        "members:[member_id:str group_instance_id:str metadata:bytes]",
    ),
    _api("Heartbeat", 12, 3, _MEMBER, _THROTTLE + "error_code:i16"),
    _api(
        "LeaveGroup", 13, 3,
        "group_id:str members:[member_id:str group_instance_id:str]",
        _THROTTLE + "error_code:i16 members:[member_id:str group_instance_id:str error_code:i16]",
    ),
    _api(
        "SyncGroup", 14, 3,
        _MEMBER + "assignments:[member_id:str assignment:bytes]",
        _THROTTLE + "error_code:i16 assignment:bytes",
    ),
    _api(
        "DescribeGroups", 15, 3,
        "groups:[str] include_operations:bool",
        _THROTTLE + "groups:[error_code:i16 group_id:str state:str protocol_type:str protocol:str members:[member_id:str client_id:str host:str "
        "metadata:bytes assignment:bytes] operations:i32]",
    ),
    _api("ListGroups", 16, 2, "", _THROTTLE + "error_code:i16 groups:[group_id:str protocol_type:str]"),
    _api("ApiVersions", API_VERSIONS, 0, "", "error_code:i16 api_keys:[api_key:i16 min_version:i16 max_version:i16]"),
    _api(
        "ApiVersions", API_VERSIONS, 5,
        "client_software_name:str client_software_version:str cluster_id:str node_id:i32",
        "error_code:i16 api_keys:[api_key:i16 min_version:i16 max_version:i16] throttle_time_ms:i32",
        flexible=True,
    ),
    _api(
        "CreateTopics", 19, 3,
        "topics:[name:str num_partitions:i32 replication_factor:i16 assignments:[partition:i32 brokers:[i32]] configs:[name:str value:str]] "
        "timeout_ms:i32 validate_only:bool",
        _THROTTLE + "topics:[name:str error_code:i16 error_message:str]",
    ),
    _api("DeleteTopics", 20, 3, "names:[str] timeout_ms:i32", _THROTTLE + "responses:[name:str error_code:i16]"),
    _api(
        "DeleteRecords", 21, 2,
        "topics:[name:str partitions:[partition:i32 offset:i64]] timeout_ms:i32",
        _THROTTLE + "topics:[name:str partitions:[partition:i32 low_watermark:i64 error_code:i16]]",
        flexible=True,
    ),
    _api(
        "InitProducerId", 22, 4,
        "transactional_id:str transaction_timeout_ms:i32 producer_id:i64 producer_epoch:i16",
        _THROTTLE + "error_code:i16 producer_id:i64 producer_epoch:i16",
        flexible=True,
    ),
    _api(
        "OffsetForLeaderEpoch", 23, 4,
        "replica_id:i32 topics:[topic:str partitions:[partition:i32 current_leader_epoch:i32 leader_epoch:i32]]",
        _THROTTLE + "topics:[topic:str partitions:[error_code:i16 partition:i32 leader_epoch:i32 end_offset:i64]]",
        flexible=True,
    ),
    _api(
        "AddPartitionsToTxn", 24, 0,
        _PRODUCER + "topics:[name:str partitions:[i32]]",
        _THROTTLE + "results:[name:str results:[partition:i32 error_code:i16]]",
    ),
    _api("AddOffsetsToTxn", 25, 0, _PRODUCER + "group_id:str", _THROTTLE + "error_code:i16"),
    _api("EndTxn", 26, 0, _PRODUCER + "committed:bool", _THROTTLE + "error_code:i16"),
    _api(
        "TxnOffsetCommit", 28, 3,
        "transactional_id:str group_id:str producer_id:i64 producer_epoch:i16 generation_id:i32 member_id:str group_instance_id:str "
        "topics:[name:str partitions:[partition:i32 offset:i64 leader_epoch:i32 metadata:str]]",
        _THROTTLE + "topics:[name:str partitions:[partition:i32 error_code:i16]]",
        flexible=True,
    ),
    _api(
        "DescribeConfigs", 32, 2,
        "resources:[resource_type:i8 resource_name:str configuration_keys:[str]] include_synonyms:bool",
        _THROTTLE + "results:[error_code:i16 error_message:str resource_type:i8 resource_name:str configs:[name:str value:str read_only:bool "
        "config_source:i8 is_sensitive:bool synonyms:[name:str value:str source:i8]]]",
    ),
    _api(
        "CreatePartitions", 37, 1,
        "topics:[name:str count:i32 assignments:[brokers:[i32]]] timeout_ms:i32 validate_only:bool",
        _THROTTLE + "results:[name:str error_code:i16 error_message:str]",
    ),
    _api(
        "IncrementalAlterConfigs", 44, 1,
        "resources:[resource_type:i8 resource_name:str configs:[name:str operation:i8 value:str]] validate_only:bool",
        _THROTTLE + "responses:[error_code:i16 error_message:str resource_type:i8 resource_name:str]",
        flexible=True,
    ),
    _api(
        "DescribeTransactions", 65, 0,
        "transactional_ids:[str]",
        _THROTTLE + "transactions:[error_code:i16 transactional_id:str state:str timeout_ms:i32 start_time_ms:i64 producer_id:i64 "
        "producer_epoch:i16 topics:[topic:str partitions:[i32]]]",
        flexible=True,
    ),
)  # fmt: skip

APIS: Final[dict[tuple[int, int], Api]] = {(api.key, api.version): api for api in _ALL}


class Request(NamedTuple):
    """A request from the wire."""

    api: Api
    correlation: int
    client_id: str
    fields: dict[str, Any]


def read_request(frame: bytes) -> Request:
    """Read a request. Raises KeyError for one that the simulation does not know."""
    key, version, correlation, length = _HEAD.unpack_from(frame)
    at = _HEAD.size + max(0, length)
    client_id = frame[_HEAD.size : at].decode()
    api = APIS[key, version]
    if api.request.flexible:
        _, at = read_tags(frame, at)
    return Request(api, correlation, client_id, api.request.read(frame, at))


def write_response(request: Request, fields: dict[str, Any]) -> bytes:
    """Return a response, with its length before it."""
    head = _CORRELATION.pack(request.correlation) + (b"\0" if _has_tags(request.api) else b"")
    body = request.api.response.write(fields)
    return _CORRELATION.pack(len(head) + len(body)) + head + body


def read_response(api: Api, frame: bytes) -> dict[str, Any]:
    """Read a response without its length."""
    return api.response.read(frame, _CORRELATION.size + (1 if _has_tags(api) else 0))


def _has_tags(api: Api) -> bool:
    """Return whether the header of a response has tags; all clients can read that of ApiVersions."""
    return api.response.flexible and api.key != API_VERSIONS
