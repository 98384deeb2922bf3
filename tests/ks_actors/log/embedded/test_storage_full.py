"""The embedded log when there is no room: a limit on the size of files stands for a full disk."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ks_actors._errors import LogError, ProduceFailed, StorageFull, TransactionAborted
from ks_actors.log import NewTopic, OffsetAndMetadata, TopicPartition
from ks_actors.log.embedded import EmbeddedLog, _rocks
from tests.ks_actors.log.helpers import COMMITTED, NOBODY, UNCOMMITTED, Clock, new_topic, outgoing, read_all, values_of, write


@contextmanager
def full(directory: Path, room: int = 0) -> Iterator[None]:
    """Let no file of the process grow beyond the present size of the log's files, and `room` bytes more."""
    with limited(max(path.stat().st_size for path in directory.glob("*.log")) + room):
        yield


@contextmanager
def limited(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    async with EmbeddedLog(tmp_path) as made:
        yield made


# The second one lets a part of what is written reach the disk.
@pytest.mark.parametrize("room", [0, 100])
async def test_mismatching_rows_are_absent(log: EmbeddedLog, tmp_path: Path, room: int) -> None:
    """Nothing is acknowledged, readers see the earlier records, and the next send after there is room goes on as if nothing had been."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    with full(tmp_path, room):
        for _ in range(2):
            with pytest.raises(ProduceFailed) as failed:
                await write(producer, partition, b"b" * 1000)
            assert isinstance(failed.value.errors[partition], StorageFull)
            assert await values_of(log, partition) == [b"a"]
            assert await log.end_offsets([partition], UNCOMMITTED) == {partition: 1}
    assert await write(producer, partition, b"c") == 2
    assert await values_of(log, partition) == [b"a", b"c"]
    await log.close()
    async with EmbeddedLog(tmp_path) as again:
        assert await values_of(again, partition) == [b"a", b"c"]


@pytest.mark.parametrize("room", [0, 50])
async def test_a_commit_that_does_not_fit_may_be_repeated(log: EmbeddedLog, tmp_path: Path, room: int) -> None:
    """The transaction is as open as before: neither records nor offsets are visible."""
    partitions = await new_topic(log, 2)
    producer = await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
    await producer.send([outgoing(partition, b"a") for partition in partitions])
    offsets = {partitions[0]: OffsetAndMetadata(5)}
    with full(tmp_path, room):
        for _ in range(2):
            with pytest.raises(StorageFull):
                await producer.commit(offsets, NOBODY)
            assert await log.end_offsets(partitions, COMMITTED) == dict.fromkeys(partitions, 0)
    await producer.commit(offsets, NOBODY)
    for partition in partitions:
        assert await read_all(log, partition) == [(0, b"k", b"a")]


async def test_an_abort_that_does_not_fit_may_be_repeated(log: EmbeddedLog, tmp_path: Path) -> None:
    """A void transaction stays so, with any calls of the producer; a new producer of the id cannot come either."""
    (partition,) = await new_topic(log)
    producer = await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
    await write(producer, partition, b"a")
    with full(tmp_path):
        with pytest.raises(ProduceFailed):
            await write(producer, partition, b"b")
        with pytest.raises(StorageFull):
            await producer.commit({}, NOBODY)
        with pytest.raises(StorageFull):
            await producer.abort()
        with pytest.raises(TransactionAborted):
            await write(producer, partition, b"c")
        with pytest.raises(StorageFull):
            await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
        with pytest.raises(StorageFull):
            await log.transactional_producer("y", client_id="p", timeout_ms=60_000)
    await producer.abort()
    await write(producer, partition, b"d")
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"d"]


@pytest.mark.usefixtures("actors_seed")
async def test_a_transaction_whose_time_is_over_is_aborted_when_there_is_room(
    log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it can be neither committed nor seen."""
    (partition,) = await new_topic(log)
    producer = await log.transactional_producer("x", client_id="p", timeout_ms=1000)
    await write(producer, partition, b"a")
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    with full(tmp_path):
        assert list(await fetcher.fetch(max_wait_ms=1500)) == []
        with pytest.raises(StorageFull):
            await producer.commit({}, NOBODY)
    assert "transaction of x has timed out, but could not be aborted yet: no room" in caplog.text
    (fetched,) = await fetcher.fetch(max_wait_ms=1500)
    assert len(fetched.batch) == 0
    with pytest.raises(TransactionAborted):
        await producer.commit({}, NOBODY)


async def test_a_refused_commit_is_void_even_if_that_cannot_be_written(log: EmbeddedLog, tmp_path: Path) -> None:
    """IllegalGeneration comes first; closing the producer leaves the rest to the next owner of the id."""
    (partition,) = await new_topic(log)
    producer = await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
    await write(producer, partition, b"a")
    with full(tmp_path):
        with pytest.raises(LogError, match="there is no nowhere-0"):
            await producer.commit({TopicPartition("nowhere", 0): OffsetAndMetadata(1)}, NOBODY)
        await producer.close()
    await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
    assert await values_of(log, partition) == []
    assert await log.end_offsets([partition], COMMITTED) == {partition: 2}


async def test_topics_need_room_as_well(log: EmbeddedLog, tmp_path: Path) -> None:
    """Topics that could not be created are not there, those that could not be deleted still are, and so are records."""
    (partition,) = await new_topic(log, cleanup_policy="compact")
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    await write(producer, partition, b"b")
    with full(tmp_path):
        with pytest.raises(StorageFull):
            await log.create_topics([NewTopic("new", 1)])
        with pytest.raises(StorageFull):
            await log.delete_topics([partition.topic])
        with pytest.raises(StorageFull):
            await log.delete_records({partition: 1})
        with pytest.raises(StorageFull):
            await log.compact()
        assert await values_of(log, partition) == [b"a", b"b"]
        assert set(await log.describe_topics()) == {partition.topic}
    await log.compact()
    await log.create_topics([NewTopic("new", 1)])
    assert await values_of(log, partition) == [b"b"]
    assert set(await log.describe_topics()) == {partition.topic, "new"}


async def test_records_that_could_not_be_wiped_are_not_read(log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are deleted once the begin of the partition is written; the rest is done when the log is opened again."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    await write(producer, partition, b"b")
    # Enough for where the partition begins, and not for more.
    with full(tmp_path, 70):
        await log.delete_records({partition: 1})
    assert "keeps deleted records" in caplog.text
    assert await values_of(log, partition) == [b"b"]
    await write(producer, partition, b"c")
    await log.close()
    async with EmbeddedLog(tmp_path) as again:
        assert await values_of(again, partition) == [b"b", b"c"]


async def test_a_log_can_be_closed_without_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Acknowledged records are there when it is opened again; without room it cannot be opened, and the error says so."""
    log = EmbeddedLog(tmp_path, clock=Clock())
    await log.start()
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a" * 100_000)
    with full(tmp_path):
        with pytest.raises(ProduceFailed):
            await write(producer, partition, b"b")
        await log.close()
        assert "was closed, but its memory could not be flushed" in caplog.text
    with limited(10), pytest.raises(StorageFull):
        await EmbeddedLog(tmp_path).start()
    async with EmbeddedLog(tmp_path) as again:
        assert await values_of(again, partition) == [b"a" * 100_000]


@pytest.mark.parametrize(("content", "message"), [("nonsense", "is damaged"), ("MANIFEST-009999\n", "could not be opened")])
async def test_a_log_that_cannot_be_opened_again_says_so(log: EmbeddedLog, tmp_path: Path, content: str, message: str) -> None:
    """After a failed write it must be reopened; until that works it neither reads nor writes, and then it goes on with the acknowledged records."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    with full(tmp_path), pytest.raises(ProduceFailed):
        await write(producer, partition, b"b")
    current = tmp_path / "CURRENT"
    proper = current.read_text()
    current.write_text(content)
    for _ in range(2):
        with pytest.raises(ProduceFailed, match=message):
            await write(producer, partition, b"b")
    current.write_text(proper)
    assert await write(producer, partition, b"c") == 2
    assert await values_of(log, partition) == [b"a", b"c"]


async def test_a_log_that_could_not_be_opened_again_can_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are not in memory cannot be read meanwhile."""
    monkeypatch.setattr(_rocks, "_RECENT_BYTES", 0)
    async with EmbeddedLog(tmp_path) as log:
        one, two = await new_topic(log, 2)
        producer = await log.producer(client_id="p")
        await write(producer, one, b"a")
        await write(producer, two, b"b")
        with full(tmp_path), pytest.raises(ProduceFailed):
            await write(producer, two, b"c")
        current = tmp_path / "CURRENT"
        content = current.read_text()
        current.write_text("nonsense")
        with pytest.raises(ProduceFailed):
            await write(producer, two, b"c")
        with pytest.raises(LogError, match="is not open"):
            await values_of(log, one)
        current.write_text(content)
    async with EmbeddedLog(tmp_path) as log:
        assert await values_of(log, one) == [b"a"]
        assert await values_of(log, two) == [b"b"]
