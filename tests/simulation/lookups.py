"""Requests that any broker answers from what it knows: versions, metadata, coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.broker import UNKNOWN_TOPIC, answers
from tests.simulation.cluster import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.simulation.coordinators import hash_of
from tests.simulation.messages import API_VERSIONS, VERSIONS
from tests.simulation.network import PORT, Place
from tests.simulation.topics import INVALID_TOPIC, name_error

if TYPE_CHECKING:
    from tests.simulation.broker import Broker, Call
    from tests.simulation.cluster import TopicImage

_LEADER_NOT_AVAILABLE: Final = 5
_COORDINATOR_NOT_AVAILABLE: Final = 15
_INVALID_REQUEST: Final = 42
_REBOOTSTRAP_REQUIRED: Final = 129
_GROUP: Final = 0
_UNKNOWN_OPERATIONS: Final = -(1 << 31)
# All that a user may do with a topic, and with the cluster.
_TOPIC_OPERATIONS: Final = 0b110111111000
_CLUSTER_OPERATIONS: Final = 0b1111110100000


@answers("ApiVersions")
async def api_versions(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer with the versions of Kafka 4.4, or of an older one; refuse a client that looks for another broker."""
    cluster, node = call.fields.get("cluster_id"), call.fields.get("node_id", -1)
    if (cluster is None) != (node == -1):
        return {"error_code": _INVALID_REQUEST}
    if cluster not in {None, broker.cluster.id} or node not in {-1, broker.node}:
        return {"error_code": _REBOOTSTRAP_REQUIRED}
    versions = {**VERSIONS, API_VERSIONS: broker.cluster.api_versions}
    return {"api_keys": [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in versions.items()]}


@answers("Metadata")
async def metadata(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer with topics as far as this broker knows."""
    image, asked = broker.image, call.fields["topics"]
    site = call.line.place.site
    brokers = [{"node_id": node, "host": Place(site, node).host_in(broker.cluster.subnet), "port": PORT} for node in image.alive]
    names = list(image.topics) if asked is None else [each["name"] if isinstance(each, dict) else each for each in asked]
    with_operations = call.fields["include_topic_operations"]
    return {
        "brokers": brokers,
        "cluster_id": broker.cluster.id,
        # With KRaft any broker forwards what is for the controller.
        "controller_id": broker.cluster.random.choice(image.alive) if image.alive else NO_LEADER,
        "topics": [_topic(name, image.topics.get(name), image.alive, with_operations=with_operations) for name in names],
        "operations": _CLUSTER_OPERATIONS if call.fields["include_cluster_operations"] else _UNKNOWN_OPERATIONS,
    }


def _topic(name: str, topic: TopicImage | None, alive: tuple[int, ...], *, with_operations: bool) -> dict[str, Any]:
    if topic is None:
        return {"error_code": UNKNOWN_TOPIC if name_error(name) is None else INVALID_TOPIC, "name": name, "operations": _UNKNOWN_OPERATIONS}
    partitions = []
    for number, (leader, epoch, replicas) in enumerate(topic.partitions):
        known = leader if leader in alive else NO_LEADER
        there = [node for node in replicas if node in alive]
        partitions.append({
            "error_code": 0 if known != NO_LEADER else _LEADER_NOT_AVAILABLE,
            "partition": number,
            "leader_id": known,
            "leader_epoch": epoch,
            "replica_nodes": replicas,
            "isr_nodes": there,
            "offline_replicas": [node for node in replicas if node not in alive],
        })  # fmt: skip
    return {
        "name": name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": partitions,
        "operations": _TOPIC_OPERATIONS if with_operations else _UNKNOWN_OPERATIONS,
    }


@answers("FindCoordinator")
async def find_coordinator(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer with the leader of the partition that has the group, or the transactional id."""
    code = broker.cluster.injected("FindCoordinator")
    image = broker.image
    topic = image.topics.get(OFFSETS_TOPIC if call.fields["key_type"] == _GROUP else TRANSACTIONS_TOPIC)
    leader = NO_LEADER
    if topic is not None:
        leader, *_ = topic.partitions[hash_of(call.fields["key"]) % len(topic.partitions)]
    if code or leader not in image.alive:
        return {"error_code": code or _COORDINATOR_NOT_AVAILABLE, "error_message": "", "node_id": NO_LEADER, "host": "", "port": -1}
    return {"node_id": leader, "host": Place(call.line.place.site, leader).host_in(broker.cluster.subnet), "port": PORT, "error_message": "NONE"}
