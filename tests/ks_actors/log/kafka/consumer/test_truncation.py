"""A log that has lost records that were read: the reader hears of it, and goes on with the first record that it has not read (KIP-101, KIP-320)."""

from __future__ import annotations

import asyncio
import logging
import shutil
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import InstanceState, LogError, LogTruncated, OffsetOutOfRange
from ks_actors.log import IsolationLevel, OffsetAndMetadata, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.admin._committed_offsets import fetch_committed
from ks_actors.log.kafka.client import EpochHistory, LeaderEpochs
from ks_actors.log.kafka.consumer._partition_reader import Budget, PartitionReader
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import counting, ended
from tests.kafka.helpers import connect
from tests.kafka.tampering import Tampering, fetch_answer, fetch_code
from tests.ks_actors.log.helpers import assigned, fetch_one, group_name, new_topic, write
from tests.ks_actors.log.kafka.consumer.test_fetch_faults import filled, reading
from tests.ks_actors.log.kafka.group.test_membership import enter
from tests.ks_actors.log.kafka.wire.test_record_reader import chunk, stored
from tests.waiting import soon, until

PARTITION = TopicPartition("topic", 0)


def epoch_end(log: list[int], epoch: int) -> tuple[int, int]:
    """Return what a leader answers: the largest of its epochs up to this one, and where that ends."""
    behind = bisect_right(log, epoch)
    return (log[behind - 1], behind) if behind else (epoch, 0)


def history(start: int, *chunks: tuple[int, list[tuple[int, int]]]) -> EpochHistory:
    """Return the history of a reader that began at an offset and read chunks: the end of each, and its epochs."""
    made = EpochHistory()
    made.begin(start, -1)
    for end, epochs in chunks:
        made.note(made.end, end, epochs)
    return made


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=1, max_size=30), st.data())
def test_the_first_other_record_is_found(steps: list[tuple[int, bool]], data: st.DataObject) -> None:
    """From the leader's answer and the epochs of what was read, also where compaction has left gaps; a log that has only grown never differs."""
    before = [sum(step for step, _ in steps[: at + 1]) for at in range(len(steps))]
    there = [at for at, (_, kept) in enumerate(steps) if kept]
    start = data.draw(st.integers(0, len(before) - 1))
    made = history(start)
    left = [at for at in there if at >= start]
    while left:
        count = data.draw(st.integers(1, len(left)))
        batches, left = left[:count], left[count:]
        epochs, behind = [(0, before[batches[0]])], 0
        for at in batches:
            if epochs[-1][1] != before[at]:
                epochs.append((behind, before[at]))
            behind = at + 1
        made.note(made.end, behind, epochs)
    for at in range(start + 1, made.end + 1):
        # That of the record before, or of the first one behind a gap.
        assert made.before(at) == before[next(one for one in there if one >= at - 1)]
    at = made.end
    last = made.before(at)
    if last < 0:
        return
    common = data.draw(st.integers(0, len(before)))
    more = 0
    if 0 < common < len(before) and before[common] > before[common - 1]:
        # The other leader went on in the epoch that ended here.
        more = data.draw(st.integers(0, 5))
    newer = data.draw(st.lists(st.integers(0, 1), max_size=30))
    now = [*before[:common], *before[common - 1 : common] * more, *(before[-1] + 1 + sum(newer[: one + 1]) for one in range(len(newer)))]
    epoch, end = epoch_end(now, last)
    if common >= at:
        assert end >= at
    elif end < at:
        found = made.diverges_at(epoch, end)
        if found > common:
            assert common < start
            assert found <= at
        # Only what compaction has removed may be passed over once more.
        assert not [one for one in there if max(found, start) <= one < common]


def test_epochs_of_offsets_that_were_not_read_are_unknown() -> None:
    """Of those behind the last record, of the first one, and of all in a format without epochs."""
    made = history(5, (10, [(0, 2), (8, 3)]))
    assert [made.before(at) for at in (4, 5, 6, 8, 9, 10, 11)] == [-1, -1, 2, 2, 3, 3, -1]
    made.note(10, 12, [(0, 3)])
    assert made.before(12) == 3
    made.cut(9)
    assert [made.before(at) for at in (8, 9, 10)] == [2, 3, -1]
    made.note(20, 22, [(0, 3)])
    assert [made.before(at) for at in (9, 12, 21)] == [-1, -1, 3]
    made.note(22, 23, [(0, -1)])
    assert made.before(21) == -1


def test_old_epochs_are_forgotten() -> None:
    """A partition keeps no more than the last 16."""
    made = history(0, *((number + 1, [(0, number)]) for number in range(100)))
    assert [made.before(at) for at in (83, 84, 85, 100)] == [-1, -1, 84, 99]


def test_a_committed_offset_brings_its_epoch() -> None:
    """Without a word from the coordinator nothing is known; readers of a partition do not disturb each other."""
    epochs = LeaderEpochs()
    assert epochs.before(PARTITION, 7) == -1
    epochs.note_committed(PARTITION, 7, 4)
    assert epochs.of({PARTITION: OffsetAndMetadata(7)}) == {PARTITION: 4}
    one = epochs.add(PARTITION, 7)
    other = epochs.add(PARTITION, 0)
    other.note(0, 2, [(0, 1)])
    assert (one.before(7), other.before(7), epochs.before(PARTITION, 2)) == (4, -1, 1)
    one.note(7, 9, [(0, 5)])
    epochs.note_committed(PARTITION, 7, -1)
    assert [epochs.before(PARTITION, at) for at in (7, 8, 9)] == [4, 5, 5]
    epochs.remove(PARTITION, other)
    epochs.remove(PARTITION, one)
    epochs.remove(PARTITION, one)
    assert [epochs.before(PARTITION, at) for at in (2, 8, 9, 10)] == [-1, 5, 5, -1]
    epochs.note_committed(PARTITION, 10, 6)
    assert epochs.before(PARTITION, 10) == 6
    epochs.forget(PARTITION)
    assert [epochs.before(PARTITION, at) for at in (9, 10)] == [-1, -1]


async def test_readers_that_have_ended_are_forgotten(log: KafkaLog) -> None:
    """Partitions that are given up, and those of a closed fetcher, leave no history of a reader behind; the last offsets may still be committed."""
    partition = await filled(log)
    epochs = log._client.epochs
    for close in (False, True):
        fetcher = reading(log, partition)
        await soon(fetch_one(fetcher))
        if close:
            await fetcher.close()
        fetcher.assign({})
        assert partition not in epochs._histories
        assert epochs.before(partition, 2) >= 0


def test_lost_records_leave_no_epochs_behind() -> None:
    """A reader that is set to an offset that it had read of the old log asks for it without an epoch: otherwise it would be refused for ever."""
    epochs = LeaderEpochs()
    reader = PartitionReader(PARTITION, 0, Budget(1 << 30), epochs, lambda _: None)
    assert reader.add(chunk(*(led(7, stored(base, b"v")) for base in range(150))))
    epochs.note_committed(PARTITION, 100, 7)
    assert reader.epoch == 7
    # Nobody has heard of a loss yet: the broker has to be asked with the epoch again.
    reader.move(100)
    assert reader.epoch == 7
    reader.note_lost(20)
    assert (reader.epoch, epochs.before(PARTITION, 100)) == (7, 7)
    reader.move(20)
    assert (reader.epoch, epochs.before(PARTITION, 100)) == (7, -1)
    reader.move(100)
    assert reader.epoch == -1


@pytest.mark.parametrize("kernel", [True, False])
def test_a_chunk_knows_the_epochs_of_its_batches(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one, and where each begins."""
    if not kernel:
        monkeypatch.setattr("ks_actors.log.kafka.wire._record_reader.HAS_KERNEL", False)

    one = chunk(led(3, stored(4, b"a", b"b")), led(3, stored(6, b"c")))
    assert (one.leader_epoch, one.epoch_starts()) == (3, [(0, 3)])
    several = chunk(led(3, stored(4, b"a", b"b")), led(3, stored(6, b"c")), led(7, stored(9, b"d")))
    assert (several.leader_epoch, several.epoch_starts()) == (7, [(0, 3), (7, 7)])


def led(epoch: int, raw: bytes) -> bytes:
    """Return a batch as the leader of an epoch writes it."""
    return raw[:12] + epoch.to_bytes(4, "big") + raw[16:]


def diverging(epoch: int, end: int) -> Any:
    def change(partition: list[Any]) -> None:
        partition[-2:] = (epoch, end), b""

    return fetch_answer(change)


def ends_at(offset: int) -> Any:
    """Return an answer to a look-up of offsets that says this one."""

    def fault(response: Any) -> Any:
        ((topic, ((number, code, time, _, *rest),)),) = response.topics
        response.topics = [(topic, [(number, code, time, offset, *rest)])]
        return response

    return fault


async def test_a_reader_hears_where_the_log_differs(log: KafkaLog, tampering: Tampering) -> None:
    """Again at each fetch until it moves; there it reads what the log has now. One such answer may be that of a broker that no longer leads."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("Fetch", diverging(0, 1))
    fetcher.seek(partition, 2)
    assert (await soon(fetch_one(fetcher))).batch.values == [b"c"]
    tampering.add("Fetch", *[diverging(0, 1)] * 9)
    fetcher.seek(partition, 2)
    for _ in range(2):
        with pytest.raises(LogTruncated, match="has lost records from offset 1 on that were read before position 2") as raised:
            await soon(fetch_one(fetcher))
        error = raised.value
        assert (error.partition, error.position, error.begin, error.end, error.diverges_at) == (partition, 2, 0, 3, 1)
    tampering.clear()
    fetcher.seek(partition, 1)
    assert (await soon(fetch_one(fetcher))).batch.values == [b"b", b"c"]


async def test_a_log_that_ends_below_what_was_read_is_truncated(log: KafkaLog, tampering: Tampering) -> None:
    """At the first answer; the policy for offsets that are gone would leave out what is written meanwhile."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("Fetch", diverging(0, 1))
    tampering.add("Offset", ends_at(0), ends_at(1))
    fetcher.seek(partition, 2)
    with pytest.raises(LogTruncated) as raised:
        await soon(fetch_one(fetcher))
    assert (raised.value.position, raised.value.end, raised.value.diverges_at) == (2, 1, 1)
    assert tampering.left == 0


async def test_a_leader_without_records_has_lost_all(log: KafkaLog, tampering: Tampering) -> None:
    """It knows no epoch, and answers that the offset is out of range; when records come meanwhile, the next answer tells."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("Fetch", fetch_code(1))
    tampering.add("Offset", ends_at(0), ends_at(0))
    fetcher.seek(partition, 2)
    with pytest.raises(LogTruncated) as raised:
        await soon(fetch_one(fetcher))
    assert (raised.value.position, raised.value.end, raised.value.diverges_at) == (2, 0, 0)
    assert tampering.left == 0
    await fetcher.close()  # it would take the next answers
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("Fetch", fetch_code(1), diverging(0, 1))
    tampering.add("Offset", *[ends_at(end) for end in (0, 1, 0, 1)])
    fetcher.seek(partition, 2)
    with pytest.raises(LogTruncated) as raised:
        await soon(fetch_one(fetcher))
    assert (raised.value.position, raised.value.end, raised.value.diverges_at) == (2, 1, 1)
    assert tampering.left == 0
    # Of an offset that was only sought, nobody can say that its records were lost.
    fetcher.seek(partition, 9)
    with pytest.raises(OffsetOutOfRange) as beyond:
        await soon(fetch_one(fetcher))
    assert not isinstance(beyond.value, LogTruncated)


async def test_a_record_that_compaction_has_removed_is_not_lost(log: KafkaLog, tampering: Tampering) -> None:
    """The leader may not know its epoch then: it answers with an earlier one, which ends at the offset or behind it."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("Fetch", diverging(0, 2))
    fetcher.seek(partition, 2)
    assert (await soon(fetch_one(fetcher))).batch.values == [b"c"]
    assert tampering.left == 0


async def test_a_leader_that_does_not_know_the_epoch_has_another_log(log: KafkaLog, tampering: Tampering) -> None:
    """It answers that the offset is out of range, which it is not; once it may be a leader that is new."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("Fetch", fetch_code(1))
    fetcher.seek(partition, 2)
    assert (await soon(fetch_one(fetcher))).batch.values == [b"c"]
    tampering.add("Fetch", fetch_code(1), fetch_code(1))
    fetcher.seek(partition, 1)
    with pytest.raises(LogTruncated, match="has lost records that were read before position 1") as raised:
        await soon(fetch_one(fetcher))
    assert raised.value.diverges_at is None


async def test_offsets_are_committed_with_the_epoch_before(own_broker: Broker) -> None:
    """Which a later reader of the group sends along; of an offset that was not read there is none."""
    log = await connect(own_broker)
    (partition,) = await new_topic(log)
    own_broker.restart()
    await soon(write(await log.producer(client_id="p"), partition, b"a", b"b"))
    group = group_name()
    member = await enter(log, group, partition.topic)
    await assigned(member)
    fetcher = reading(log, partition)
    await soon(fetch_one(fetcher))
    await member.commit({partition: OffsetAndMetadata(2)})
    await member.leave()
    other = await connect(own_broker)
    assert other._client.epochs.before(partition, 2) == -1
    await fetch_committed(other._client, group, [partition])
    epoch = other._client.epochs.before(partition, 2)
    assert epoch == log._client.epochs.before(partition, 2) > 0
    again = await enter(other, group, partition.topic)
    await assigned(again)
    await again.commit({partition: OffsetAndMetadata(1)})
    third = await connect(own_broker)
    await fetch_committed(third._client, group, [partition])
    assert third._client.epochs.before(partition, 1) == -1
    for each in (log, other, third):
        await each.close()


def lose_disk(broker: Broker, topic: str) -> None:
    """Have a broker that is stopped come back without the records of a topic."""
    found = [path for path in broker.directory.rglob(f"{topic}-*") if path.is_dir()]
    assert found
    for path in found:
        shutil.rmtree(path)


async def test_a_reader_goes_on_when_the_disk_was_lost(fresh_broker: Broker) -> None:
    """Also when more was written since than it had read: the offset alone would not tell."""
    log = await connect(fresh_broker)
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    fetcher.pause([partition])
    fresh_broker.stop()
    lose_disk(fresh_broker, partition.topic)
    fresh_broker.start()
    values = [b"%d" % number for number in range(9)]
    await soon(write(await log.producer(client_id="q"), partition, *values))
    fetcher.resume([partition])
    with pytest.raises(LogTruncated) as raised:
        await soon(fetch_one(fetcher))
    assert isinstance(raised.value, OffsetOutOfRange)
    assert (raised.value.diverges_at, raised.value.position, raised.value.end) == (0, 3, 9)
    fetcher.seek(partition, 0)
    assert (await soon(fetch_one(fetcher))).batch.values == values
    await log.close()


async def test_a_reader_hears_of_a_log_that_is_empty_now(fresh_broker: Broker) -> None:
    """Before anything is written, so that none of it is left out."""
    log = await connect(fresh_broker)
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    fresh_broker.stop()
    lose_disk(fresh_broker, partition.topic)
    fresh_broker.start()
    with pytest.raises(LogTruncated) as raised:
        await soon(fetch_one(fetcher))
    assert (raised.value.diverges_at, raised.value.position, raised.value.begin, raised.value.end) == (0, 3, 0, 0)
    await log.close()


async def test_records_that_nobody_has_read_are_not_deleted(fresh_broker: Broker) -> None:
    """By an offset of a log that was lost since, whether the reader knows of it or not; those of a log that has only grown are."""
    log = await connect(fresh_broker)
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    await log.delete_read({partition: 1})
    fresh_broker.restart()
    await soon(write(await log.producer(client_id="p"), partition, b"d"))
    assert len((await soon(fetch_one(fetcher))).batch) == 1
    for offset in (2, 3, 4, 4):
        await log.delete_read({partition: offset})
        assert await log.begin_offsets([partition]) == {partition: offset}
    # A leader that has nothing any more knows the epoch still.
    await asyncio.to_thread(fresh_broker.restart)
    await soon(log.delete_read({partition: 4}))
    fetcher.pause([partition])
    fresh_broker.stop()
    early = asyncio.create_task(log.delete_read({partition: 4}))
    lose_disk(fresh_broker, partition.topic)
    await asyncio.to_thread(fresh_broker.start)
    other = await connect(fresh_broker)
    await soon(write(await other.producer(client_id="q"), partition, *[b"new"] * 9))
    with pytest.raises(LogTruncated):
        await soon(early)
    lost = "has lost records from offset 0 on that were read before position 4: the log was truncated, and has offsets 0 to 9 now"
    with pytest.raises(LogTruncated, match=lost):
        await log.delete_read({partition: 4})
    fetcher.resume([partition])
    with pytest.raises(LogTruncated):
        await soon(fetch_one(fetcher))
    with pytest.raises(LogTruncated, match=lost):
        await log.delete_read({partition: 4})
    assert await log.begin_offsets([partition]) == {partition: 0}
    fetcher.seek(partition, 0)
    assert len((await soon(fetch_one(fetcher))).batch) == 9
    await log.delete_read({partition: 4})
    assert await log.begin_offsets([partition]) == {partition: 4}
    # Without a reader, nothing was read.
    await other.delete_read({partition: 9})
    assert await log.begin_offsets([partition]) == {partition: 4}
    for each in (log, other):
        await each.close()


async def test_a_rewind_before_anybody_hears_of_a_loss_meets_it_again(log: KafkaLog, tampering: Tampering) -> None:
    """Its offset has the epoch of the former log still; only the move behind the error goes on without."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("Fetch", *[diverging(0, 0)] * 9)
    fetcher.seek(partition, 2)
    source = fetcher._sources[partition]
    await until(lambda: source.error is not None)
    fetcher.seek(partition, 1)
    assert source.epoch >= 0
    with pytest.raises(LogTruncated, match="has lost records from offset 0 on that were read before position 1"):
        await soon(fetch_one(fetcher))
    tampering.clear()
    fetcher.seek(partition, 0)
    assert (await soon(fetch_one(fetcher))).batch.values == [b"a", b"b", b"c"]


async def test_a_loss_beside_records_of_another_partition_is_raised_next(log: KafkaLog) -> None:
    """Until then nobody knows of it: a rewind in between goes to an offset of the former log, with its epoch."""
    one, other = await filled(log), await filled(log)
    fetcher = log.fetcher(client_id="r", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({one: 0, other: 0})
    read: dict[TopicPartition, int] = {}
    while sum(read.values()) < 6:
        for fetched in await soon(fetcher.fetch(max_wait_ms=1_000)):
            read[fetched.partition] = read.get(fetched.partition, 0) + len(fetched.batch)
    await soon(write(await log.producer(client_id="q"), one, b"d"))
    await until(lambda: fetcher._sources[one].ready)
    source = fetcher._sources[other]
    source.error = LogTruncated(other, 3, 0, 9, 0)
    fetcher._ready[other] = None
    (fetched,) = await soon(fetcher.fetch(max_wait_ms=1_000))
    assert (fetched.partition, fetched.batch.values) == (one, [b"d"])
    epoch = source.epoch
    fetcher.seek(other, 2)
    assert source.epoch == epoch >= 0
    source.error = LogTruncated(other, 2, 0, 9, 0)
    fetcher._ready[other] = None
    with pytest.raises(LogTruncated):
        await soon(fetcher.fetch(max_wait_ms=1_000))
    fetcher.seek(other, 1)
    assert source.epoch == -1


async def test_a_deletion_is_tried_again(log: KafkaLog, tampering: Tampering) -> None:
    """When the leader cannot tell its epochs for a moment; any other error is raised, and nothing deleted."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("OffsetForLeaderEpoch", epoch_code(6), epoch_code(56))
    await log.delete_read({partition: 1})
    assert tampering.left == 0
    tampering.add("OffsetForLeaderEpoch", epoch_code(29))
    with pytest.raises(LogError, match=f"failed to look up the epoch of {partition}"):
        await log.delete_read({partition: 2})
    assert await log.begin_offsets([partition]) == {partition: 1}


def epoch_code(code: int) -> Any:
    """Return an answer to a look-up of epochs that has this error."""

    def fault(response: Any) -> Any:
        ((topic, ((_, number, _, _, *tags),), *more),) = response.topics
        response.topics = [(topic, [(code, number, -1, -1, *tags)], *more)]
        return response

    return fault


@pytest.mark.everyday
@pytest.mark.parametrize(
    ("guarantee", "running"),
    [
        (EXACTLY_ONCE, True),
        (AT_LEAST_ONCE, False),
        *(pytest.param(*one, marks=pytest.mark.extended) for one in [(EXACTLY_ONCE, False), (AT_LEAST_ONCE, True)]),
    ],
)
async def test_an_app_processes_what_was_written_since(
    fresh_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, guarantee: str, running: bool
) -> None:
    """All of it, whether it runs meanwhile or starts later, although its offsets lie within the new log; and it says so."""
    caplog.set_level(logging.WARNING)
    async with counting(fresh_broker, guarantee, tmp_path) as here:
        app = here.app("app", auto_offset_reset="latest" if running else "earliest")
        await app.start()
        await here.through()
        await app.commit()
        if not running:
            await app.close()
        fresh_broker.stop()
        lose_disk(fresh_broker, here.source)
        fresh_broker.start()
        await here.feed(30)
        if not running:
            app = here.app("app")
            await app.start()
        await here.counted()
        assert app.state is InstanceState.RUNNING
        assert sum("has lost records from offset 0 on" in record.getMessage() for record in caplog.records) == 2
        await app.close()


async def test_an_app_without_a_policy_ends(fresh_broker: Broker, tmp_path: Path) -> None:
    """It is for its owner to choose where to go on."""
    async with counting(fresh_broker, AT_LEAST_ONCE, tmp_path) as here:
        async with here.app("app") as app:
            await here.through()
            await app.commit()
        fresh_broker.stop()
        lose_disk(fresh_broker, here.source)
        fresh_broker.start()
        await here.feed(30)
        again = here.app("app", auto_offset_reset="none")
        await again.start()
        error = await ended(again)
        assert "has lost records from offset 0 on" in str(error)
        assert "auto_offset_reset is none" in str(error)
