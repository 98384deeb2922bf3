"""Global stores are on disk, and go on from where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest

from actors import StartFailed
from ks_actors import PunctuationType, Record, StateFull, StreamsError, Topology, TopologyError, UncaughtResponse, blocking, serdes, stores
from ks_actors.dsl import Consumed, StreamsBuilder
from ks_actors.log import IsolationLevel, NewTopic, TopicPartition
from ks_actors.processors import Processor, ProcessorContext
from ks_actors.runtime import InstanceState
from ks_actors.state import SharedResources
from ks_actors.state.disk._rocksdb import RocksEngine
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import StoreType
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed, in_app, in_virtual_time
from tests.waiting import until

TOPICS = {"in": 1, "out": 1, "names": 3}


class Keeps(Processor[str, str, None, None]):
    """Put each record into the store, and note it."""

    came: ClassVar[list[str]] = []
    store: ClassVar[Any] = None

    def init(self, context: ProcessorContext[None, None]) -> None:
        super().init(context)
        Keeps.store = self._names = context.get_state_store("names")

    def process(self, record: Record[str, str]) -> None:
        self.came.append(record.key)
        self._names.put(record.key, record.value)


def keeping(store: StoreType = "rocksdb", *, threads: bool = False) -> Topology:
    """Return a topology with a global store of the topic `names`, beside a stream."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    (stream.map_values(blocking(lambda value: value)) if threads else stream).to("out", STRINGS_OUT)
    spec = stores.key_value("names", serdes.STRING, serdes.STRING, type=store)
    return builder.build().add_global_store(spec, "global-source", "names", "keeps", Keeps, key=serdes.STRING, value=serdes.STRING)


@pytest.fixture(autouse=True)
def _nothing_came() -> None:
    Keeps.came.clear()


async def names(harness: AppHarness, keys: Iterable[int], value: str | None = "n") -> None:
    records = [TestRecord(f"k{number:05d}", value and f"{value}{number}", 0) for number in keys]
    await harness.produce_all("names", records)


async def held(harness: AppHarness) -> dict[str, str]:
    """Return the content of the store."""
    return dict(await harness.app.store("names").all())


async def until_came(harness: AppHarness, count: int) -> None:
    async with asyncio.timeout(600):
        while len(Keeps.came) < count:
            await asyncio.sleep(0.1)
    await harness.kit.clock.advance(0.1)


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_app(lambda store: keeping(store), topics=TOPICS, start=False)
async def test_a_start_goes_on_from_the_state_on_disk(harness: AppHarness, store: StoreType, guarantee: str) -> None:
    """After a clean end only later records are read, deletes too; a store in memory is filled from the beginning."""
    await names(harness, range(300))
    await harness.start()
    assert len(Keeps.came) == 300
    await harness.close()
    assert (harness.state_dir / "global" / "rocksdb").exists() == (store == "rocksdb")
    assert not (harness.state_dir / "global" / ".checkpoint").exists()
    await names(harness, range(5), "new")
    await names(harness, range(5, 10), None)
    Keeps.came.clear()
    await harness.restart()
    assert len(Keeps.came) == (10 if store == "rocksdb" else 310)
    assert await held(harness) == {f"k{number:05d}": f"{'new' if number < 5 else 'n'}{number}" for number in range(300) if not 5 <= number < 10}
    Keeps.came.clear()
    await names(harness, range(2), "newer")
    await until_came(harness, 2)
    assert (await held(harness))["k00001"] == "newer1"


@in_virtual_time
async def test_a_crash_leaves_a_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records written before a crash are not read again; the table is complete, with any part of it on disk."""
    assert SharedResources.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(SharedResources.__init__.__kwdefaults__, "tail_records", 100)
    async with AppHarness(keeping(), topics=TOPICS, start=False) as harness:
        for part in range(6):
            await names(harness, range(400 * part, 400 * part + 600), f"n{part}-")
            if part == 0:
                await harness.start()
            await until_came(harness, 600 * (part + 1))
            # RocksDB writes in a thread of its own, for which virtual time does not wait; what is asked of it meanwhile is put off.
            await until(lambda: not Keeps.store.engine._lags())
        whole = await held(harness)
        assert len(whole) == 2600
        await harness.crash()
        Keeps.came.clear()
        await harness.restart()
        assert len(Keeps.came) < 1800
        assert await held(harness) == whole


@in_app(keeping(), topics=TOPICS, start=False)
async def test_a_topic_that_was_made_anew_fills_the_store_anew(harness: AppHarness) -> None:
    """Where the state on disk goes further than the topic, or begins before it, all is read from the beginning: nothing of the old one stays."""
    await names(harness, range(300))
    await harness.start()
    await harness.close()
    await harness.log.delete_topics(["names"])
    await harness.log.create_topics([NewTopic("names", 3)])
    await names(harness, range(1000, 1030))
    await harness.restart()
    assert await held(harness) == {f"k{number:05d}": f"n{number}" for number in range(1000, 1030)}
    await harness.close()
    await names(harness, range(1000, 1060))
    ends = await harness.log.end_offsets([TopicPartition("names", number) for number in range(3)], IsolationLevel.READ_COMMITTED)
    await harness.log.delete_records(ends)
    await names(harness, range(1050, 1070))
    await harness.restart()
    assert await held(harness) == {f"k{number:05d}": f"n{number}" for number in range(1050, 1070)}


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_app(lambda store: keeping(store), topics=TOPICS, start=False, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
async def test_a_topic_that_loses_records_ends_the_app_and_its_state(harness: AppHarness, store: StoreType) -> None:
    """No handler keeps it alive; the next start fills the store with what the topic has, though its end is beyond the old one by then."""
    await names(harness, range(300))
    await harness.start()
    harness.delete_topics("names")
    await harness.log.create_topics([NewTopic("names", 3)])
    error = await harness.ended()
    assert isinstance(error, StreamsError)
    assert "a global table no longer fits its topic" in str(error)
    assert error.topic == "names"
    await names(harness, range(1000, 1600))
    await harness.restart()
    assert await held(harness) == {f"k{number:05d}": f"n{number}" for number in range(1000, 1600)}


@in_app(keeping(), topics=TOPICS, start=False)
async def test_a_store_that_is_damaged_is_filled_anew(harness: AppHarness) -> None:
    """State that cannot be trusted is deleted, and comes again from the topic, without an action of the user."""
    await names(harness, range(100))
    await harness.start()
    await harness.close()
    (current,) = (harness.state_dir / "global").rglob("CURRENT")
    current.write_text("MANIFEST-nonsense\n")
    await harness.restart()
    assert len(await held(harness)) == 100
    assert len(Keeps.came) == 200


@in_app(keeping(threads=True), topics=TOPICS, start=False)
async def test_a_store_that_threads_read_is_in_memory(harness: AppHarness) -> None:
    """Functions that block are processed in threads, which may read any global store at any time."""
    await names(harness, range(10))
    await harness.start()
    assert len(await held(harness)) == 10
    await harness.close()
    assert not (harness.state_dir / "global").exists()


@in_app(keeping(), topics=TOPICS, start=False, statestore_memory_max_bytes=2 << 20)
async def test_a_store_need_not_fit_into_memory(harness: AppHarness) -> None:
    """It keeps to the budget of all stores: the rest is on disk, and is read from there."""
    count = 12_000
    await names(harness, range(count), "n" * 200)
    await harness.start()
    await names(harness, range(3), "n" * 200)
    await until_came(harness, count + 3)
    await harness.kit.clock.advance(1)
    assert 0 < Keeps.store.resident_rows() < count // 2
    for number in (0, 17, count - 1):
        assert await harness.app.store("names").get(f"k{number:05d}") == f"{'n' * 200}{number}"
    assert len(await held(harness)) == count


@in_virtual_time
async def test_a_disk_that_is_full_ends_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write is an error; the next start, with room, has it all."""
    assert SharedResources.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(SharedResources.__init__.__kwdefaults__, "tail_records", 100)
    write = RocksEngine.write

    def full(self: RocksEngine, *rows: Any, **options: Any) -> None:
        if len(Keeps.came) > 400:
            raise StateFull("injected: the disk is full")
        write(self, *rows, **options)

    async with AppHarness(keeping(), topics=TOPICS, start=False) as harness:
        await names(harness, range(300))
        await harness.start()
        with monkeypatch.context() as patch:
            patch.setattr(RocksEngine, "write", full)
            await names(harness, range(300, 900))
            assert isinstance(await harness.ended(), StateFull)
            assert harness.app.state is InstanceState.ERROR
        await harness.restart()
        assert len(await held(harness)) == 900


@in_virtual_time
async def test_a_global_table_of_the_dsl_is_on_disk_too() -> None:
    """With the app's default for stores, which is RocksDB; joins find the earlier rows."""
    builder = StreamsBuilder()
    table = builder.global_table("names", Consumed(serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).join(table, lambda key, _: key, lambda left, right: f"{left}+{right}").to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics=TOPICS, start=False) as harness:
        await names(harness, range(20))
        await harness.start()
        await harness.close()
        assert (harness.state_dir / "global" / "rocksdb").exists()
        await harness.restart()
        await feed(harness, "in", "k00007", "v")
        assert [record.value for record in await harness.read("out")] == ["v+n7"]


def punctuated(punctuation: PunctuationType, calls: list[int]) -> Topology:
    """Return a topology with a global store whose processor schedules."""

    class Scheduling(Keeps):
        def init(self, context: ProcessorContext[None, None]) -> None:
            super().init(context)
            context.schedule(10, punctuation, calls.append)

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out", STRINGS_OUT)
    spec = stores.key_value("names", serdes.STRING, serdes.STRING)
    return builder.build().add_global_store(spec, "global-source", "names", "keeps", Scheduling, key=serdes.STRING, value=serdes.STRING)


def test_the_processor_of_a_global_store_cannot_schedule_by_the_wall_clock() -> None:
    """Nothing would call it: the error names the node and says what is possible, in an app and in the driver."""
    told = "node keeps of a global store cannot punctuate by the wall clock"

    async def started(harness: AppHarness) -> None:
        await feed(harness, "in", "k", "v")

    with pytest.raises(TopologyError, match=told), TopologyTestDriver(punctuated(PunctuationType.WALL_CLOCK_TIME, [])):
        pass
    with pytest.raises(StartFailed) as failed:
        run_app(started, punctuated(PunctuationType.WALL_CLOCK_TIME, []), topics=TOPICS)
    assert told in str(failed.value.__cause__)


def test_the_processor_of_a_global_store_is_called_by_stream_time() -> None:
    """After the records that move it."""
    calls: list[int] = []
    with TopologyTestDriver(punctuated(PunctuationType.STREAM_TIME, calls)) as driver:
        topic = driver.create_input_topic("names", serdes.STRING, serdes.STRING)
        for timestamp in (5, 500):
            topic.pipe_input("k", "v", timestamp_ms=timestamp)
    assert calls == [5, 500]
