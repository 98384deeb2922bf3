"""Threads decompress large fetches, and readers get the same records and errors as without."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors._errors import LogClosed, LogCorrupted
from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client import LeaderEpochs
from ks_actors.log.kafka.consumer._fetcher import Unpacking
from ks_actors.log.kafka.consumer._partition_reader import Budget, PartitionReader
from ks_actors.log.kafka.wire import _batch_header, _record_reader, _unpacking
from ks_actors.log.kafka.wire._batch_reader import Chunk, Columns
from ks_actors.log.kafka.wire._unpacking import unpacked
from tests.examples_of import examples
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect
from tests.ks_actors.log.helpers import new_topic, write
from tests.ks_actors.log.kafka.consumer.scripted import ScriptedBroker, fetching
from tests.ks_actors.log.kafka.wire.test_record_reader import stored
from tests.ks_actors.runtime.helpers import in_virtual_time
from tests.waiting import PATIENCE_S, soon

PARTITION = TopicPartition("topic", 0)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NOISE = b"".join(b"%d" % (number * number) for number in range(20_000))
PER_BATCH = 4


def values_at(base: int, size: int) -> list[bytes]:
    """Values that do not become much smaller."""
    return [NOISE[(base + number) % 500 :][:size] for number in range(PER_BATCH)]


def batches(count: int, size: int = 40_000, codec: int = GZIP) -> list[bytes]:
    return [stored(base, *values_at(base, size), codec=codec) for base in range(0, count * PER_BATCH, PER_BATCH)]


def apart(raw: Sequence[bytes]) -> Chunk:
    return Chunk(PARTITION, b"".join(raw), 1_000, None, apart=True)


def spoiled(raw: bytes) -> bytes:
    """Return a batch with other bytes, of which its checksum knows nothing."""
    begin = _batch_header.HEADER.size
    return raw[:begin] + b"\xff" * 40 + raw[begin + 40 :]


class Partition:
    """A partition with chunks that are decompressed apart."""

    def __init__(self, *chunks: Chunk, position: int = 0) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.on_records = asyncio.Event()
        self.unpacking = Unpacking(self._begin, None)
        self.budget = Budget(1 << 30)
        self.source = PartitionReader(PARTITION, position, self.budget, LeaderEpochs(), self._settle)
        for chunk in chunks:
            assert self.source.add(chunk)

    def _settle(self, source: PartitionReader) -> None:
        self.unpacking.start_next(source)
        if source.ready:
            self.on_records.set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def values(self, limit: int) -> list[bytes | None]:
        """Read all, so many records at a time."""
        found: list[bytes | None] = []
        while self.source.chunks:
            if not self.source.ready:
                assert self.source.read(limit) is None
                self.on_records.clear()
                await soon(self.on_records.wait())
            fetched = self.source.read(limit)
            found += [] if fetched is None else fetched.batch.values
        return found


def wanted(count: int, size: int = 40_000) -> list[bytes]:
    return [value for base in range(0, count * PER_BATCH, PER_BATCH) for value in values_at(base, size)]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return in which threads batches become bodies."""
    found: set[int] = set()
    body_of = _record_reader.body_of

    def noting(*args: Any) -> Any:
        found.add(threading.get_ident())
        return body_of(*args)

    monkeypatch.setattr(_unpacking, "body_of", noting)
    return found


@pytest.mark.parametrize("way", ["kernel", "aiokafka"])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("limit", [1, 3, 1_000])
async def test_much_is_decompressed_in_a_thread(codec: int, limit: int, way: str, threads: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Records come in their order, over pieces and chunks, with the kernel and without."""
    if way == "aiokafka":
        for module in (_record_reader, _batch_header):
            monkeypatch.setattr(module, "HAS_KERNEL", False)
    all_batches = batches(24, codec=codec)
    partition = Partition(apart(all_batches[:13]), apart(all_batches[13:]))
    assert not partition.source.ready
    assert await partition.values(limit) == wanted(24)
    assert threading.get_ident() not in threads
    assert threads


async def test_little_is_read_at_once(threads: set[int]) -> None:
    """A thread is not worth it for some ms, nor for uncompressed chunks."""
    little, plain = batches(1, 1_000), batches(4, codec=0)
    for raw in (little, plain):
        assert Partition(apart(raw)).source.ready
    mixed = Partition(apart([*batches(3), *(stored(base, b"v") for base in range(12, 20))]))
    assert await mixed.values(5) == [*wanted(3), *[b"v"] * 8]
    assert threading.get_ident() not in threads


async def test_no_more_is_decompressed_than_is_about_to_be_read() -> None:
    """A fetch that waits for its reader stays compressed but for one piece and the next one, so it takes little room."""
    raw = batches(80)
    chunk = apart(raw)
    partition = Partition(chunk)
    await asyncio.gather(*partition.tasks)
    largest = max(map(len, raw))
    done = chunk.unpacked_to
    assert done <= 1.5 * _unpacking.PIECE + largest < chunk.size / 2
    partition.source.read(1)
    assert chunk.unpacked_to == done


async def test_few_bytes_that_become_many_are_decompressed_by_pieces_too() -> None:
    """A chunk of a few kilobytes may hold a gigabyte: two pieces of it are decompressed at most, and the budget is charged for them."""
    raw = [stored(base, bytes(900_000), codec=ZSTD) for base in range(1_000)]
    chunk = apart(raw)
    assert chunk.size < _unpacking.PIECE
    partition = Partition(chunk)
    while partition.tasks:
        await asyncio.gather(*(partition.tasks.pop() for _ in range(len(partition.tasks))))
    grown = partition.budget.used - chunk.size
    assert _unpacking.GROWN <= grown <= 2 * _unpacking.GROWN + 1_000_000
    read = partition.source.read(1_000)
    assert read is not None
    assert read.batch.values == [bytes(900_000)] * len(read.batch)
    partition.source.move(1_000)
    assert partition.budget.used == 0


@pytest.mark.parametrize("limit", [1, 1_000])
async def test_a_seek_meanwhile_makes_it_void(limit: int) -> None:
    """The reader ignores records that a thread still decompresses for the old position, and reads from the new one."""
    partition = Partition(apart(batches(12)))
    (old,) = partition.tasks
    partition.source.move(6)
    assert partition.source.add(apart(batches(12)))
    assert await partition.values(limit) == wanted(12)[6:]
    await old


@pytest.mark.parametrize("limit", [1, 1_000])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("seal", [False, True])
async def test_spoiled_bytes_are_told_of_at_their_offset(codec: int, limit: int, *, seal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong checksum, and with a right one of bytes that cannot be decompressed: the same error as on the loop, behind the whole batches."""
    good = batches(8, codec=codec)
    bad = spoiled(good[5])
    if seal:
        monkeypatch.setattr(_unpacking, "checksum", lambda stored: _batch_header.HEADER.unpack_from(stored)[4])
        monkeypatch.setattr("ks_actors.log.kafka.wire._batch_reader.checksum", lambda stored: _batch_header.HEADER.unpack_from(stored)[4])
    raw = [*good[:5], bad, *good[6:]]
    columns = Columns()
    with pytest.raises(LogCorrupted) as at_once:
        Chunk(PARTITION, b"".join(raw), 1_000, None).read(0, 1_000, columns)
    partition = Partition(apart(raw))
    found: list[bytes | None] = []

    async def read() -> None:
        while True:
            if not partition.source.ready:
                partition.on_records.clear()
                await soon(partition.on_records.wait())
            fetched = partition.source.read(limit)
            found.extend([] if fetched is None else fetched.batch.values)

    with pytest.raises(LogCorrupted) as apart_from_it:
        await read()
    assert str(apart_from_it.value) == str(at_once.value)
    assert found == columns.batch().values == wanted(5)


async def test_without_a_thread_it_is_done_on_the_loop(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """No partition stands still because a thread cannot be had: a warning says so."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refuse)
    partition = Partition(apart(batches(12)))
    assert await partition.values(7) == wanted(12)
    assert "decompressed on the event loop" in caplog.text


@settings(max_examples=examples(30))
@given(
    kinds=st.lists(st.sampled_from([0, GZIP, SNAPPY, LZ4, ZSTD]), min_size=1, max_size=16),
    begin=st.integers(0, 20),
    limit=st.integers(1, 40),
    most=st.integers(1, 200_000),
)
def test_pieces_are_the_whole(kinds: list[int], begin: int, limit: int, most: int) -> None:
    """However batches are compressed and cut into pieces: the records from a position on are those that are read without a thread."""
    raw = [stored(number * PER_BATCH, *values_at(number, 20_000), codec=codec) for number, codec in enumerate(kinds)]
    plain, columns = Columns(), Columns()
    Chunk(PARTITION, b"".join(raw), 1_000, None).read(begin, 1_000, plain)
    chunk = apart(raw)
    position, more = begin, True
    while more:
        more = chunk.read(position, len(columns) + limit, columns)
        position = max(position, chunk.position)
        if chunk.wants_unpacking:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_unpacking, "PIECE", most)
                chunk.take(unpacked(chunk.raw, chunk.unpacked_to))
    assert columns.batch().values == plain.batch().values
    assert list(columns.batch().offsets) == list(plain.batch().offsets)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@in_virtual_time
async def test_a_chunk_that_arrives_during_a_pause_is_read_after_it(codec: int) -> None:
    """The request was under way when its partition was paused, so only `resume` can have the chunk decompressed."""
    broker = ScriptedBroker()
    value = Random(codec).randbytes(200_000)
    broker.append(PARTITION, value, codec=codec)
    fetcher = fetching(broker)
    fetcher.assign({PARTITION: 0})
    assert list(await fetcher.fetch(max_wait_ms=0)) == []
    fetcher.pause([PARTITION])
    assert list(await fetcher.fetch(max_wait_ms=100)) == []
    assert fetcher._sources[PARTITION].chunks
    fetcher.resume([PARTITION])
    (fetched,) = await fetcher.fetch(max_wait_ms=1_000)
    assert fetched.batch.values == [value]
    await fetcher.close()


# --- with a broker --------------------------------------------------------------------------------------------------------------


def blocking(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, Callable[[], None]]:
    """Have threads wait before they decompress; return an event for the first one, and one that lets them go on."""
    loop, begun, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    body_of = _record_reader.body_of

    def slow(*args: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(PATIENCE_S)
        return body_of(*args)

    monkeypatch.setattr(_unpacking, "body_of", slow)
    return begun, go.set


async def test_a_reader_may_seek_and_close_meanwhile(kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on while a thread is at it; a seek counts at once, and a reader that is closed waits for no thread."""
    log = await connect(kafka_broker, KafkaOptions(compression="gzip"))
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="unpacking")
    values = [NOISE[number:][:50_000] for number in range(20)]
    for value in values:
        await write(producer, partition, value)
    begun, go = blocking(monkeypatch)
    fetcher = log.fetcher(client_id="unpacking", isolation=IsolationLevel.READ_UNCOMMITTED)
    fetcher.assign({partition: 0})
    waiting = asyncio.create_task(fetcher.fetch(max_wait_ms=60_000))
    await soon(begun.wait())
    assert not waiting.done()
    fetcher.seek(partition, 15)
    go()
    found: list[bytes | None] = []
    fetched = await soon(waiting)
    while True:
        found += [value for one in fetched for value in one.batch.values]
        if len(found) >= 5:
            break
        fetched = await soon(fetcher.fetch(max_wait_ms=1_000))
    assert found == values[15:]
    begun, go = blocking(monkeypatch)
    fetcher.seek(partition, 0)
    waiting = asyncio.create_task(fetcher.fetch(max_wait_ms=60_000))
    await soon(begun.wait())
    await soon(fetcher.close())
    with pytest.raises(LogClosed):
        await soon(waiting)
    go()
    await log.close()
