"""The answers of the controller about topics; any broker forwards it. Records that are deleted are the leader's affair."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from ks_actors.records import TopicPartition
from tests.simulation.broker import UNKNOWN_TOPIC, answers
from tests.simulation.cluster import DEFAULTS

if TYPE_CHECKING:
    from tests.simulation.broker import Broker, Call
    from tests.simulation.cluster import Topic

_OFFSET_OUT_OF_RANGE: Final = 1
_REQUEST_TIMED_OUT: Final = 7
INVALID_TOPIC: Final = 17
_TOPIC_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
_INVALID_REPLICATION: Final = 38
_INVALID_CONFIG: Final = 40
_INVALID_REQUEST: Final = 42
_POLICY_VIOLATION: Final = 44
_TOPIC: Final = 2
_DEFAULT: Final = 5
_OF_CLUSTER: Final = 3
_OF_TOPIC: Final = 1
_INTS: Final = frozenset({"max.message.bytes", "min.insync.replicas", "segment.bytes", "segment.index.bytes", "index.interval.bytes"})
_LEAST: Final = {"max.message.bytes": 0, "min.insync.replicas": 1, "segment.bytes": 1 << 20, "delete.retention.ms": 0}
_SET: Final = 0
_DELETE: Final = 1
_LONGEST: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


async def _reached(broker: Broker, timeout_ms: int) -> bool:
    """Return whether the controller can be reached; it takes its time."""
    if broker.connected:
        await asyncio.sleep(broker.cluster.manners.replication * broker.cluster.random.random())
    else:
        await asyncio.sleep(timeout_ms / 1000)
    return broker.connected


def _source(topic: Topic, name: str) -> int:
    """Tell whether a topic has a config itself, or all topics have it."""
    if name in topic.given:
        return _OF_TOPIC
    # Kafka writes its default into the cluster's configs, so that no broker has another one.
    return _OF_CLUSTER if name == "min.insync.replicas" else _DEFAULT


def _config_error(configs: list[dict[str, Any]]) -> tuple[int, str] | None:
    """Return why configs cannot be set."""
    for each in configs:
        name, value = each["name"], each["value"]
        if each.get("operation", _SET) == _DELETE:
            continue
        if value is None:
            return _INVALID_REQUEST, f"Null value not supported for : {name}"
        wrong = f"Unknown topic config name: {name}" if name not in DEFAULTS else _value_error(name, value)
        if wrong is not None:
            return _INVALID_CONFIG, wrong
    return None


def _value_error(name: str, value: str) -> str | None:
    wrong, default = None, DEFAULTS[name]
    if default.lstrip("-").isdigit():
        if not value.lstrip("-").isdigit():
            wrong = f"Not a number of type {'INT' if name in _INTS else 'LONG'}"
        elif int(value) < _LEAST.get(name, int(value)):
            wrong = f"Value must be at least {_LEAST[name]}"
    elif default in ("true", "false") and value not in ("true", "false"):
        wrong = "Expected value to be either true or false"
    elif name == "cleanup.policy" and not {"compact", "delete"}.issuperset(value.split(",")):
        wrong = "String must be one of: compact, delete"
    return None if wrong is None else f"Invalid value {value} for configuration {name}: {wrong}"


def name_error(name: str) -> str | None:
    """Return why no topic may have a name."""
    if not name:
        wrong = "the empty string is not allowed"
    elif name in (".", ".."):
        wrong = f"'{name}' is not allowed"
    elif len(name) > _LONGEST:
        wrong = f"the length of '{name}' is longer than the max allowed length {_LONGEST}"
    elif not _LEGAL.fullmatch(name):
        wrong = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {wrong}"


def _twice(names: list[str]) -> dict[str, None]:
    """Return the names that come more than once: they are answered once."""
    return {name: None for name in names if names.count(name) > 1}


def _creation_error(broker: Broker, topic: dict[str, Any]) -> tuple[int, str | None]:  # noqa: PLR0911 - a broker looks for one fault after the other
    name, partitions, replication = topic["name"], topic["num_partitions"], topic["replication_factor"]
    cluster = broker.cluster
    if code := cluster.injected("controller"):
        return code, None
    if unnamed := name_error(name):
        return INVALID_TOPIC, unnamed
    if name in cluster.topics:
        return _TOPIC_EXISTS, f"Topic '{name}' already exists."
    if partitions == 0 or partitions < -1:
        return _INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
    if replication == 0 or replication < -1:
        return _INVALID_REPLICATION, "Replication factor must be larger than 0, or -1 to use the default value."
    if replication > len(cluster.truth.alive):
        text = (
            f"Unable to replicate the partition {replication} time(s): The target replication factor of {replication} cannot be reached because only "
            f"{len(cluster.truth.alive)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
        return _INVALID_REPLICATION, text
    wrong = _config_error(topic["configs"])
    return (0, None) if wrong is None else wrong


@answers("CreateTopics")
async def create_topics(broker: Broker, call: Call) -> dict[str, Any]:
    """Make topics, each of them if that is possible."""
    fields, cluster = call.fields, broker.cluster
    reached = await _reached(broker, fields["timeout_ms"])
    twice = _twice([each["name"] for each in fields["topics"]])
    found = [{"name": name, "error_code": _INVALID_REQUEST, "error_message": "Duplicate topic name."} for name in twice]
    for topic in fields["topics"]:
        if topic["name"] in twice:
            continue
        code, text = _creation_error(broker, topic) if reached else (_REQUEST_TIMED_OUT, None)
        if not code and not fields["validate_only"]:
            replication = topic["replication_factor"]
            configs = {each["name"]: each["value"] for each in topic["configs"]}
            cluster.make(topic["name"], max(1, topic["num_partitions"]), replication if replication > 0 else cluster.replication, configs)
        found.append({"name": topic["name"], "error_code": code, "error_message": text})
    return {"topics": found}


@answers("CreatePartitions")
async def create_partitions(broker: Broker, call: Call) -> dict[str, Any]:
    """Give topics more partitions."""
    fields, cluster = call.fields, broker.cluster
    reached = await _reached(broker, fields["timeout_ms"])
    twice = _twice([each["name"] for each in fields["topics"]])
    found = [{"name": name, "error_code": _INVALID_REQUEST, "error_message": "Duplicate topic name."} for name in twice]
    for asked in fields["topics"]:
        name, count = asked["name"], asked["count"]
        if name in twice:
            continue
        topic, code, text = cluster.topics.get(name), 0, None
        if not reached:
            code = _REQUEST_TIMED_OUT
        elif topic is None:
            code = UNKNOWN_TOPIC
        elif count == len(topic.partitions):
            code, text = _INVALID_PARTITIONS, f"Topic already has {count} partition(s)."
        elif count < len(topic.partitions):
            code = _INVALID_PARTITIONS
            text = f"The topic {name} currently has {len(topic.partitions)} partition(s); {count} would not be an increase."
        elif not fields["validate_only"]:
            cluster.grow(name, count)
        found.append({"name": name, "error_code": code, "error_message": text})
    return {"results": found}


@answers("DeleteTopics")
async def delete_topics(broker: Broker, call: Call) -> dict[str, Any]:
    """Delete topics."""
    fields, cluster = call.fields, broker.cluster
    reached = await _reached(broker, fields["timeout_ms"])
    twice = _twice(fields["names"])
    found = [{"name": name, "error_code": _INVALID_REQUEST} for name in twice]
    for name in fields["names"]:
        if name in twice:
            continue
        code = _REQUEST_TIMED_OUT if not reached else UNKNOWN_TOPIC if name not in cluster.topics else 0
        if not code:
            cluster.delete(name)
        found.append({"name": name, "error_code": code})
    return {"responses": found}


@answers("DescribeConfigs")
async def describe_configs(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer with the configs of topics as far as this broker knows of them."""
    found = []
    for asked in call.fields["resources"]:
        name = asked["resource_name"]
        topic = broker.cluster.topics.get(name) if name in broker.image.topics else None
        names = asked["configuration_keys"]
        shown = [
            {"name": key, "value": value, "config_source": _source(each, key)}
            for each in ([] if topic is None else [topic])
            for key, value in each.configs.items()
            if names is None or key in names
        ]
        code = UNKNOWN_TOPIC if topic is None else 0
        found.append({"error_code": code, "error_message": "", "resource_type": _TOPIC, "resource_name": name, "configs": shown})
    return {"results": found}


@answers("IncrementalAlterConfigs")
async def alter_configs(broker: Broker, call: Call) -> dict[str, Any]:
    """Set configs of topics."""
    cluster = broker.cluster
    reached = await _reached(broker, 1_000)
    found = []
    names = [each["resource_name"] for each in call.fields["resources"]]
    for asked in call.fields["resources"]:
        name = asked["resource_name"]
        topic, code, text = cluster.topics.get(name), 0, None
        wrong = _config_error(asked["configs"])
        if not reached:
            code = _REQUEST_TIMED_OUT
        elif names.count(name) > 1:
            code, text = _INVALID_REQUEST, "Each resource must appear at most once."
        elif topic is None:
            code, text = UNKNOWN_TOPIC, f"The topic '{name}' does not exist."
        elif wrong is not None:
            code, text = wrong
        elif not call.fields["validate_only"]:
            for each in asked["configs"]:
                gone = each["operation"] == _DELETE
                topic.configs[each["name"]] = DEFAULTS[each["name"]] if gone else each["value"]
                (topic.given.discard if gone else topic.given.add)(each["name"])
        found.append({"error_code": code, "error_message": text, "resource_type": _TOPIC, "resource_name": name})
    return {"responses": found}


@answers("DeleteRecords")
async def delete_records(broker: Broker, call: Call) -> dict[str, Any]:
    """Delete the first records of partitions that this broker leads."""
    topics = []
    for topic in call.fields["topics"]:
        partitions = []
        for each in topic["partitions"]:
            partition = TopicPartition(topic["name"], each["partition"])
            code, low = broker.judge(partition), -1
            if not code:
                log = broker.led[partition].log
                named = broker.cluster.topics.get(partition.topic)
                before = log.high if each["offset"] == -1 else each["offset"]
                if named is not None and "delete" not in named.configs["cleanup.policy"]:
                    code = _POLICY_VIOLATION
                elif before > log.high or before < 0:
                    code = _OFFSET_OUT_OF_RANGE
                else:
                    log.delete_before(before)
                    log.wake()
                    low = log.start
            partitions.append({"partition": each["partition"], "low_watermark": low, "error_code": code})
        topics.append({"name": topic["name"], "partitions": partitions})
    return {"topics": topics}
