"""The refusals of each log: programs that run on the embedded log are to run on Kafka."""

from __future__ import annotations

import time
import uuid

import pytest

from ks_actors._errors import (
    ConfigError,
    Fenced,
    IllegalGeneration,
    InvalidRecord,
    LogError,
    OffsetOutOfRange,
    ProduceFailed,
    TopicExists,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from ks_actors.log import GroupMetadata, Log, NewTopic, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.records._batch import Batch
from tests.ks_actors.log.helpers import NOBODY, UNCOMMITTED, assigned, fetch_one, group_name, join, new_topic, outgoing, read_all, values_of, write

HOUR_MS = 3_600_000


# --- topics -----------------------------------------------------------------------------------------------------------------------

BAD = {
    "cleanup.policy": ["burn", "Compact", "compact,burn"],
    "compression.type": ["rar"],
    "compression.gzip.level": ["99"],
    "compression.lz4.level": ["99"],
    "compression.zstd.level": ["99"],
    "delete.retention.ms": ["-1"],
    "file.delete.delay.ms": ["-1"],
    "flush.messages": ["0"],
    "flush.ms": ["-1"],
    "follower.replication.throttled.replicas": ["x"],
    "index.interval.bytes": ["-1"],
    "local.retention.bytes": ["-3"],
    "local.retention.ms": ["-3"],
    "max.compaction.lag.ms": ["0"],
    "max.message.bytes": ["-1", "3000000000", "much"],
    "message.timestamp.after.max.ms": ["-1"],
    "message.timestamp.before.max.ms": ["-1"],
    "message.timestamp.type": ["Now"],
    "min.cleanable.dirty.ratio": ["2", "half"],
    "min.compaction.lag.ms": ["-1"],
    "min.insync.replicas": ["0"],
    "preallocate": ["maybe"],
    "remote.storage.enable": ["true"],
    "retention.ms": ["soon", "-2", "9223372036854775808", "1_000", "5.0", ""],
    "segment.bytes": ["10"],
    "segment.index.bytes": ["1"],
    "segment.jitter.ms": ["-1"],
    "segment.ms": ["0"],
    "unclean.leader.election.enable": ["x"],
    # Of older releases, and of none.
    "message.format.version": ["2.0"],
    "message.downconversion.enable": ["true"],
    "no.such.setting": ["1"],
}


async def test_settings_that_no_topic_can_have_are_refused(log: Log) -> None:
    """By ConfigError that names topic and setting, whether its name is unknown or its value is none; then there is no such topic."""
    for name, values in BAD.items():
        for value in values:
            topic = f"topic-{uuid.uuid4().hex}"
            # Of tiered storage Kafka speaks in words of its own.
            with pytest.raises(ConfigError, match=f"(?si){topic}.*({name}|tiered storage)"):
                await log.create_topics([NewTopic(topic, 1, {name: value})])
            assert await log.describe_topics([topic]) == {}, (name, value)


async def test_settings_that_topics_can_have_are_taken(log: Log) -> None:
    """In all the ways that Kafka reads numbers and words, up to their bounds."""
    good = {
        "cleanup.policy": ["", "compact", "delete", "compact, delete"],
        "compression.type": ["zstd", "producer"],
        "leader.replication.throttled.replicas": ["*", "0:1,1:0"],
        "min.cleanable.dirty.ratio": ["0", "0.1", "1"],
        "preallocate": ["TRUE", "false"],
        "retention.bytes": ["-2", "-1"],
        "retention.ms": ["-1", " 5 ", "+5", "9223372036854775807"],
        "max.message.bytes": ["0", "2147483647"],
        "segment.bytes": ["1048576"],
    }
    for name, values in good.items():
        await log.create_topics([NewTopic(f"topic-{uuid.uuid4().hex}", 1, {name: value}) for value in values])


async def test_topics_without_settings_have_those_of_kafka(log: Log) -> None:
    """They can be looked up: a topic that nobody has said anything of is deleted from, and not compacted."""
    (partition,) = await new_topic(log)
    configs = (await log.describe_topics([partition.topic]))[partition.topic].configs
    assert [configs[name] for name in ("cleanup.policy", "max.message.bytes", "min.compaction.lag.ms", "message.timestamp.type")] == [
        "delete",
        "1048588",
        "0",
        "CreateTime",
    ]
    assert configs.get("no.such.setting") is None


async def test_names_that_no_topic_can_have_are_refused(log: Log) -> None:
    """By LogError that says so: of other letters, too long, or the same as another one's but for '.' and '_'."""
    for name in ("", ".", "..", "a/b", "a b", "ü", "a\n", "x" * 250):
        with pytest.raises(LogError):
            await log.create_topics([NewTopic(name, 1)])
    run = uuid.uuid4().hex
    await log.create_topics([NewTopic(f"a.b-{run}", 1), NewTopic("x" * (249 - len(run)) + run, 1)])
    with pytest.raises(LogError, match="collides"):
        await log.create_topics([NewTopic(f"a_b-{run}", 1)])


async def test_numbers_of_partitions_that_cannot_be_are_refused(log: Log) -> None:
    """None, fewer than none, and more than are made at once."""
    for count in (0, -2, 10_001):
        with pytest.raises(LogError):
            await log.create_topics([NewTopic(f"topic-{uuid.uuid4().hex}", count)])


async def test_a_topic_is_created_once(log: Log) -> None:
    """With any settings the second time."""
    (partition,) = await new_topic(log)
    for again in (NewTopic(partition.topic, 1), NewTopic(partition.topic, 3, {"cleanup.policy": "compact"})):
        with pytest.raises(TopicExists, match=partition.topic):
            await log.create_topics([again])
    assert (await log.describe_topics([partition.topic]))[partition.topic].partitions == 1


# --- records ----------------------------------------------------------------------------------------------------------------------


async def refused(log: Log, partition: TopicPartition, batch: Batch) -> Exception:
    producer = await log.producer(client_id="p")
    with pytest.raises(ProduceFailed) as failed:
        await producer.send([Outgoing(partition, batch)])
    await producer.close()
    assert set(failed.value.errors) == {partition}
    return failed.value.errors[partition]


async def test_topics_of_kafka_itself_take_no_records(log: Log) -> None:
    """Only the log itself writes committed offsets of groups and transactions."""
    await join(log, group_name())  # there are none before
    for name in ("__consumer_offsets", "__transaction_state"):
        assert isinstance(await refused(log, TopicPartition(name, 0), Batch([b"k"], [b"v"], [0])), LogError)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_compacted_topics_take_no_records_without_a_key(log: Log, policy: str) -> None:
    """By InvalidRecord, also when they are deleted from as well; nothing of the batch is written."""
    (partition,) = await new_topic(log, cleanup_policy=policy)
    assert isinstance(await refused(log, partition, Batch([b"k", None], [b"v", b"v"], [0, 0])), InvalidRecord)
    assert await values_of(log, partition) == []


async def test_topics_take_times_within_the_bounds_that_they_are_given(log: Log) -> None:
    """A batch with a time too far from now, before or after, is refused; negative times, and a time that is not known (-1), are taken."""
    now = time.time_ns() // 1_000_000
    (past,) = await new_topic(log, message_timestamp_before_max_ms=str(HOUR_MS))
    (future,) = await new_topic(log, message_timestamp_after_max_ms=str(HOUR_MS))
    for partition, wrong in ((past, now - 2 * HOUR_MS), (future, now + 2 * HOUR_MS)):
        assert isinstance(await refused(log, partition, Batch([b"k", b"k"], [b"v", b"v"], [now, wrong])), LogError)
        assert await values_of(log, partition) == []
    producer = await log.producer(client_id="p")
    await producer.send([Outgoing(past, Batch([b"k", b"k"], [b"a", b"b"], [now, -1])), Outgoing(future, Batch([b"k"], [b"c"], [-5]))])
    assert await values_of(log, past) == [b"a", b"b"]
    assert await values_of(log, future) == [b"c"]


async def test_a_topic_may_have_records_take_the_time_at_which_they_are_written(log: Log) -> None:
    """By message.timestamp.type=LogAppendTime, with any time of their own."""
    before = time.time_ns() // 1_000_000
    (partition,) = await new_topic(log, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1")
    await (await log.producer(client_id="p")).send([Outgoing(partition, Batch([b"k", b"k"], [b"a", b"b"], [5, -5]))])
    fetcher = log.fetcher(client_id="r", isolation=UNCOMMITTED)
    fetcher.assign({partition: 0})
    found = (await fetch_one(fetcher)).batch.timestamps
    assert len(found) == 2
    assert all(before <= time_ms <= time.time_ns() // 1_000_000 for time_ms in found)


async def test_records_are_deleted_up_to_offsets_that_there_are(log: Log) -> None:
    """-1 stands for the end; other offsets that are not there are OffsetOutOfRange, and nothing is deleted."""
    (partition,) = await new_topic(log)
    await write(await log.producer(client_id="p"), partition, b"a", b"b")
    for offset in (-2, 3):
        with pytest.raises(OffsetOutOfRange):
            await log.delete_records({partition: offset})
    assert len(await read_all(log, partition)) == 2
    await log.delete_records({partition: -1})
    assert await log.begin_offsets([partition]) == {partition: 2}


# --- offsets and transactions -----------------------------------------------------------------------------------------------------


async def test_offsets_that_cannot_be_committed_are_refused(log: Log) -> None:
    """Of topics that are not there, and with metadata of more than 4,096 characters; with a transaction, that is void then."""
    (partition,) = await new_topic(log)
    member = await join(log, group_name(), partition.topic)
    await assigned(member)
    producer = await log.transactional_producer(f"x-{uuid.uuid4().hex}", client_id="p", timeout_ms=60_000)
    bad = [({TopicPartition("nowhere", 0): OffsetAndMetadata(1)}, UnknownTopicOrPartition), ({partition: OffsetAndMetadata(1, "x" * 4097)}, LogError)]
    for offsets, kind in bad:
        with pytest.raises(kind):
            await member.commit(offsets)
        await write(producer, partition, b"void")
        with pytest.raises(kind):
            await producer.commit(offsets, member.group)
        await producer.abort()
    assert await member.committed([partition]) == {}
    assert await values_of(log, partition) == []
    largest = OffsetAndMetadata(1, "x" * 4096)
    await member.commit({partition: largest})
    assert await member.committed([partition]) == {partition: largest}
    await member.close()


async def test_members_of_other_generations_commit_nothing(log: Log) -> None:
    """Neither one that has never been, nor one of an older generation; a transaction that they commit by is void."""
    (partition,) = await new_topic(log)
    member = await join(log, group_name(), partition.topic)
    await assigned(member)
    producer = await log.transactional_producer(f"x-{uuid.uuid4().hex}", client_id="p", timeout_ms=60_000)
    group = member.group
    for wrong in (GroupMetadata(group.group_id, group.generation, "nobody"), GroupMetadata(group.group_id, group.generation + 1, group.member_id)):
        await write(producer, partition, b"void")
        with pytest.raises(IllegalGeneration):
            await producer.commit({partition: OffsetAndMetadata(1)}, wrong)
        await producer.abort()
    assert await values_of(log, partition) == []
    await member.close()


async def test_transactional_ids_and_timeouts_that_cannot_be_are_refused(log: Log) -> None:
    """An id has a name, and a timeout is more than 0. The limit of brokers (transaction.max.timeout.ms) is for each cluster to set."""
    for name, timeout_ms in (("", 1_000), ("x", 0), ("x", -1)):
        with pytest.raises(LogError):
            await log.transactional_producer(name, client_id="p", timeout_ms=timeout_ms)
    await (await log.transactional_producer(f"x-{uuid.uuid4().hex}", client_id="p", timeout_ms=900_000)).close()


async def test_a_producer_that_was_overtaken_writes_and_ends_nothing(log: Log) -> None:
    """The newer one of its id fences it, and voids its open transaction."""
    (partition,) = await new_topic(log)
    name = f"x-{uuid.uuid4().hex}"
    old = await log.transactional_producer(name, client_id="old", timeout_ms=60_000)
    await write(old, partition, b"void")
    new = await log.transactional_producer(name, client_id="new", timeout_ms=60_000)
    with pytest.raises((Fenced, TransactionAborted, ProduceFailed)):
        await write(old, partition, b"late")
    with pytest.raises(Fenced):
        await old.commit({}, NOBODY)
    await write(new, partition, b"good")
    await new.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"good"]


async def test_partitions_that_are_not_there_are_refused(log: Log) -> None:
    """In any request: to write, to look up, to delete records of."""
    (partition,) = await new_topic(log)
    for nowhere in (TopicPartition(partition.topic, 1), TopicPartition(partition.topic, -1), TopicPartition("nowhere", 0)):
        producer = await log.producer(client_id="p")
        with pytest.raises(ProduceFailed) as failed:
            await producer.send([outgoing(nowhere, b"v")])
        assert isinstance(failed.value.errors[nowhere], UnknownTopicOrPartition)
        for call in (log.begin_offsets([nowhere]), log.end_offsets([nowhere], UNCOMMITTED), log.offsets_for_times({nowhere: 0})):
            with pytest.raises(UnknownTopicOrPartition):
                await call
