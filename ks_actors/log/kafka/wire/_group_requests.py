"""Requests to a group coordinator, in versions that know instance ids.

aiokafka lacks such versions of some requests.
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ks_actors.log._types import MemberAssignment, MemberInfo
from ks_actors.log.kafka._aiokafka import (
    Array,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
    Int16,
    Int32,
    Int64,
    JoinGroupRequest,
    RequestStruct,
    Response,
    Schema,
    String,
    SyncGroupRequest,
)
from ks_actors.log.kafka.wire._requests import Pinned
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log._types import GroupMetadata, OffsetAndMetadata

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers, so that Kafka's own tools can show the members' partitions."""
PROTOCOL: Final = "ks-actors"
_TEXT = String("utf-8")
# A counter before the user data: a member that asks for a new assignment triggers a rebalance only
# if its metadata has changed.
_COUNTER = Struct(">I")


def _plain(
    name: str,
    key: int,
    version: int,
    request: Sequence[tuple[str, Any]],
    response: Sequence[tuple[str, Any]],
) -> Any:
    """Make the class of a request without tagged fields, and the class of its response."""
    common = {"API_KEY": key, "API_VERSION": version}
    answer = type(
        f"{name}Response_v{version}", (Response,), {**common, "SCHEMA": Schema(*response)}
    )
    return type(
        f"{name}Request_v{version}",
        (RequestStruct,),
        {**common, "RESPONSE_TYPE": answer, "SCHEMA": Schema(*request)},
    )


_HEARTBEAT = _plain(
    "Heartbeat", 12, 3,
    [
        ("group_id", _TEXT), ("generation_id", Int32), ("member_id", _TEXT),
        ("group_instance_id", _TEXT),
    ],
    [("throttle_time_ms", Int32), ("error_code", Int16)],
)  # fmt: skip

_LEAVE_GROUP = _plain(
    "LeaveGroup", 13, 3,
    [("group_id", _TEXT), ("members", Array(("member_id", _TEXT), ("group_instance_id", _TEXT)))],
    [
        ("throttle_time_ms", Int32), ("error_code", Int16),
        ("members", Array(
            ("member_id", _TEXT), ("group_instance_id", _TEXT), ("error_code", Int16)
        )),
    ],
)  # fmt: skip

_OFFSET_COMMIT = _plain(
    "OffsetCommit", 8, 7,
    [
        ("group_id", _TEXT), ("generation_id", Int32), ("member_id", _TEXT),
        ("group_instance_id", _TEXT),
        ("topics", Array(
            ("topic", _TEXT),
            ("partitions", Array(
                ("partition", Int32), ("offset", Int64), ("leader_epoch", Int32),
                ("metadata", _TEXT),
            )),
        )),
    ],
    [
        ("throttle_time_ms", Int32),
        ("topics", Array(
            ("topic", _TEXT), ("partitions", Array(("partition", Int32), ("error_code", Int16)))
        )),
    ],
)  # fmt: skip


def heartbeat(group: GroupMetadata, instance_id: str | None) -> Pinned:
    """Build a member's heartbeat."""
    return Pinned(_HEARTBEAT, group.group_id, group.generation, group.member_id, instance_id)


def leave_group(group_id: str, member_id: str, instance_id: str | None) -> Pinned:
    """Build a member's request to leave."""
    return Pinned(_LEAVE_GROUP, group_id, [(member_id, instance_id)])


def leave_groups(group_id: str, member_ids: Iterable[str]) -> Pinned:
    """Build a request that removes members by their member ids, without instance ids."""
    return Pinned(_LEAVE_GROUP, group_id, [(member_id, None) for member_id in member_ids])


def offset_commit(
    group: GroupMetadata,
    instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    epochs: Mapping[TopicPartition, int],
) -> Pinned:
    """Commit a member's offsets; `epochs` are the leader epochs of the records before them."""
    topics: dict[str, list[tuple[Any, ...]]] = {}
    for partition, offset in offsets.items():
        topic, number = partition
        topics.setdefault(topic, []).append(
            (number, offset.offset, epochs[partition], offset.metadata)
        )
    return Pinned(
        _OFFSET_COMMIT,
        group.group_id,
        group.generation,
        group.member_id,
        instance_id,
        list(topics.items()),
    )


def join_group(
    group_id: str,
    member_id: str,
    instance_id: str | None,
    metadata: bytes,
    *,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
) -> Any:
    """Build a request to join a group, or its next generation."""
    instance: Any = instance_id  # nullable, contrary to aiokafka's types
    return JoinGroupRequest(
        group_id,
        session_timeout_ms,
        rebalance_timeout_ms,
        member_id,
        instance,
        PROTOCOL_TYPE,
        [(PROTOCOL, metadata)],
    )


def sync_group(
    group: GroupMetadata, instance_id: str | None, assignments: Mapping[str, MemberAssignment]
) -> Any:
    """Build a request for the member's assignment; the leader's request carries all assignments."""
    encoded = [
        (member, _encode_assignment(assignment)) for member, assignment in assignments.items()
    ]
    instance: Any = instance_id  # as above
    return SyncGroupRequest(group.group_id, group.generation, group.member_id, instance, encoded)


def encode_member(topics: Iterable[str], counter: int, user_data: bytes) -> bytes:
    """Return a member's metadata for the leader; another `counter` makes the group rebalance."""
    return bytes(
        ConsumerProtocolMemberMetadata(
            0, sorted(topics), _COUNTER.pack(counter) + user_data
        ).encode()
    )


def decode_member(member_id: str, metadata: bytes) -> MemberInfo:
    """Decode a member's metadata."""
    decoded = ConsumerProtocolMemberMetadata.decode(metadata)
    return MemberInfo(
        member_id, frozenset(decoded.subscription), (decoded.user_data or b"")[_COUNTER.size :]
    )


def _encode_assignment(assignment: MemberAssignment) -> bytes:
    # A topic may occur more than once, to keep the order of partitions.
    topics = [
        (topic, [number for _, number in run])
        for topic, run in groupby(assignment.partitions, key=lambda partition: partition[0])
    ]
    return bytes(ConsumerProtocolMemberAssignment(0, topics, assignment.user_data).encode())


def decode_assignment(assignment: bytes) -> MemberAssignment:
    """Decode a member's assignment; empty if the leader has left the member out."""
    if not assignment:
        return MemberAssignment(())
    decoded = ConsumerProtocolMemberAssignment.decode(assignment)
    partitions = tuple(
        TopicPartition(topic, number) for topic, numbers in decoded.assignment for number in numbers
    )
    return MemberAssignment(partitions, decoded.user_data or b"")
