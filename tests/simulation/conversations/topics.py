"""Conversations about topics and their configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.messages import VERSIONS

if TYPE_CHECKING:
    pass
from tests.simulation.conversations.talk import SHOWN, Talk, make, new_topic, until_led


async def of_topics(talk: Talk) -> None:
    """Make, describe, change and delete topics."""
    versions = await talk.ask("ApiVersions", quietly=True)
    talk.note(
        "ApiVersions",
        sorted((each["api_key"], each["min_version"], each["max_version"]) for each in versions["api_keys"] if each["api_key"] in VERSIONS),
    )
    topic = await make(talk, "t", 2, retention_ms="77")
    odd = [
        new_topic(topic),
        new_topic("b d"),
        new_topic(talk.topic("n"), 0),
        new_topic(talk.topic("r"), 1, 9),
        new_topic(talk.topic("c"), x="1"),
        new_topic(talk.topic("v"), retention_ms="z"),
    ]
    await talk.ask("CreateTopics", {"topics": odd, "timeout_ms": 5_000})
    await talk.ask("CreateTopics", {"topics": [new_topic(talk.topic("later"))], "timeout_ms": 5_000, "validate_only": True})
    asked = [{"name": topic}, {"name": talk.topic("none")}]
    await talk.ask("Metadata", {"topics": asked}, version=10)
    operations = {"include_cluster_operations": True, "include_topic_operations": True}
    await talk.ask("Metadata", {"topics": [topic], **operations}, version=8)
    keys = {"configuration_keys": list(SHOWN), "resource_type": 2}
    await talk.ask("DescribeConfigs", {"resources": [{"resource_name": topic, **keys}, {"resource_name": talk.topic("none"), **keys}]})
    change = [{"name": "segment.bytes", "operation": 0, "value": "1048576"}]
    wrong = [{"name": "segment.bytes", "operation": 0, "value": "many"}]
    resources = [{"resource_name": name, "resource_type": 2, "configs": configs} for name, configs in ((topic, change), (talk.topic("none"), change))]
    await talk.ask("IncrementalAlterConfigs", {"resources": resources})
    await talk.ask("IncrementalAlterConfigs", {"resources": [{"resource_name": topic, "resource_type": 2, "configs": wrong}]})
    for count in (2, 1, 3):
        await talk.ask("CreatePartitions", {"topics": [{"name": topic, "count": count, "assignments": None}], "timeout_ms": 5_000})
    await talk.ask("CreatePartitions", {"topics": [{"name": talk.topic("none"), "count": 2, "assignments": None}], "timeout_ms": 5_000})
    await until_led(talk, topic, 3)
    await talk.ask("DeleteTopics", {"names": [talk.topic("none")], "timeout_ms": 5_000})
    await talk.ask("DeleteTopics", {"names": [topic], "timeout_ms": 5_000})


async def of_configs(talk: Talk) -> None:
    """Set and unset configs, describe all of them, and come with wrong ones."""
    topic = await make(talk, "t", 1, delete_retention_ms="77")
    resource = {"resource_name": topic, "resource_type": 2}

    async def describe() -> None:
        found = await talk.ask("DescribeConfigs", {"resources": [{**resource, "configuration_keys": None}]}, quietly=True)
        # The broker of tests has a setting of its own for one.
        (one,) = found["results"]
        talk.note("DescribeConfigs", {**one, "configs": [each for each in one["configs"] if each["name"] != "retention.ms"]})

    await describe()
    for name, operation, value in (
        ("delete.retention.ms", 1, None),
        ("max.message.bytes", 0, "99999"),
        ("max.message.bytes", 0, "-9"),
        ("x", 0, "1"),
        ("cleanup.policy", 0, "compact"),
        ("cleanup.policy", 0, "keep"),
        ("min.insync.replicas", 0, "1"),
        ("unclean.leader.election.enable", 0, "perhaps"),
        ("delete.retention.ms", 0, None),
    ):
        change = [{"name": name, "operation": operation, "value": value}]
        await talk.ask("IncrementalAlterConfigs", {"resources": [{**resource, "configs": change}]})
    change = [{"name": "segment.bytes", "operation": 0, "value": "1048576"}]
    await talk.ask("IncrementalAlterConfigs", {"resources": [{**resource, "configs": change}], "validate_only": True})
    await talk.ask("IncrementalAlterConfigs", {"resources": [{**resource, "configs": change}] * 2})
    await describe()
    await talk.ask("DescribeConfigs", {"resources": [{**resource, "configuration_keys": ["x"]}]})


async def of_wrong_topics(talk: Talk) -> None:
    """Name topics twice, by impossible names, and with numbers that are not to be had."""
    topic, new = await make(talk, "t", 2), talk.topic("n")
    await talk.ask("CreateTopics", {"topics": [new_topic(new), new_topic(new)], "timeout_ms": 5_000})
    await talk.ask("CreateTopics", {"topics": [new_topic(talk.topic("d"), -1, -1)], "timeout_ms": 5_000})
    for name in (".", "..", "", "x" * 250, "a/b"):
        await talk.ask("CreateTopics", {"topics": [new_topic(name)], "timeout_ms": 5_000})
    for partitions, replication in ((-2, 1), (1, 0), (1, -2)):
        await talk.ask("CreateTopics", {"topics": [new_topic(new, partitions, replication)], "timeout_ms": 5_000})
    for counts in ((3, 3), (0,), (-1,)):
        grown = [{"name": topic, "count": count, "assignments": None} for count in counts]
        await talk.ask("CreatePartitions", {"topics": grown, "timeout_ms": 5_000})
    grown = [{"name": topic, "count": 5, "assignments": None}]
    await talk.ask("CreatePartitions", {"topics": grown, "timeout_ms": 5_000, "validate_only": True})
    for name in ("", "a/b"):
        await talk.ask("Metadata", {"topics": [{"name": name}]}, version=10)
    await talk.ask("Metadata", {"topics": []}, version=10)
    await talk.ask("DeleteTopics", {"names": [topic, topic], "timeout_ms": 5_000})


async def of_identities(talk: Talk) -> None:
    """A client tells which broker of which cluster it looks for (KIP-1242): the right one, others, and some that it does not tell."""
    answer = await talk.ask("Metadata", {"topics": []}, version=10, quietly=True)
    cluster, node = answer["cluster_id"], answer["brokers"][0]["node_id"]
    client = {"client_software_name": "ks-actors", "client_software_version": "1"}
    for cluster_id in (cluster, "another", "", None):
        for node_id in (node, node + 7, -1):
            answer = await talk.ask("ApiVersions", {**client, "cluster_id": cluster_id, "node_id": node_id}, version=5, quietly=True)
            talk.note("ApiVersions", {"error_code": answer["error_code"]})
