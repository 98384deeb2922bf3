"""The answers of a broker to record batches: each is written once, in order, by one producer of its id at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ks_actors.records import TopicPartition
from tests.simulation.batches import is_one, is_sound, is_transactional, placed, records_of
from tests.simulation.broker import NOT_LEADER, answers
from tests.simulation.transactions import INVALID_STATE, verify

if TYPE_CHECKING:
    from tests.simulation.broker import Broker, Call
    from tests.simulation.logs import Log

_CORRUPT: Final = 2
_REQUEST_TIMED_OUT: Final = 7
_TOO_LARGE: Final = 10
_INVALID_ACKS: Final = 21
_ID_NOT_ALLOWED: Final = 53
_INVALID_RECORD: Final = 87
_ALL: Final = -1
_NOT_ADDED: Final = "Partition was not added to the transaction"


class Outcome(NamedTuple):
    """The outcome of a batch: an error code, or its offsets in a log."""

    code: int = 0
    base: int = -1
    behind: int = -1
    log: Log | None = None
    # Of a batch that was there before.
    timestamp: int = -1
    text: str | None = None
    refused: tuple[tuple[int, str], ...] = ()


@answers("Produce")
async def produce(broker: Broker, call: Call) -> dict[str, Any] | None:
    """Write batches, and answer when the replicas have them, or when the time is over."""
    fields, loop = call.fields, asyncio.get_running_loop()
    deadline = loop.time() + fields["timeout_ms"] / 1000
    written: dict[TopicPartition, Outcome] = {}
    for topic in fields["topics"]:
        for each in topic["partitions"]:
            partition = TopicPartition(topic["name"], each["index"])
            code = _INVALID_ACKS if fields["acks"] not in (0, 1, _ALL) else _INVALID_RECORD if not is_one(each["records"]) else 0
            written[partition] = Outcome(code) if code else _write(broker, partition, each["records"], fields["transactional_id"])
    if fields["acks"] == 0:
        return None
    while fields["acks"] == _ALL and any(_waits(broker, partition, one) for partition, one in written.items()):
        if not await broker.change(deadline):
            break
    late = broker.cluster.injected("Produce late")
    responses = []
    for topic in fields["topics"]:
        partitions = []
        for each in topic["partitions"]:
            one = written[TopicPartition(topic["name"], each["index"])]
            code = one.code or _code(broker, TopicPartition(topic["name"], each["index"]), one, fields["acks"]) or late
            partitions.append({
                "index": each["index"],
                "error_code": code,
                "base_offset": -1 if code else one.base,
                "log_append_time_ms": -1 if code else one.timestamp,
                "log_start_offset": -1 if one.log is None else one.log.start,
                "record_errors": [{"batch_index": index, "message": text} for index, text in one.refused],
                "error_message": one.text,
            })  # fmt: skip
        responses.append({"name": topic["name"], "partitions": partitions})
    return {"responses": responses, "throttle_time_ms": broker.cluster.injected("throttle")}


def _write(broker: Broker, partition: TopicPartition, raw: bytes, transactional_id: str | None) -> Outcome:  # noqa: PLR0911 - so are Kafka's cases
    cluster = broker.cluster
    code = broker.judge(partition) or cluster.injected("Produce")
    if code:
        return Outcome(code)
    led = broker.led[partition]
    if not is_sound(raw):
        return Outcome(_CORRUPT)
    topic = cluster.topics.get(partition.topic)
    if topic is not None and len(raw) > topic.limit:
        return Outcome(_TOO_LARGE)
    if topic is not None and "compact" in topic.configs["cleanup.policy"]:
        text = f"Compacted topic cannot accept message without key in topic partition {partition.topic}-{partition.partition}"
        refused = tuple((index, text) for index, record in enumerate(records_of(raw)) if record.key is None)
        if refused:
            shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in refused[:3])
            text = (
                f"One or more records have been rejected due to {len(refused)} record errors in total, "
                f"and only showing the first three errors at most: [{shown}]"
            )
            return Outcome(_INVALID_RECORD, log=led.log, refused=refused, text=text)
    if transactional_id is None and is_transactional(raw):
        return Outcome(_ID_NOT_ALLOWED)
    log, batch = led.log, placed(raw, led.log.end, led.epoch)
    code, before = log.judge(batch)
    if not code and before >= 0:
        return Outcome(0, before, before + batch.behind - batch.base, log, batch.timestamp)
    if batch.transactional and not log.is_open(batch.producer, batch.producer_epoch):
        # The coordinator is asked before all else.
        refused_by_coordinator = verify(cluster, transactional_id, partition, batch.producer, batch.producer_epoch)
        if refused_by_coordinator:
            return Outcome(refused_by_coordinator, text=_NOT_ADDED if refused_by_coordinator == INVALID_STATE else None)
    if code:
        return Outcome(code, log=log)
    log.append(raw, led.epoch)
    truth = cluster.partition(partition)
    if truth is not None and truth.log is log:
        cluster.replicate(truth)
    log.wake()
    return Outcome(0, batch.base, batch.behind, log)


def _leads(broker: Broker, partition: TopicPartition, log: Log) -> bool:
    led = broker.led.get(partition)
    return led is not None and led.log is log


def _waits(broker: Broker, partition: TopicPartition, one: Outcome) -> bool:
    return not one.code and one.log is not None and one.log.high < one.behind and _leads(broker, partition, one.log)


def _code(broker: Broker, partition: TopicPartition, one: Outcome, acks: int) -> int:
    assert one.log is not None
    if acks != _ALL or one.log.high >= one.behind:
        return 0
    return _REQUEST_TIMED_OUT if _leads(broker, partition, one.log) else NOT_LEADER
