"""Offsets that groups commit, alone or in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.records import TopicPartition
from tests.simulation.broker import UNKNOWN_TOPIC, answers
from tests.simulation.cluster import OFFSETS_TOPIC
from tests.simulation.coordinators import shard_of, write
from tests.simulation.groups import ILLEGAL_GENERATION, REBALANCE, UNKNOWN_MEMBER, find
from tests.simulation.transactions import verify_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.broker import Broker, Call
    from tests.simulation.groups import Group

_UNSTABLE: Final = 88
_METADATA_TOO_LARGE: Final = 12
_LONGEST: Final = 4_096
_NOTHING: Final[dict[str, Any]] = {"offset": -1, "leader_epoch": -1, "metadata": ""}


def _unknown(broker: Broker, partition: TopicPartition) -> bool:
    topic = broker.image.topics.get(partition.topic)
    return topic is None or not 0 <= partition.partition < len(topic.partitions)


async def _write(broker: Broker, fields: dict[str, Any], code: int, store: Callable[[dict[TopicPartition, dict[str, Any]]], None]) -> dict[str, Any]:
    """Write the offsets of a request; answer for each partition."""
    asked = {TopicPartition(topic["name"], each["partition"]): each for topic in fields["topics"] for each in topic["partitions"]}
    # What does not exist is found first, and told first.
    codes = {partition: UNKNOWN_TOPIC if _unknown(broker, partition) else code for partition in asked}
    if not code:
        for partition, each in asked.items():
            if not codes[partition] and len(each["metadata"] or "") > _LONGEST:
                codes[partition] = _METADATA_TOO_LARGE
        kept = {
            partition: {"offset": each["offset"], "leader_epoch": each["leader_epoch"], "metadata": each["metadata"] or ""}
            for partition, each in asked.items()
            if not codes[partition]
        }
        _, shard = shard_of(broker, OFFSETS_TOPIC, fields["group_id"])
        assert shard is not None
        code = await write(broker, shard, lambda: store(kept)) if kept else 0
        codes.update({partition: code for partition in kept if code})
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition": each["partition"], "error_code": codes[TopicPartition(topic["name"], each["partition"])]}
                    for each in sorted(topic["partitions"], key=lambda each: codes[TopicPartition(topic["name"], each["partition"])] != UNKNOWN_TOPIC)
                ],
            }
            for topic in fields["topics"]
        ]
    }


def _judge(group: Group, fields: dict[str, Any], generation: int, *, transactional: bool) -> int:
    member_id, instance = fields["member_id"], fields["group_instance_id"]
    if generation >= 0 and not group.known:
        return ILLEGAL_GENERATION
    if generation < 0 and group.state == "Empty":
        return 0
    if generation >= 0 or member_id or instance is not None:
        code = group.judge(member_id, instance)
        if not code and generation != group.generation:
            code = ILLEGAL_GENERATION
        if not code and not transactional:
            group.heard_of(group.members[member_id])
    else:
        code = 0 if transactional else UNKNOWN_MEMBER
    if not code and not transactional and group.state == "CompletingRebalance":
        code = REBALANCE
    return code


@answers("OffsetCommit")
async def offset_commit(broker: Broker, call: Call) -> dict[str, Any]:
    """Write offsets for a member, or for a group without any."""
    fields = call.fields
    code, group = find(broker, fields["group_id"])
    if group is not None:
        code = _judge(group, fields, fields["generation_id"], transactional=False)
    committed = broker.cluster.offsets_of(fields["group_id"])
    return await _write(broker, fields, code, committed.commit)


@answers("TxnOffsetCommit")
async def txn_offset_commit(broker: Broker, call: Call) -> dict[str, Any]:
    """Write offsets that come into force with a transaction."""
    fields, cluster = call.fields, broker.cluster
    code = cluster.injected("TxnOffsetCommit")
    if not code:
        code, group = find(broker, fields["group_id"])
        if group is not None:
            code = verify_offsets(cluster, fields["transactional_id"], fields["group_id"], fields["producer_id"], fields["producer_epoch"])
            code = code or _judge(group, fields, fields["generation_id"], transactional=True)
    committed = cluster.offsets_of(fields["group_id"])
    return await _write(broker, fields, code, lambda kept: committed.note(fields["producer_id"], kept))


@answers("OffsetFetch")
async def offset_fetch(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer with committed offsets; those that an open transaction may change are not told."""
    fields = call.fields
    code, group = find(broker, fields["group_id"])
    committed = broker.cluster.offsets_of(fields["group_id"])
    asked = fields["topics"]
    if asked is None:
        topics: dict[str, list[int]] = {}
        for partition in committed.all:
            topics.setdefault(partition.topic, []).append(partition.partition)
        asked = [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
    if group is None:
        return {"error_code": code, "topics": []}
    unstable = committed.unstable if fields["require_stable"] else {}

    def one(partition: TopicPartition) -> dict[str, Any]:
        if partition in unstable:
            return {**_NOTHING, "error_code": _UNSTABLE}
        return committed.committed.get(partition, _NOTHING)

    return {
        "topics": [
            {"name": topic["name"], "partitions": [{"partition": each, **one(TopicPartition(topic["name"], each))} for each in topic["partitions"]]}
            for topic in asked
        ]
    }
