"""Processors that hold a thread, or the loop."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from actors import Stalled, System
from ks_actors import App, Processor, ProcessorContext, Record, StreamsConfig, TaskTimeout, WaitReason, WorkerState, serdes
from ks_actors.dsl import StreamsBuilder
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime import InstanceState, UncaughtResponse, blocking
from ks_actors.task._record_queue import RecordQueue
from ks_actors.topology import StoreType, Topology, stores
from tests.actors.test_events import tell_when_looked
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, own_threads
from tests.waiting import PATIENCE_S, until

IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)


def mapping(function: Callable[[str], str]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(function).to("out", STRINGS_OUT)
    return builder.build()


@asynccontextmanager
async def running(topology: Topology, directory: Path, system: System | None = None, **config: Any) -> AsyncIterator[tuple[App, EmbeddedLog]]:
    """Run an app in the real world: threads run on, and so does time."""
    handler = config.pop("uncaught_handler", lambda _: UncaughtResponse.SHUTDOWN_CLIENT)
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 2), NewTopic("out", 1)])
        settings = StreamsConfig.of({"application_id": "app", "state_dir": directory, **config})
        app = App(topology, settings, log=log, system=system, uncaught_handler=handler)
        await app.start()
        try:
            yield app, log
        finally:
            with suppress(*([] if app.error is None else [type(app.error)])):
                await app.close()


async def write(log: EmbeddedLog, *values: str, partition: int = 0) -> None:
    from ks_actors.records._batch import Batch  # noqa: PLC0415 - of this helper alone

    producer = await log.producer(client_id="test")
    count = len(values)
    await producer.send([Outgoing(TopicPartition("in", partition), Batch([b"k"] * count, [value.encode() for value in values], [0] * count))])
    await producer.close()


async def read(log: EmbeddedLog) -> list[str]:
    fetcher = log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({OUT: 0})
    found: list[str] = []
    while fetched := await fetcher.fetch(max_wait_ms=0):
        found += [value.decode() for one in fetched for value in one.batch.values]
    await fetcher.close()
    return found


class Gate:
    """A function that blocks its thread until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.threads: set[str] = set()

    def __call__(self, value: str) -> str:
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        assert self.opened.wait(PATIENCE_S)
        return value


def gated() -> tuple[Gate, Callable[[str], str]]:
    gate = Gate()

    @blocking
    def pass_gate(value: str) -> str:
        return gate(value)

    return gate, pass_gate


async def test_records_waiting_beside_a_thread_count(tmp_path: Path) -> None:
    """While a function holds its thread, no more than buffered_records_per_partition and one fetch are taken from the log, and all are counted."""
    gate, function = gated()
    async with running(mapping(function), tmp_path, buffered_records_per_partition=3_000) as (app, log):
        await write(log, "a")
        await until(gate.entered.is_set)
        await write(log, *map(str, range(20_000)))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert 3_000 < app.metrics()["active-buffer-count"] <= 5_000
        gate.opened.set()
        await app.wait_until_caught_up()
        assert await read(log) == ["a", *map(str, range(20_000))]
        assert app.metrics()["active-buffer-count"] == 0


async def test_a_commit_leaves_out_a_task_in_a_thread(guarantee: str, tmp_path: Path) -> None:
    """Other tasks are committed again and again while a function blocks; its own task is committed behind it, with output of that epoch."""
    gate, _ = gated()

    @blocking
    def stop_at_a(value: str) -> str:
        return gate(value) if value == "a" else value

    async with running(mapping(stop_at_a), tmp_path, processing_guarantee=guarantee, num_workers=2, commit_interval_ms=10) as (app, log):

        def committed(partition: int) -> int:
            found = log._groups.get("app").committed().get(TopicPartition("in", partition))
            return 0 if found is None else found.offset

        def reached(count: int) -> bool:
            return committed(1) == count

        await write(log, "a")
        await until(gate.entered.is_set)
        for count, value in enumerate(("b", "c"), 1):
            await write(log, value, partition=1)
            await until(partial(reached, count))
        assert (committed(0), await read(log)) == (0, ["b", "c"])
        gate.opened.set()
        await app.wait_until_caught_up()
        assert (committed(0), await read(log)) == (1, ["b", "c", "a"])
    await until(lambda: own_threads() == [])


async def test_a_function_that_blocks_has_a_thread_of_its_worker(guarantee: str, tmp_path: Path) -> None:
    """The loop runs on while such a function blocks, other tasks are processed by other workers, and later records are processed after it."""
    gate, function = gated()
    async with running(mapping(function), tmp_path, processing_guarantee=guarantee, num_workers=2, commit_interval_ms=10) as (app, log):
        await write(log, "a")
        await until(gate.entered.is_set)
        await write(log, "b", "c")
        for _ in range(1000):
            await asyncio.sleep(0)  # the loop is free
        assert app.state is InstanceState.RUNNING
        gate.opened.set()
        await app.wait_until_caught_up()
        assert await read(log) == ["a", "b", "c"]
        assert threading.current_thread().name not in gate.threads


async def test_nobody_looks_at_the_queues_of_a_task_but_its_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress of a task is unknown while a thread has it: a caller that waits for it takes it for one that has not caught up."""
    gate, function = gated()

    def position(queue: RecordQueue) -> int:
        assert queue.partition != IN, "looked at while a thread moves it"
        return 0

    async with running(mapping(function), tmp_path) as (app, log):
        await write(log, "a")
        await until(gate.entered.is_set)
        with monkeypatch.context() as patch:
            patch.setattr(RecordQueue, "position", property(position))
            try:
                with pytest.raises(TaskTimeout, match="not caught up within 0 ms"):
                    await app.wait_until_caught_up(timeout_ms=0)
            finally:
                gate.opened.set()
        await app.wait_until_caught_up()
        assert await read(log) == ["a"]


async def test_a_function_that_never_returns_fails_the_commit(tmp_path: Path) -> None:
    """A commit of its task waits task_timeout_ms for it; then it is a TaskTimeout that names the task, and the app ends by one."""
    gate, function = gated()
    async with running(mapping(function), tmp_path, task_timeout_ms=100) as (app, log):
        await write(log, "a")
        await until(gate.entered.is_set)
        with pytest.raises(TaskTimeout, match=r"a blocking function of task 0_0 has not returned for 0\.1 s"):
            await app.commit()
        await until(lambda: app.state is InstanceState.ERROR)
        assert isinstance(app.error, TaskTimeout)
        gate.opened.set()
    await until(lambda: own_threads() == [])


async def test_an_app_with_a_worker_that_never_returns_can_be_closed(tmp_path: Path) -> None:
    """Closing it fails by the timeout of its commit, and yet ends it."""
    gate, function = gated()
    async with running(mapping(function), tmp_path, task_timeout_ms=100, processing_guarantee=EOS, commit_interval_ms=10_000) as (app, log):
        await write(log, "a")
        await until(gate.entered.is_set)
        with pytest.raises(TaskTimeout, match="has not returned"):
            await app.close()
        assert app.state is InstanceState.NOT_RUNNING
        gate.opened.set()
    await until(lambda: own_threads() == [])


async def test_records_waiting_beside_a_function_that_does_not_return_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The task with that function waits for it, and one without a worker for the worker, also while a commit is asked for."""
    gate, function = gated()
    async with running(mapping(function), tmp_path, stall_warning_ms=40, commit_interval_ms=60_000) as (app, log):

        def reasons() -> dict[str, WaitReason]:
            return {str(wait.partition): wait.reason for wait in app.waiting()}

        await write(log, "a")
        await until(gate.entered.is_set)
        await write(log, "b", partition=1)
        await until(lambda: reasons().get("in-0") is WaitReason.FUNCTION and reasons().get("in-1") is WaitReason.WORKER)
        (stuck,) = [wait for wait in app.waiting() if wait.reason is WaitReason.WORKER]
        assert stuck.text == "no worker is free: app-Worker-1 with task 0_0"
        await until(lambda: "in-0 of task 0_0 has waited" in caplog.text and "in-1 of task 0_1 has waited" in caplog.text)
        committing = asyncio.ensure_future(app.commit())
        await until(lambda: reasons() == {"in-0": WaitReason.FUNCTION, "in-1": WaitReason.WORKER})
        assert not committing.done()
        gate.opened.set()
        await committing
        await app.wait_until_caught_up()
        assert sorted(await read(log)) == ["a", "b"]


async def test_removing_a_worker_has_a_deadline(tmp_path: Path) -> None:
    """A worker that is late is a TaskTimeout for the caller that removes it; it ends with its work, not at a commit, and then its name is free."""
    gate, function = gated()
    async with running(mapping(function), tmp_path, commit_interval_ms=600_000) as (app, log):
        await write(log, "a")
        await until(gate.entered.is_set)
        with pytest.raises(TaskTimeout, match="did not stop within 20 ms"):
            await app.remove_worker(timeout_ms=20)
        assert [(worker.name, worker.state) for worker in app.workers()] == [("app-Worker-1", WorkerState.PENDING_SHUTDOWN)]
        assert await app.add_worker() == "app-Worker-2"
        gate.opened.set()
        await until(lambda: [worker.name for worker in app.workers()] == ["app-Worker-2"])
        await app.wait_until_caught_up()
        assert await read(log) == ["a"]
        assert await app.add_worker() == "app-Worker-1"


async def test_a_blocking_function_that_raises_ends_its_worker_only(tmp_path: Path) -> None:
    """An error in its thread is like any other: the worker is replaced, and the record done again."""
    failures = [LookupError("once")]

    @blocking
    def fail_once(value: str) -> str:
        if failures:
            raise failures.pop()
        return value

    async with running(mapping(fail_once), tmp_path, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER) as (app, log):
        await write(log, "a", "b")
        await app.wait_until_caught_up()
        assert await read(log) == ["a", "b"]
        assert app.metrics()["failed-workers"] == 1


async def test_a_processor_that_holds_the_loop_is_told_of(tmp_path: Path) -> None:
    """A function that is not declared as blocking, and blocks, is a Stalled event that names its worker and the line that it is at."""
    looked = threading.Event()
    stalls: list[Stalled] = []

    def hold_the_loop(value: str) -> str:
        # Held until the watch has looked, however slow this machine is.
        assert looked.wait(PATIENCE_S)
        return value

    async with System("real", stall_after=0.01) as system:
        tell_when_looked(system, looked)
        system.subscribe(Stalled, stalls.append)
        async with running(mapping(hold_the_loop), tmp_path, system) as (app, log):
            while not (held := [stall for stall in stalls if "in hold_the_loop" in stall.stack]):
                looked.clear()
                await write(log, "a")
                await app.wait_until_caught_up()
            assert set(await read(log)) == {"a"}
    assert held[0].path == "/real/app-app/app-Worker-1"


class Counting(Processor[str, str, str, str]):
    """Count in a store, in a thread, where a function is called between reading and writing."""

    def __init__(self, between: Callable[[str], object]) -> None:
        self._between = between

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._store = context.get_state_store("counts")

    @blocking
    def process(self, record: Record[str, str]) -> None:
        count = str(int(self._store.get(record.value) or 0) + 1)
        self._between(record.value)
        self._store.put(record.value, count)
        self._context.forward(record.with_value(f"{record.value} {count}"))


def counter(between: Callable[[str], object], store_type: StoreType | None = None) -> Topology:
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("counter", lambda: Counting(between), "source")
    topology.add_state_store(stores.key_value("counts", serdes.STRING, serdes.STRING, type=store_type), "counter")
    topology.add_sink("sink", "out", "counter", key=serdes.STRING, value=serdes.STRING)
    return topology


@pytest.fixture
def restless() -> Iterator[None]:
    """Have threads interrupt each other as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("store_type", ["rocksdb", "in_memory"])
async def test_nobody_is_at_the_stores_of_a_task_but_its_thread(guarantee: str, store_type: StoreType, tmp_path: Path) -> None:
    """Commits, snapshots, writing to disk and eviction change nothing of a thread's reads and writes, and come to their ends."""
    values = [f"v{random.Random(number).randrange(8_000)}" for number in range(30_000)]
    settings: dict[str, Any] = {"processing_guarantee": guarantee, "commit_interval_ms": 1, "statestore_memory_max_bytes": 1 << 20}
    settings["snapshot_uri"] = f"file://{tmp_path}/snapshots"
    async with running(counter(lambda _: None, store_type), tmp_path, **settings) as (app, log):
        for start in range(0, len(values), 3_000):
            await write(log, *values[start : start + 3_000])
            if start % 6_000 == 0:
                await app.snapshot()
        await app.wait_until_caught_up()
        counted: Counter[str] = Counter()
        expected = []
        for value in values:
            counted[value] += 1
            expected.append(f"{value} {counted[value]}")
        assert await read(log) == expected
        assert dict(await app.store("counts").all()) == {value: str(count) for value, count in counted.items()}


async def test_a_worker_may_be_killed_in_its_thread(guarantee: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An app that ends by an error lets go of a worker that is in its thread; later writes of the thread to stores and output are void."""
    gate, broken = Gate(), [True]

    def between(value: str) -> None:
        if broken and value == "held":
            gate(value)
        elif broken and value == "bad":
            raise LookupError("bad value")

    settings: dict[str, Any] = {"application_id": "app", "state_dir": tmp_path, "processing_guarantee": guarantee, "task_timeout_ms": 200}
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 2), NewTopic("out", 1)])
        app = App(counter(between), StreamsConfig.of({**settings, "num_workers": 2}), log=log)
        await app.start()
        await write(log, "held", "after")
        await until(gate.entered.is_set)
        await write(log, "bad", partition=1)
        with pytest.raises(TaskTimeout, match="did not pause") as ended:
            await app.run()
        assert any("bad value" in note for note in ended.value.__notes__)
        gate.opened.set()
        await until(lambda: "abandoned by actor /ks-app/app-app/app-Worker-1" in caplog.text)
        assert await read(log) == []
        broken.clear()
        async with App(counter(between), StreamsConfig.of(settings), log=log) as app:
            await app.wait_until_caught_up()
            assert sorted(await read(log)) == ["after 1", "bad 1", "held 1"]


async def test_stores_are_closed_under_a_thread(guarantee: str, tmp_path: Path) -> None:
    """A thread that goes on at its stores while these are closed gets StoreClosed, or a StateError; committed state is not harmed."""
    busy, broken = threading.Event(), [True]

    def between(value: str) -> None:
        if broken and value == "bad":
            raise LookupError("bad value")

    class Busy(Counting):
        @blocking
        def process(self, record: Record[str, str]) -> None:
            if record.value == "busy" and broken:
                busy.set()
                for number in range(10_000_000):
                    self._store.put(f"x{number % 1000}", "y")
                    self._store.get(f"z{number % 1000}")
            super().process(record)

    def topology() -> Topology:
        built = Topology()
        built.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
        built.add_processor("counter", lambda: Busy(between), "source")
        built.add_state_store(stores.key_value("counts", serdes.STRING, serdes.STRING), "counter")
        built.add_sink("sink", "out", "counter", key=serdes.STRING, value=serdes.STRING)
        return built

    settings: dict[str, Any] = {"application_id": "app", "state_dir": tmp_path, "processing_guarantee": guarantee, "task_timeout_ms": 200}
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 2), NewTopic("out", 1)])
        app = App(topology(), StreamsConfig.of({**settings, "num_workers": 2}), log=log)
        await app.start()
        await write(log, "first")
        await app.wait_until_caught_up()
        await write(log, "busy")
        await until(busy.is_set)
        await write(log, "bad", partition=1)
        with pytest.raises(TaskTimeout, match="did not pause"):
            await app.run()
        await until(lambda: own_threads() == [])
        broken.clear()
        async with App(topology(), StreamsConfig.of(settings), log=log) as app:
            await app.wait_until_caught_up()
            assert sorted(await read(log)) == ["bad 1", "busy 1", "first 1"]
