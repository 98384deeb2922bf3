"""The embedded log in a directory: its content when it is opened again."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from ks_actors._errors import Fenced, LogCorrupted, LogError
from ks_actors.log import NewTopic, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog, _codec, _rocks
from ks_actors.records._batch import Batch, Headers
from tests.ks_actors.log.helpers import (
    COMMITTED,
    NOBODY,
    UNCOMMITTED,
    Clock,
    abandon,
    assigned,
    batch,
    fetch_one,
    join,
    new_topic,
    outgoing,
    read_all,
    values_of,
    write,
)
from tests.waiting import until


async def test_everything_is_there_again(tmp_path: Path) -> None:
    """Topics and their settings, records as they were, the bounds of partitions, and the committed offsets of groups."""
    headers: list[Headers] = [(("a", b"1"), ("a", None)), ()]
    async with EmbeddedLog(tmp_path) as log:
        await log.create_topics([NewTopic("t", 2, {"cleanup.policy": "compact"}), NewTopic("gone", 1), NewTopic("cut", 1)])
        producer = await log.transactional_producer("x", client_id="p", timeout_ms=1000)
        one, cut, gone = TopicPartition("t", 1), TopicPartition("cut", 0), TopicPartition("gone", 0)
        await producer.send([Outgoing(one, Batch([b"k", b"l"], [None, b"v"], [5, 4], headers)), outgoing(cut, b"a", b"b"), outgoing(gone, b"a")])
        member = await join(log, "g", "t", "gone")
        await assigned(member)
        await producer.commit({one: OffsetAndMetadata(2, "x"), gone: OffsetAndMetadata(1)}, member.group)
        await producer.send([outgoing(cut, b"c")])
        await producer.abort()
        await log.delete_records({cut: 1})
        await log.delete_topics(["gone"])
        await log.create_partitions({"cut": 3})
        await write(await log.producer(client_id="p"), TopicPartition("cut", 2), b"grown")
    async with EmbeddedLog(tmp_path) as log:
        described = await log.describe_topics()
        assert {name: (topic.partitions, dict(topic.configs)) for name, topic in described.items()} == {
            "t": (2, {"cleanup.policy": "compact"}),
            "cut": (3, {}),
        }
        assert await values_of(log, TopicPartition("cut", 2)) == [b"grown"]
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign({one: 0})
        fetched = await fetch_one(fetcher)
        got = fetched.batch
        assert (got.keys, got.values, got.timestamps, got.headers) == ([b"k", b"l"], [None, b"v"], [5, 4], headers)
        assert (list(got.offsets), fetched.next_offset) == ([0, 1], 3)
        assert await read_all(log, cut) == [(1, b"k", b"b")]
        assert await read_all(log, cut, UNCOMMITTED) == [(1, b"k", b"b"), (3, b"k", b"c")]
        member = await join(log, "g", "t")
        assert await member.committed([one, gone]) == {one: OffsetAndMetadata(2, "x")}
        assert await log.offsets_for_times({one: 5, cut: 1}) == {one: 0, cut: 1}


async def test_nothing_is_taken_over_from_a_deleted_topic(tmp_path: Path) -> None:
    """A new topic never uses old ids, even when the log was opened again in between."""
    partition = TopicPartition("t", 0)
    for value in (b"a", b"b"):
        async with EmbeddedLog(tmp_path) as log:
            await log.create_topics([NewTopic("t", 1)])
            await write(await log.producer(client_id="p"), partition, value)
            assert await values_of(log, partition) == [value]
            await log.delete_topics(["t"])
    # The log's own record, and its name.
    assert sorted(Rdict(str(tmp_path), Options(raw_mode=True)).keys()) == [b"m", b"n"]


async def test_a_transaction_of_a_killed_process_stays_open(tmp_path: Path) -> None:
    """Until the next producer of the id comes, which aborts it; older epochs stay fenced."""
    log = EmbeddedLog(tmp_path)
    await log.start()
    (partition,) = await new_topic(log)
    plain = await log.producer(client_id="p")
    producers = [await log.transactional_producer(name, client_id="p", timeout_ms=60_000) for name in ("a", "b", "a")]
    await write(producers[2], partition, b"open")
    await write(producers[1], partition, b"done")
    await producers[1].commit({partition: OffsetAndMetadata(1)}, NOBODY)
    await write(plain, partition, b"plain")
    abandon(log)
    async with EmbeddedLog(tmp_path) as log:
        assert await values_of(log, partition) == []
        assert await values_of(log, partition, UNCOMMITTED) == [b"open", b"done", b"plain"]
        producer = await log.transactional_producer("a", client_id="p", timeout_ms=60_000)
        assert await values_of(log, partition) == [b"done", b"plain"]
        await write(producer, partition, b"more")
        await producer.commit({}, NOBODY)
        newer = await log.transactional_producer("a", client_id="p", timeout_ms=60_000)
        with pytest.raises(Fenced, match="is in epoch 3, but producer p is of epoch 2"):
            await producer.abort()
        await newer.abort()
        assert await values_of(log, partition) == [b"done", b"plain", b"more"]


@pytest.mark.usefixtures("actors_seed")  # this one is in virtual time
async def test_an_open_transaction_ends_with_its_time(tmp_path: Path) -> None:
    """Counted anew from when the log was opened: nobody needs to come again for it."""
    log = EmbeddedLog(tmp_path)
    await log.start()
    (partition,) = await new_topic(log)
    await write(await log.transactional_producer("a", client_id="p", timeout_ms=5000), partition, b"a")
    abandon(log)
    async with EmbeddedLog(tmp_path) as log:
        await asyncio.sleep(4.9)
        assert await log.end_offsets([partition], COMMITTED) == {partition: 0}
        await asyncio.sleep(0.2)
        assert await log.end_offsets([partition], COMMITTED) == {partition: 2}
        assert await values_of(log, partition) == []


async def test_compacted_partitions_are_found_as_they_were_left(tmp_path: Path) -> None:
    """With their gaps, their end, and the time from which tombstones may go."""
    clock = Clock()
    async with EmbeddedLog(tmp_path, clock=clock) as log:
        (partition,) = await new_topic(log, cleanup_policy="compact", delete_retention_ms="1000")
        producer = await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
        for values in ((b"1", b"1"), (b"2", None), (b"3", None)):
            await producer.send([Outgoing(partition, batch(*values, keys=[b"a", b"b"]))])
            await producer.commit({}, NOBODY)
        await log.compact()
    async with EmbeddedLog(tmp_path, clock=clock) as log:
        assert await read_all(log, partition, UNCOMMITTED) == [(6, b"a", b"3"), (7, b"b", None)]
        assert await log.end_offsets([partition], COMMITTED) == {partition: 9}
        clock.now += 1000
        await log.compact()
        assert await read_all(log, partition) == [(6, b"a", b"3")]


async def test_records_are_read_from_disk_when_they_are_not_recent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds some megabytes of batches, and no more."""
    monkeypatch.setattr(_rocks, "_RECENT_BYTES", 5000)
    async with EmbeddedLog(tmp_path) as log:
        (partition,) = await new_topic(log)
        producer = await log.producer(client_id="p")
        for index in range(10):
            await write(producer, partition, b"%d" % index + b"x" * 1000)
        for _ in range(2):
            assert [(value or b"")[:1] for value in await values_of(log, partition)] == [b"%d" % index for index in range(10)]


async def test_a_directory_belongs_to_one_log_at_a_time(tmp_path: Path) -> None:
    """The second one gets an error with the remedy, in this process or in another one."""
    async with EmbeddedLog(tmp_path):
        second = EmbeddedLog(tmp_path)
        with pytest.raises(LogError, match="in use by another process, or by another log in this one"):
            await second.start()
        assert repr(second) == f"<EmbeddedLog in {tmp_path}, closed>"
        code = (
            "import asyncio, pathlib, sys\nfrom ks_actors.log.embedded import EmbeddedLog\n"
            "asyncio.run(EmbeddedLog(pathlib.Path(sys.argv[1])).start())"
        )
        done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False)
        assert b"LogError: the log in " in done.stderr
        assert b"is in use" in done.stderr
    async with EmbeddedLog(tmp_path):
        pass


async def test_a_file_cannot_be_opened_as_a_log(tmp_path: Path) -> None:
    """The error names the file in the way."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LogError, match="could not create the directory"):
            await EmbeddedLog(path).start()


async def test_a_log_of_another_format_is_not_touched(tmp_path: Path) -> None:
    """It says which format it is, and which one can be read."""
    async with EmbeddedLog(tmp_path):
        pass
    rdict = Rdict(str(tmp_path), Options(raw_mode=True))
    rdict[_codec.LOG] = _codec.encode(_codec.LogRecord(version=7))
    rdict.close()
    with pytest.raises(LogError, match="is of format 7, but this version reads format 1"):
        await EmbeddedLog(tmp_path).start()


@pytest.mark.parametrize(("damage", "message"), [(None, "has lost its records at offset 0"), (b"\x93", "the records at offset 0 cannot be read")])
async def test_damaged_records_are_told(tmp_path: Path, damage: bytes | None, message: str) -> None:
    """LogCorrupted says where; nobody gets half of them."""
    async with EmbeddedLog(tmp_path) as log:
        (partition,) = await new_topic(log)
        await write(await log.producer(client_id="p"), partition, b"a")
    rdict = Rdict(str(tmp_path), Options(raw_mode=True))
    key = _codec.records_key(0, 0, 0)
    if damage is None:
        del rdict[key]
    else:
        rdict[key] = damage
    rdict.close()
    async with EmbeddedLog(tmp_path) as log:
        with pytest.raises(LogCorrupted, match=message):
            await values_of(log, partition)


async def test_a_damaged_index_is_told(tmp_path: Path) -> None:
    """Opening raises LogCorrupted, and leaves the directory to others."""
    async with EmbeddedLog(tmp_path) as log:
        await new_topic(log)
    rdict = Rdict(str(tmp_path), Options(raw_mode=True))
    rdict[_codec.topic_key(0)] = b"\x93"
    rdict.close()
    for _ in range(2):
        with pytest.raises(LogCorrupted, match="a TopicRecord of the log cannot be read"):
            await EmbeddedLog(tmp_path).start()


def damage(path: Path, part: float) -> None:
    """Overwrite some bytes, at a part of the file's length."""
    data = bytearray(path.read_bytes())
    start = int(len(data) * part)
    data[start : start + 20] = bytes(20)
    path.write_bytes(data)


@pytest.mark.parametrize(("kind", "part"), [("*.blob", 0.5), ("*.sst", 0.1), ("*.sst", 0.6)], ids=["large", "small", "index"])
async def test_damaged_files_are_told(tmp_path: Path, kind: str, part: float) -> None:
    """RocksDB notices when it reads; no reader takes damage for the end of the log."""
    async with EmbeddedLog(tmp_path) as log:
        (partition,) = await new_topic(log)
        producer = await log.producer(client_id="p")
        for index in range(300):
            await write(producer, partition, random.Random(index).randbytes(20))
        await write(producer, partition, b"x" * 10_000)
    (path,) = await asyncio.to_thread(lambda: list(tmp_path.glob(kind)))
    damage(path, part)
    with pytest.raises(LogCorrupted, match="is damaged: Corruption"):
        await read_damaged(tmp_path, partition)


async def read_damaged(directory: Path, partition: TopicPartition) -> None:
    async with EmbeddedLog(directory) as log:
        await values_of(log, partition)


async def test_records_that_could_not_be_wiped_are_wiped_later(tmp_path: Path) -> None:
    """Entries of deleted topics, and before the begin of a partition, are not left for ever."""
    async with EmbeddedLog(tmp_path) as log:
        (partition,) = await new_topic(log)
        producer = await log.producer(client_id="p")
        for value in (b"a", b"b", b"c"):
            await write(producer, partition, value)
    rdict = Rdict(str(tmp_path), Options(raw_mode=True))
    entry, records = rdict[_codec.entry_key(0, 0, 0)], rdict[_codec.records_key(0, 0, 0)]
    rdict[_codec.bounds_key(0, 0)] = _codec.encode_bounds(2, 3)
    rdict[_codec.entry_key(5, 0, 0)] = entry
    rdict[_codec.records_key(5, 0, 0)] = records
    rdict.close()
    async with EmbeddedLog(tmp_path) as log:
        assert await read_all(log, partition) == [(2, b"k", b"c")]
    rdict = Rdict(str(tmp_path), Options(raw_mode=True))
    keys: list[Any] = [key for key in rdict.keys() if str(key)[:3] in {"b'i", "b'b"}]  # noqa: SIM118 - an Rdict is no dict
    assert keys == [_codec.records_key(0, 0, 2), _codec.entry_key(0, 0, 2)]
    rdict.close()


async def until_free(directory: Path) -> None:
    """Wait until nobody has a log's directory."""

    async def free() -> bool:
        try:
            async with EmbeddedLog(directory):
                return True
        except LogError:
            return False

    await until(free)


async def test_a_cancelled_start_leaves_the_directory_to_others(tmp_path: Path) -> None:
    """A log that opens in a thread is closed when it is open."""
    starting = asyncio.ensure_future(EmbeddedLog(tmp_path).start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.get_running_loop().run_in_executor(None, int)
    await until_free(tmp_path)


async def test_a_cancelled_close_closes_all_the_same(tmp_path: Path) -> None:
    """The thread goes on with it."""
    log = EmbeddedLog(tmp_path)
    await log.start()
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await until_free(tmp_path)
