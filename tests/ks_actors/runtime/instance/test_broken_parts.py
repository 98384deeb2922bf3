"""Parts that break at a bad moment: while others recover, close or restore."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from ks_actors import LogError, ProcessingFailed, Processor, Record, StateError, StreamsError, serdes
from ks_actors.dsl import Consumed, StreamsBuilder
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.runtime import InstanceState, RestoreListener, UncaughtResponse
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology, stores
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import (
    ALOS,
    EOS,
    STRINGS,
    STRINGS_OUT,
    Asked,
    Bomb,
    Load,
    by_key,
    counting,
    echo,
    feed,
    feed_all,
    in_app,
    in_virtual_time,
    replace,
)
from tests.waiting import until

TOPICS = {"in": 1, "out": 1}


def limit(size: int) -> None:
    """Let no file of this process grow beyond `size`: a full disk, as far as files can tell."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def processing(supplier: Callable[[], Processor[Any, Any, Any, Any]]) -> Topology:
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("mine", supplier, "source")
    topology.add_sink("sink", "out", "mine", key=serdes.STRING, value=serdes.STRING)
    return topology


# --- users' listeners -----------------------------------------------------------------------------------------------------------


def test_a_restore_listener_that_raises_ends_the_app() -> None:
    """An error of a restore listener fails the start."""

    class Broken(RestoreListener):
        def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
            raise LookupError("listener broken")

    with pytest.raises(LookupError, match="listener broken"):
        run_app(lambda _: pytest.fail("it started"), counting(), topics=TOPICS, restore_listener=Broken())


def test_a_state_listener_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """An error of a state listener is logged, and the app goes on."""

    def broken(new: InstanceState, old: InstanceState) -> None:
        raise LookupError("listener broken")

    async def test(harness: AppHarness) -> None:
        await feed(harness, "in", "a", "1")
        assert by_key(await harness.read("out")) == {"a": ["1"]}

    run_app(test, echo(), topics=TOPICS, on_state=broken)
    assert "the state listener raised, about RUNNING" in caplog.text


# --- going back -----------------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_rollback_that_fails_ends_the_app() -> None:
    """When the output of a dead worker cannot be aborted, nothing is certain: the app ends by that, with a note about the first error."""
    bomb = Bomb()
    async with AppHarness(echo(bomb), topics=TOPICS, processing_guarantee=EOS, uncaught_handler=replace, task_timeout_ms=1000) as harness:
        harness.fail("abort", LogError("away"), 1000)
        bomb.armed = 1
        await harness.produce("in", "a", "1")
        error = await harness.ended()
        assert isinstance(error, LogError)
        assert any("while rolling back after" in note and "boom" in note for note in error.__notes__)
        harness.log._faults._before.clear()
        await harness.restart()
        await harness.caught_up()
        assert by_key(await harness.read("out")) == {"a": ["1"]}


class Stubborn(Processor[str, str, str, str]):
    """Raise once, then raise at being closed too, once."""

    failures: tuple[list[str], list[str]] = ([], [])

    def process(self, record: Record[str, str]) -> None:
        if self.failures[0]:
            raise LookupError(self.failures[0].pop())
        self.context.forward(record)

    def close(self) -> None:
        if self.failures[1]:
            raise LookupError(self.failures[1].pop())


@in_app(processing(Stubborn), topics=TOPICS, uncaught_handler=replace)
async def test_a_processor_that_cannot_be_closed_when_going_back(harness: AppHarness, guarantee: str) -> None:
    """When `close` raises while the task goes back to its last commit the app ends by that; the next one does all remaining work."""
    Stubborn.failures[0][:] = ["at a record"]
    Stubborn.failures[1][:] = ["at the close"]
    await harness.produce("in", "a", "1")
    error = await harness.ended()
    assert isinstance(error, StreamsError)
    assert "could not close processor" in str(error)
    assert "at the close" in str(error)
    assert error.node is not None
    assert error.node in str(error)
    assert any("at a record" in note for note in error.__notes__)
    await harness.restart()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"a": ["1"]}


@in_app(processing(Stubborn), topics=TOPICS)
async def test_processors_are_closed_when_the_app_ends_in_error(harness: AppHarness) -> None:
    """An app that ends in ERROR closes its processors all the same; their errors then are only logged."""
    Stubborn.failures[0][:] = ["at a record"]
    Stubborn.failures[1][:] = []
    await harness.produce("in", "a", "1")
    ended = asyncio.ensure_future(harness.ended())

    def ends() -> bool:
        Stubborn.failures[1][:] = ["at the close"] if not Stubborn.failures[0] else []
        return harness.app.state is not InstanceState.RUNNING

    await until(ends)
    error = await ended
    assert error is not None


# --- workers --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_a_worker_may_die_while_it_is_removed(seed: int, guarantee: str) -> None:
    """A worker that dies of its last slice is removed all the same, and not replaced; its work is done by others, once."""
    bomb = Bomb()
    async with AppHarness(
        counting("in_memory", bomb), seed=seed, topics={"in": 4, "out": 1}, num_workers=2, processing_guarantee=guarantee, uncaught_handler=replace
    ) as harness:
        load = Load(harness, Random(seed))
        await load.send(200)
        bomb.armed = 1
        removing = [asyncio.ensure_future(harness.remove_worker()) for _ in range(2)]
        assert any([await each for each in removing])
        await harness.add_worker()
        await load.check(guarantee)
        assert harness.app.state is InstanceState.RUNNING


def test_the_app_may_be_closed_while_a_worker_dies() -> None:
    """Closing an app just after a worker has died closes it, with or without that error."""
    for seed in range(examples(24)):
        bomb = Bomb()

        async def test(harness: AppHarness, bomb: Bomb = bomb) -> None:
            load = Load(harness, Random(1))
            await load.send(100)
            bomb.armed = 1
            await harness.turns(harness.kit.random.randrange(60))
            try:
                await harness.close()
            except (ProcessingFailed, StreamsError, LogError):
                bomb.armed = 0
            bomb.armed = 0
            await harness.restart()
            await load.check(EOS)

        run_app(test, counting("in_memory", bomb), seed=seed, topics=TOPICS, processing_guarantee=EOS, uncaught_handler=replace)


# --- state ----------------------------------------------------------------------------------------------------------------------


class Remembering(Processor[str, str, str, str]):
    """Count in a store that has no changelog."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("memory")

    def process(self, record: Record[str, str]) -> None:
        count = int(self.store.get(record.key) or 0) + 1
        self.store.put(record.key, str(count))
        self.context.forward(record.with_value(str(count)))


def remembering() -> Topology:
    topology = processing(Remembering)
    topology.add_state_store(stores.key_value("memory", serdes.STRING, serdes.STRING, logging=False), "mine")
    return topology


@in_app(remembering(), topics=TOPICS)
async def test_a_store_without_a_changelog_survives_a_crash(harness: AppHarness, guarantee: str) -> None:
    """The content of a store without a changelog is on disk when the commit has ended."""
    for _ in range(3):
        await feed_all(harness, "in", [TestRecord("a", "v", 0), TestRecord("b", "v", 0)])
        await harness.crash()
        await harness.restart()
    assert by_key(await harness.read("out")) == {"a": ["1", "2", "3"], "b": ["1", "2", "3"]}


@in_app(remembering(), topics=TOPICS, commit_interval_ms=1000, uncaught_handler=replace)
async def test_a_store_without_a_changelog_on_a_full_disk(harness: AppHarness, guarantee: str) -> None:
    """When it cannot be written the commit fails, or, if the log has committed, the tasks begin anew from the log; nothing is doubled."""
    await feed(harness, "in", "a", "v")
    await harness.produce("in", "b", "v")
    limit(10)
    try:
        await harness.kit.clock.advance(2)
    finally:
        limit(resource.RLIM_INFINITY)
    await harness.caught_up()
    out = by_key(await harness.read("out"))
    assert out["a"] == ["1"]
    assert out["b"][0] == "1"
    assert guarantee == ALOS or len(out["b"]) == 1
    assert harness.app.state is InstanceState.RUNNING


@in_virtual_time
async def test_idle_time_is_used_to_write_to_disk() -> None:
    """When there is nothing to commit, committed changes are written to disk: a crash after that restores nothing."""
    starts: list[int | None] = []
    restored: list[int] = []

    class Heard(RestoreListener):
        def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
            starts.append(start)

        def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
            restored.append(total)

    async with AppHarness(counting("rocksdb"), topics=TOPICS, restore_listener=Heard(), commit_interval_ms=1000) as harness:
        await feed_all(harness, "in", [TestRecord(f"k{number}", "v", 0) for number in range(3000)])
        await harness.kit.clock.advance(100)
        await harness.crash()
        await harness.restart()
        assert starts == [None, 3000]
        assert restored == [0, 0]


@in_virtual_time
async def test_a_disk_that_is_full_when_there_is_time_to_write() -> None:
    """When writing in idle time fails the handler decides; with REPLACE_WORKER the tasks begin anew, and results are exact."""
    asked: list[Exception] = []

    def handler(error: Exception) -> UncaughtResponse:
        asked.append(error)
        limit(resource.RLIM_INFINITY)
        return UncaughtResponse.REPLACE_WORKER

    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, uncaught_handler=handler, commit_interval_ms=1000) as harness:
        load = Load(harness, Random(1), keys=2000)
        await load.through(5000)
        limit(10)
        try:
            await harness.kit.clock.advance(100)
        finally:
            limit(resource.RLIM_INFINITY)
        await load.through(1000)
        with suppress(StateError):  # a file that was too large once stays so for RocksDB
            await harness.close()
        await harness.restart()
        await load.send(100)
        await load.check(EOS)
        assert all(isinstance(error, StateError) for error in asked)


@in_app(counting("rocksdb"), topics=TOPICS)
async def test_state_that_is_ahead_of_its_changelog_is_wiped(harness: AppHarness) -> None:
    """When the changelog was made anew the local state is not its state any more: it is deleted, and restored from the new one."""
    await feed_all(harness, "in", [TestRecord("a", "v", 0)] * 3)
    await harness.close()
    await harness.log.delete_topics(["app-counts-changelog"])
    await harness.restart()
    await feed(harness, "in", "a", "v")
    assert by_key(await harness.read("out")) == {"a": [1, 2, 3, 1]}


# --- the log --------------------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_size_of_a_late_topic_that_cannot_be_found_out() -> None:
    """When the log cannot say how many partitions a topic has, the commit fails by that, and is repeated."""
    asked = Asked()

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(lambda key, value, context: "late", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1}, processing_guarantee=EOS, uncaught_handler=asked) as harness:
        await harness.log.create_topics([NewTopic("late", 3)])
        harness.fail("describe_topics", LogError("away"))
        await feed_all(harness, "in", [TestRecord(f"k{number}", "v", 0) for number in range(20)])
        assert len(await harness.read("late")) == 20
        assert [str(error) for error in asked] == ["away"]


@pytest.mark.parametrize("times", [1, 3])
@in_virtual_time
async def test_the_ends_of_inputs_that_cannot_be_found_out(times: int) -> None:
    """When the log cannot say where the inputs of a task end the handler decides; told to go on, the task begins anew."""
    builder = StreamsBuilder()
    builder.stream("left", STRINGS).merge(builder.stream("right", STRINGS)).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"left": 1, "right": 1, "out": 1}, uncaught_handler=replace, start=False) as harness:
        harness.fail("end_offsets", LogError("away"), times)
        await harness.start()
        await harness.produce("left", "a", "1")
        await harness.kit.clock.advance(1)
        await harness.caught_up()
        assert by_key(await harness.read("out")) == {"a": ["1"]}


@in_virtual_time
async def test_a_global_topic_that_cannot_be_read_at_the_start() -> None:
    """When a global topic cannot be read before the app runs, the start fails by that."""
    builder = StreamsBuilder()
    table = builder.global_table("names", Consumed(serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).join(table, lambda key, _: key, lambda left, right: f"{left}{right}").to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1, "names": 1}, start=False, uncaught_handler=replace) as harness:
        await harness.produce("names", "a", "n")
        harness.fail("fetch", LogError("away"))
        with pytest.raises(StreamsError, match="could not read the topics of global tables: away"):
            await harness.start()
        await harness.restart()
        harness.fail("fetch", LogError("away"), 20)
        await harness.produce("in", "a", "v")
        await harness.kit.clock.advance(5)
        await harness.caught_up()
        assert set(by_key(await harness.read("out"))["a"]) == {"vn"}
