"""The place of a queried store: not started yet, restoring, in a thread, moved, closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from ks_actors import App, NotRunning, ProcessingFailed, QueryFailed, SerializationError, StreamsConfig, TaskId, UnknownStore, serdes, stores
from ks_actors.dsl import Materialized, StreamsBuilder, TimeWindows
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.query import FailureReason, KeyQuery, LagInfo, Position, PositionBound, RangeQuery, StateQueryRequest, _scan
from ks_actors.records._batch import Batch
from ks_actors.records._partitioner import partition as partition_of
from ks_actors.runtime import InstanceState, RestoreListener, blocking
from ks_actors.state.core import _row_scan
from ks_actors.task import Frozen
from ks_actors.task.calls._thread_guard import ThreadGuard
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.query.helpers import COMMITTED, ENGINES, STRINGS, UNCOMMITTED, everything, processed, put
from tests.ks_actors.runtime.helpers import GUARANTEES, Bomb, counting, feed, feed_all, in_app, in_virtual_time
from tests.waiting import PATIENCE_S, until

TOPICS = {"in": 4, "out": 1}


async def fill(harness: AppHarness, number: int = 100) -> dict[str, int]:
    """Count `number` keys, once each, and wait for the commit."""
    await feed_all(harness, "in", [TestRecord(f"k{key:04}", "v", 0) for key in range(number)])
    return {f"k{key:04}": 1 for key in range(number)}


# --- names and times ------------------------------------------------------------------------------------------------------------


@in_app(counting(), topics=TOPICS)
async def test_a_name_that_the_topology_does_not_have_is_told_at_once(harness: AppHarness) -> None:
    """A store of another name is an error that lists those there are, before the start as well as after it."""
    with pytest.raises(UnknownStore, match="no store 'sums'; it has counts"):
        harness.app.store("sums")
    with pytest.raises(UnknownStore, match="no store 'sums'"):
        await harness.app.query(StateQueryRequest(store="sums", query=RangeQuery()))


@in_virtual_time
async def test_before_the_start_and_after_the_end_there_is_nothing_to_read() -> None:
    """An app that is not started, is closed, or has ended by an error raises NotRunning for any query."""
    bomb = Bomb()

    async def refused(app: App, match: str) -> None:
        store = app.store("counts")
        for ask in (
            lambda: store.get("a"),
            store.all,
            store.approximate_num_entries,
            lambda: app.query(StateQueryRequest(store="counts", query=RangeQuery())),
            app.store_lags,
        ):
            with pytest.raises(NotRunning, match=match):
                await ask()

    async with AppHarness(counting(bomb=bomb), topics=TOPICS) as harness:
        await refused(App(counting(), harness.config), "the app is CREATED: its stores can be read once it has started")
        app = harness.app
        await fill(harness)
        await harness.close()
        await refused(app, "the app is NOT_RUNNING: its stores can no longer be read")
        await harness.restart()
        app, bomb.armed = harness.app, 1
        await harness.produce("in", "a", "v")
        assert isinstance(await harness.ended(), ProcessingFailed)
        await refused(app, "the app is ERROR")


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_virtual_time
async def test_the_level_of_isolation_is_a_setting(guarantee: str) -> None:
    """Exactly once queries see committed rows, at least once all rows; the setting changes that, and so may each query."""
    options: dict[str, Any] = {"topics": {"in": 3}, "commit_interval_ms": 600_000, "transaction_timeout_ms": 600_000}
    async with AppHarness(everything("rocksdb"), processing_guarantee=guarantee, **options) as harness:
        await put(harness, a="a1")
        await harness.app.commit()
        await put(harness, a="a2")
        seen = {"read_committed": "a1", "read_uncommitted": "a2"}
        default = harness.config.default_interactive_query_isolation_level
        assert default is (COMMITTED if guarantee == "exactly_once_v2" else UNCOMMITTED)
        assert await harness.app.store("plain").get("a") == seen[default.value]
        for level in (COMMITTED, UNCOMMITTED):
            assert await harness.app.store("plain", isolation=level).get("a") == seen[level.value]
            async with harness.another(default_interactive_query_isolation_level=level.value.upper(), start=False) as other:
                assert other.config.default_interactive_query_isolation_level is level


# --- partitions -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@in_virtual_time
async def test_a_key_of_another_instance_is_an_error(engine: Literal["rocksdb", "in_memory"]) -> None:
    """A key of a partition elsewhere is NOT_PRESENT here, and found there; a scan has the rows of the partitions that are here."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", STRINGS).group_by_key()
    grouped.count(Materialized("counts", serdes.STRING, serdes.LONG, store_type=engine))
    windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(1000))
    windowed.count(Materialized("windows", serdes.STRING, serdes.LONG, store_type=engine))
    async with AppHarness(builder.build(), topics=TOPICS) as harness:
        expected = await fill(harness)
        async with harness.another() as other:
            await harness.kit.clock.advance(5)
            here = {task.partition for task in harness.app._metrics.tasks}
            assert 0 < len(here) < 4
            for key in expected:
                where, elsewhere = (harness, other) if partition_of(key.encode(), 4) in here else (other, harness)
                assert await where.app.store("counts").get(key) == 1
                with pytest.raises(QueryFailed, match="not on this instance") as failed:
                    await elsewhere.app.store("counts").get(key)
                assert failed.value.reason is FailureReason.NOT_PRESENT
                assert (failed.value.store, failed.value.partition) == ("counts", partition_of(key.encode(), 4))
            windows = harness.app.store("windows")
            home = next(key for key in expected if partition_of(key.encode(), 4) in here)
            away = next(key for key in expected if partition_of(key.encode(), 4) not in here)
            assert await windows.fetch(home, 0, 10) == await windows.backward_fetch(home, 0, 10) == [(0, 1)]
            for ask in (lambda: windows.fetch(away, 0), lambda: windows.fetch(away, 0, 10), lambda: windows.backward_fetch(away, 0, 10)):
                with pytest.raises(QueryFailed, match="not on this instance") as failed:
                    await ask()
            rows, others = await harness.app.store("counts").all(), await other.app.store("counts").all()
            assert dict([*rows, *others]) == expected
            assert {partition_of(key.encode(), 4) for key, _ in rows} == here
            other_one = min({0, 1, 2, 3} - here)
            with pytest.raises(QueryFailed, match=f"partition {other_one} of store counts is not on this instance") as failed:
                await harness.app.store("counts", partition=other_one).all()
            assert failed.value.reason is FailureReason.NOT_PRESENT
            for number in (-1, 4):
                with pytest.raises(QueryFailed, match=f"has no partition {number}: it has 4") as failed:
                    await harness.app.store("counts", partition=number).get("k0001")
                assert failed.value.reason is FailureReason.DOES_NOT_EXIST


@in_app(counting(), topics=TOPICS)
async def test_a_key_that_another_partitioner_has_placed_is_found(harness: AppHarness) -> None:
    """`get` looks in the other partitions that are here too, and with `partition` in that one only."""
    home = partition_of(b"a", 4)
    elsewhere = (home + 1) % 4
    await feed(harness, "in", "a", "v", partition=elsewhere)
    assert await harness.app.store("counts").get("a") == 1
    assert await harness.app.store("counts", partition=elsewhere).get("a") == 1
    assert await harness.app.store("counts", partition=home).get("a") is None


# --- a task comes and goes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@in_virtual_time
async def test_a_scan_of_a_task_that_moves_ends_in_an_error(engine: Literal["rocksdb", "in_memory"], monkeypatch: pytest.MonkeyPatch) -> None:
    """When a partition leaves while it is scanned the scan raises NOT_PRESENT at its next rows: it never ends as if that were all."""
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(_scan, "GLANCES", 1)
    async with AppHarness(counting(engine), topics=TOPICS) as harness:
        await fill(harness)
        scans = [aiter(harness.app.store("counts", partition=number).all()) for number in range(4)]
        first = [await anext(scan) for scan in scans]
        assert len({partition_of(key.encode(), 4) for key, _ in first}) == 4
        async with harness.another():
            await harness.kit.clock.advance(5)
            here = {task.partition for task in harness.app._metrics.tasks}
            for number, scan in enumerate(scans):
                if number in here:
                    assert len([row async for row in scan]) > 1
                else:
                    with pytest.raises(QueryFailed, match="has left this instance") as failed:
                        await anext(scan)
                    assert failed.value.reason is FailureReason.NOT_PRESENT


@pytest.mark.parametrize("engine", ENGINES)
@in_virtual_time
async def test_a_scan_does_not_keep_an_app_from_closing(engine: Literal["rocksdb", "in_memory"], monkeypatch: pytest.MonkeyPatch) -> None:
    """An app closes while it is scanned; the scan raises, and the state directory is free for the next one."""
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(_scan, "GLANCES", 1)
    async with AppHarness(counting(engine), topics=TOPICS) as harness:
        expected = await fill(harness)
        scan = aiter(harness.app.store("counts").all())
        await anext(scan)
        await harness.close()
        with pytest.raises(NotRunning):
            await anext(scan)
        await harness.restart()
        assert dict(await harness.app.store("counts").all()) == expected


@pytest.mark.parametrize("engine", ENGINES)
@in_virtual_time
async def test_a_task_that_restores_is_not_up_to_date(engine: Literal["rocksdb", "in_memory"]) -> None:
    """While a task restores, its store is NOT_ACTIVE; a query that allows stale reads gets the rows so far; lags tell how much is missing."""
    seen: dict[str, Any] = {"reasons": set(), "stale": [], "lags": []}
    looking: set[asyncio.Future[None]] = set()

    async def look(app: App) -> None:
        asks: dict[str, Callable[[], Awaitable[Any]]] = {"get": lambda: app.store("counts").get("k0001"), "all": app.store("counts").all}
        for name, ask in asks.items():
            try:
                await ask()
            except QueryFailed as failed:
                seen["reasons"].add((name, failed.reason))
        request = StateQueryRequest(store="counts", query=RangeQuery(), require_active=True)
        seen["reasons"] |= {("query", result.failure) for result in (await app.query(request)).partition_results.values()}
        seen["stale"].append(len(await app.store("counts", stale=True).all()))
        with suppress(QueryFailed):  # a partition may not be here yet
            assert await app.store("counts", stale=True, partition=0).get("k0001") is None
        with suppress(QueryFailed):
            assert await app.store("counts", stale=True).get("k0001") in {1, None}
        seen["lags"].append(await app.store_lags())

    class Looks(RestoreListener):
        def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
            if app is not None:
                looking.add(asyncio.ensure_future(look(app)))

        def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
            self.on_restore_start(partition, store, 0)

    app: App | None = None
    async with AppHarness(counting(engine), topics=TOPICS, restore_listener=Looks()) as harness:
        expected = await fill(harness, 3000)
        await harness.crash()
        harness.wipe_state()
        starting = asyncio.ensure_future(harness.start())
        await harness.turns(1)
        app = harness.app
        await until(lambda: app.state is not InstanceState.CREATED)
        with pytest.raises(QueryFailed) as failed:
            await app.store("counts").get("k0001")
        assert failed.value.reason is FailureReason.NOT_PRESENT
        await starting
        await asyncio.gather(*looking)
        assert dict(await app.store("counts").all()) == expected
        assert seen["reasons"] >= {(name, FailureReason.NOT_ACTIVE) for name in ("get", "all", "query")}
        assert any(number < 3000 for number in seen["stale"])
        behind = [lag.offset_lag for lags in seen["lags"] for lag in lags.get("counts", {}).values()]
        assert any(lag > 0 for lag in behind)
        lags = (await app.store_lags())["counts"]
        assert lags.keys() == {0, 1, 2, 3}
        assert all(lag.offset_lag == 0 and lag == LagInfo(lag.end_offset_position, lag.end_offset_position) for lag in lags.values())


@in_app(counting(), topics=TOPICS)
async def test_a_standby_is_stale(harness: AppHarness) -> None:
    """A standby store is NOT_ACTIVE, unless stale reads are allowed."""
    await fill(harness)
    registry = harness.app._registry
    for registered in registry:
        registry.standby(registered.task, registered.stores)
    with pytest.raises(QueryFailed, match=r"may be stale: \d \(standby\)") as failed:
        await harness.app.store("counts").get("k0001")
    assert failed.value.reason is FailureReason.NOT_ACTIVE
    assert await harness.app.store("counts", stale=True).get("k0001") == 1
    result = await harness.app.query(StateQueryRequest(store="counts", query=RangeQuery()))
    assert all(one.is_success and one.position for one in result.partition_results.values())


@in_app(counting("in_memory"), topics=TOPICS)
async def test_a_store_that_is_closed_behind_the_scenes_is_gone(harness: AppHarness) -> None:
    """When a store is closed, for any reason, its reader gets NOT_PRESENT; committed rows of a task that has left are not readable here."""
    await fill(harness)
    registry = harness.app._registry
    registry.committed(TaskId(7, 7), Frozen({}, {}, {}))
    for registered in registry:
        registered.stores.close(clean=False)
    for ask in (lambda: harness.app.store("counts").get("k0001"), harness.app.store("counts").all):
        with pytest.raises(QueryFailed, match="has left this instance") as failed:
            await ask()
        assert failed.value.reason is FailureReason.NOT_PRESENT
    await harness.crash()


@in_virtual_time
async def test_a_store_that_no_processor_has_is_nowhere() -> None:
    """A store that is connected to nothing has no partitions."""
    topology = everything("in_memory")
    topology.add_state_store(stores.key_value("idle", serdes.STRING, serdes.STRING))
    async with AppHarness(topology, topics={"in": 2}) as harness:
        for options, reason in ((dict[str, Any](), FailureReason.NOT_PRESENT), ({"partition": 0}, FailureReason.DOES_NOT_EXIST)):
            with pytest.raises(QueryFailed) as failed:
                await harness.app.store("idle", **options).get("a")
            assert failed.value.reason is reason


# --- scans ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "window"])
@pytest.mark.parametrize("engine", ENGINES)
@in_app(lambda engine: everything(engine), topics={"in": 2})
async def test_a_scan_lets_others_have_their_turn(harness: AppHarness, engine: Literal["rocksdb", "in_memory"], name: str) -> None:
    """While many rows are read, other tasks of the loop run again and again."""
    turns = 0

    def tick() -> bool:
        nonlocal turns
        turns += 1
        return False

    await feed_all(harness, "in", [TestRecord(f"k{key}", "v", 0) for key in range(6000)])
    ticking = asyncio.ensure_future(until(tick))
    for _ in range(2):
        before = turns
        rows = await harness.app.store(name).all()
        assert len(rows) == 6000
        assert turns - before > 100
    ticking.cancel()


@in_virtual_time
async def test_a_reader_that_never_ends_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows replaced by commits are remembered for a scan only up to a limit: then the scan raises, with the reason."""
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(_scan, "GLANCES", 1)
    monkeypatch.setattr(_row_scan, "MOST_NOTES", 300)
    async with AppHarness(counting("in_memory"), topics=TOPICS) as harness:
        await fill(harness)
        scan = aiter(harness.app.store("counts").all())
        await anext(scan)
        for _ in range(20):
            await fill(harness)
        with pytest.raises(QueryFailed, match=r"was not read to its end while 3\d\d changes were committed") as failed:
            await anext(scan)
        assert failed.value.reason is FailureReason.STORE_EXCEPTION


@in_virtual_time
async def test_bytes_that_no_serde_reads_are_told_of() -> None:
    """Bytes that the serde cannot read are a SerializationError to the reader, and STORE_EXCEPTION in the result of a request."""
    picky = serdes.Serde.of(str.encode, lambda data: data.decode("ascii"))

    def stored(serde: serdes.Serde[str]) -> Topology:
        builder = StreamsBuilder()
        builder.stream("in", STRINGS).to_table(Materialized("table", serdes.STRING, serde, store_type="rocksdb"))
        return builder.build()

    async with AppHarness(stored(serdes.STRING), topics={"in": 1}) as harness:
        await feed(harness, "in", "a", "é", 0)
        await harness.close()
        await harness.restart(topology=stored(picky))
        with pytest.raises(SerializationError, match="cannot read"):
            await harness.app.store("table").get("a")
        with pytest.raises(SerializationError, match="cannot read"):
            await harness.app.store("table").all()
        result = await harness.app.query(StateQueryRequest(store="table", query=RangeQuery()))
        (failed,) = result.partition_results.values()
        assert failed.failure is FailureReason.STORE_EXCEPTION
        assert "cannot read" in failed.message


# --- global tables, threads -----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_global_table_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A global table is the same on each instance: it has no partitions to choose, and is there from the start on."""
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(_scan, "GLANCES", 1)
    builder = StreamsBuilder()
    builder.global_table("names", STRINGS, Materialized("names-store", serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).to("out")
    async with AppHarness(
        builder.build(), topics={"in": 1, "out": 1, "names": 3}, start=False, default_key_serde=serdes.STRING, default_value_serde=serdes.STRING
    ) as harness:
        await harness.produce_all("names", [TestRecord(f"n{number}", str(number), 0) for number in range(50)])
        await harness.start()
        store = harness.app.store("names-store")
        assert await store.get("n7") == "7"
        assert await store.get("n99") is None
        assert len(await store.all()) == 50
        assert await store.range("n48", None) == [("n48", "48"), ("n49", "49"), *[(f"n{number}", str(number)) for number in range(5, 10)]]
        await harness.produce("names", "n7", "seven", 0)
        while await store.get("n7") == "7":
            await asyncio.sleep(0.01)
        assert await harness.app.store("names-store", isolation=COMMITTED).get("n7") == "seven"
        scan = aiter(store.all())
        await anext(scan)
        await harness.close()
        with pytest.raises(NotRunning):
            await anext(scan)


class Gate:
    """A function that holds its thread until it is let go."""

    def __init__(self) -> None:
        self.inside: threading.Event = threading.Event()
        self.open: threading.Event = threading.Event()

    def topology(self) -> Topology:
        @blocking
        def hold(value: str) -> str:
            if value == "hold":
                self.inside.set()
                assert self.open.wait(PATIENCE_S)
            return value

        builder = StreamsBuilder()
        builder.stream("in", STRINGS).map_values(hold).to_table(Materialized("table", serdes.STRING, serdes.STRING, store_type="in_memory"))
        return builder.build()


async def send(log: EmbeddedLog, *values: str) -> None:
    """Write values of one key each."""
    producer = await log.producer(client_id="test")
    await producer.send(
        [
            Outgoing(
                TopicPartition("in", 0),
                Batch([f"k{number}".encode() for number in range(len(values))], [value.encode() for value in values], [0] * len(values)),
            )
        ]
    )
    await producer.close()


async def test_a_task_in_a_thread_is_visited_between_two_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of a task with blocking functions waits for its thread, until the deadline; waiting queries are answered when the thread is back."""
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0.0)
    gate = Gate()
    config = StreamsConfig(application_id="app", state_dir=tmp_path, poll_ms=5)
    async with EmbeddedLog() as log, App(gate.topology(), config, log=log, topics={"in": 1}) as app:
        await send(log, "v0", "v1")

        async def there() -> bool:
            return await app.store("table").all() == [("k0", "v0"), ("k1", "v1")]

        await until(there)
        local = app._local
        scan = _scan.Scan(lambda reader: reader.scan(b"", b"", committed=False, reverse=False), lambda row: row[1])
        slices = [rows async for rows in _scan.slices(local, local.parts("table"), scan, 10_000)]
        assert (slices[0], [key for keys in slices for key in keys]) == ([], ["k0", "k1"])  # it says that it goes on before the first row
        await send(log, "hold")
        await until(gate.inside.is_set)
        for ask in (lambda: app.store("table", timeout_ms=30).get("k0"), lambda: app.store("table", timeout_ms=30).all()):
            with pytest.raises(QueryFailed, match="is in a thread, which did not return within 30 ms") as failed:
                await ask()
            assert failed.value.reason is FailureReason.STORE_EXCEPTION
        one, all_of_it = (
            asyncio.ensure_future(app.store("table").get("k0")),
            asyncio.ensure_future(app.query(StateQueryRequest(store="table", query=RangeQuery()))),
        )
        bound = PositionBound.at(Position.of({"in": {0: 1_000}}))
        behind = asyncio.ensure_future(app.query(StateQueryRequest(store="table", query=KeyQuery("k0"), bound=bound)))
        await asyncio.sleep(0)
        given_up = asyncio.ensure_future(app.store("table").get("k0"))
        await asyncio.sleep(0)
        given_up.cancel()
        app._metrics.tasks[TaskId(0, 0)].thread_guard.on_return[-1]()  # nobody waits for it any more
        gate.open.set()
        assert (await behind).partition_results[0].failure is FailureReason.NOT_UP_TO_BOUND
        assert await one in {"v0", "hold"}
        found = (await all_of_it).partition_results[0].value
        assert found is not None
        assert [key for key, _ in found] == ["k0", "k1"]
        assert app._metrics.tasks[TaskId(0, 0)].thread_guard.on_return == []


async def test_stores_are_read_from_another_thread(tmp_path: Path) -> None:
    """Another thread asks by `run_coroutine_threadsafe`."""
    config = StreamsConfig(application_id="app", state_dir=tmp_path, poll_ms=5)
    builder = StreamsBuilder()
    builder.table("in", STRINGS, Materialized("table", serdes.STRING, serdes.STRING))
    async with EmbeddedLog() as log, App(builder.build(), config, log=log, topics={"in": 1}) as app:
        await send(log, "v0", "v1")
        await app.wait_until_caught_up()
        loop = asyncio.get_running_loop()

        async def everything() -> list[Any]:
            return await app.store("table").all()

        def ask() -> tuple[Any, Any]:
            one = asyncio.run_coroutine_threadsafe(app.store("table").get("k1"), loop)
            return one.result(30), asyncio.run_coroutine_threadsafe(everything(), loop).result(30)

        assert await asyncio.to_thread(ask) == ("v1", [("k0", "v0"), ("k1", "v1")])


# --- standbys and caches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@in_app(lambda engine: counting(engine), topics=TOPICS, num_standby_replicas=1)
async def test_a_real_standby_answers_queries_that_allow_it(harness: AppHarness, engine: Literal["rocksdb", "in_memory"]) -> None:
    """With `stale` all partitions answer; otherwise each row comes from the instance that has its active task, and a key elsewhere is NOT_ACTIVE."""
    expected = await fill(harness)
    async with harness.another() as other:
        await harness.caught_up()
        await harness.kit.clock.advance(20)
        active: list[dict[str, int]] = []
        for one in (harness, other):
            mine = {task.partition for task in one.app._metrics.tasks}
            assert len(mine) == 2
            assert dict(await one.app.store("counts", stale=True).all()) == expected
            active.append(dict(await one.app.store("counts").all()))
            assert 0 < await one.app.store("counts").approximate_num_entries() < len(expected)
            (standby, *_) = {0, 1, 2, 3} - mine
            with pytest.raises(QueryFailed, match=r"\(standby\)") as failed:
                await one.app.store("counts", partition=standby).all()
            assert failed.value.reason is FailureReason.NOT_ACTIVE
            with pytest.raises(QueryFailed, match=r"\(standby\)") as failed:
                await one.app.store("counts").get(next(key for key in expected if key not in active[-1]))
            assert failed.value.reason is FailureReason.NOT_ACTIVE
            for key in expected:
                assert await one.app.store("counts", stale=True).get(key) == 1
            result = await one.app.query(StateQueryRequest(store="counts", query=RangeQuery(), require_active=True))
            assert {number for number, partition in result.partition_results.items() if partition.is_success} == mine
            lags = (await one.app.store_lags())["counts"]
            assert lags.keys() == {0, 1, 2, 3}
            assert all(lag.offset_lag == 0 for lag in lags.values())
        assert active[0] | active[1] == expected
        assert not active[0].keys() & active[1].keys()
        scan = aiter(other.app.store("counts", stale=True).all())
        await anext(scan)
        await harness.close()
        await other.kit.clock.advance(20)
        assert dict(await other.app.store("counts").all()) == expected
        await scan.aclose()  # type: ignore[attr-defined]  # it is a generator


@pytest.mark.parametrize("engine", ENGINES)
@in_app(lambda engine: counting(engine), topics=TOPICS, statestore_cache_max_bytes=1 << 20, commit_interval_ms=3_600_000)
async def test_cached_updates_are_visible_to_queries(harness: AppHarness, engine: Literal["rocksdb", "in_memory"]) -> None:
    """A cache holds back updates from nodes downstream, not from queries."""
    for number in range(1, 4):
        await harness.produce("in", "a", "v", 0)
        await processed(harness)
        assert await harness.app.store("counts", isolation=UNCOMMITTED).get("a") == number
        assert await harness.app.store("counts", isolation=COMMITTED).get("a") is None
    assert await harness.read("out") == []
    await harness.app.commit()
    assert await harness.app.store("counts", isolation=COMMITTED).all() == [("a", 3)]


def test_nobody_visits_a_task_whose_thread_goes_on() -> None:
    """Visits wait until a thread has come to its end; one that is not waited for any more may not have."""
    thread_guard = ThreadGuard()
    visited: list[int] = []
    for quiet, on_return in ((False, []), (True, [1])):
        thread_guard.begin()
        if not visited and not thread_guard.on_return:
            thread_guard.on_return.append(lambda: visited.append(1))
        assert thread_guard.since is not None
        thread_guard.end(quiet=quiet)
        assert visited == on_return
        assert len(thread_guard.on_return) == 1 - len(on_return)
