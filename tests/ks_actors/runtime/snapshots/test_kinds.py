"""Every kind of store: a task that has begun with a snapshot is as if it had never lost anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ks_actors import App, Batch, Record, SnapshotRefused, StateStore, StateStoreContext, StreamsConfig, ValueAndTimestamp, serdes, stores
from ks_actors.dsl import Consumed, Produced, StreamsBuilder, Window, Windowed
from ks_actors.log import IsolationLevel, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors import Processor, ProcessorContext
from ks_actors.runtime.snapshots import _bootstrap_versions
from ks_actors.snapshots import Place, Shape, SnapshotReader, SnapshotWriter, SourcePosition, find_snapshots
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.runtime.helpers import GUARANTEES, feed_all
from tests.ks_actors.runtime.snapshots.bootstraps import contents
from tests.ks_actors.runtime.snapshots.test_taking import Heard
from tests.ks_actors.runtime.stores.standbys import restart_empty
from tests.ks_actors.snapshots.helpers import in_memory

ENGINES = ("rocksdb", "in_memory")
RETENTION = 4_000
OUT = TopicPartition("out", 0)


class Totals(StateStore):
    """Sums by key; kept in memory, and nowhere else."""

    def init(self, context: StateStoreContext) -> None:
        self.context = context
        self.totals: dict[str, int] = {}
        context.register(self.restore)

    def add(self, key: str, value: int) -> None:
        self.totals[key] = self.totals.get(key, 0) + value
        self.context.log_change(key.encode(), str(self.totals[key]).encode())

    def restore(self, batch: Batch) -> None:
        self.totals.update((key.decode(), int(value)) for key, value in zip(batch.keys, batch.values, strict=True))

    def close(self) -> None: ...


def put_key_value(store: Any, record: Record[str, str]) -> None:
    store.put(record.key, None if record.value == "gone" else f"{record.value}@{record.timestamp}")


def put_timestamped(store: Any, record: Record[str, str]) -> None:
    store.put(record.key, None if record.value == "gone" else ValueAndTimestamp(record.value, record.timestamp))


def put_window(store: Any, record: Record[str, str]) -> None:
    store.put(record.key, None if record.value == "gone" else record.value, record.timestamp // 100 * 100)


def put_timestamped_window(store: Any, record: Record[str, str]) -> None:
    value = None if record.value == "gone" else ValueAndTimestamp(record.value, record.timestamp)
    store.put(record.key, value, record.timestamp // 100 * 100)


def put_session(store: Any, record: Record[str, str]) -> None:
    start, end, values = record.timestamp, record.timestamp, [record.value]
    for session, value in list(store.find_sessions(record.key, record.timestamp - 50, record.timestamp + 50)):
        start, end = min(start, session.window.start), max(end, session.window.end)
        values.append(value)
        store.remove(session)
    if record.value != "gone":
        store.put(Windowed(record.key, Window(start, end)), "+".join(values)[:60])


def put_version(store: Any, record: Record[str, str]) -> None:
    store.put(record.key, None if record.value == "gone" else record.value, record.timestamp)


def add_to_total(store: Any, record: Record[str, str]) -> None:
    store.add(record.key, record.timestamp)


def versions_of(store: Any) -> list[Any]:
    return [
        (key, as_of, None if (found := store.get(key, as_of)) is None else tuple(found))
        for key in (f"k{number:02d}" for number in range(30))
        for as_of in (None, *range(0, 20_000, 250))
    ]


def everything(store: Any) -> list[Any]:
    return list(store.all())


def sessions_of(store: Any) -> list[Any]:
    return list(store.fetch_range(None, None))


KINDS: dict[str, tuple[Callable[[Any], StoreSpec], Callable[[Any, Any], None], Callable[[Any], list[Any]]]] = {
    "key_value": (lambda engine: stores.key_value("s", type=engine), put_key_value, everything),
    "timestamped_key_value": (lambda engine: stores.key_value("s", type=engine, timestamped=True), put_timestamped, everything),
    "window": (lambda engine: stores.window("s", retention_ms=RETENTION, window_size_ms=100, type=engine), put_window, everything),
    "timestamped_window": (
        lambda engine: stores.window("s", retention_ms=RETENTION, window_size_ms=100, type=engine, timestamped=True),
        put_timestamped_window,
        everything,
    ),
    "duplicates": (
        lambda engine: stores.window("s", retention_ms=RETENTION, window_size_ms=100, type=engine, retain_duplicates=True),
        put_window,
        everything,
    ),
    "session": (lambda engine: stores.session("s", retention_ms=RETENTION, type=engine), put_session, sessions_of),
    "versioned": (lambda engine: stores.versioned_key_value("s", history_retention_ms=RETENTION, type=engine), put_version, versions_of),
    "custom": (lambda _: stores.custom("s", Totals), add_to_total, lambda store: sorted(store.totals.items())),
}


def topology_of(kind: str, engine: str) -> Topology:
    """Put each record into the store, and write all that the store has when a record says so."""
    make, put, read = KINDS[kind]

    class Put(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            super().init(context)
            self.store: Any = context.get_state_store("s")

        def process(self, record: Record[str, str]) -> None:
            if record.key == "show":
                for number, row in enumerate(read(self.store)):
                    self.context.forward(record.with_key(str(number)).with_value(repr(row)))
            else:
                put(self.store, record)

    builder = StreamsBuilder()
    builder.add_state_store(make(engine))
    builder.stream("in", Consumed(serdes.STRING, serdes.STRING)).process(Put, "s").to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def records_of(random: Random, first: int, count: int) -> list[TestRecord[str, str]]:
    """Return puts and deletions around times that grow, some of them late."""
    found = []
    for number in range(first, first + count):
        time = max(0, number * 10 - random.choice((0, 0, 0, 30, 400, 3_000, 6_000)))
        value = "gone" if random.random() < 0.2 else f"v{number}"
        found.append(TestRecord(f"k{random.randrange(30):02d}", value, time))
    return found


def show(time: int) -> TestRecord[str, str]:
    return TestRecord("show", "", time)


SETTINGS: Any = {"default_key_serde": serdes.STRING, "default_value_serde": serdes.STRING, "commit_interval_ms": 50}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_snapshot_and_the_tail_are_as_if_nothing_had_been_lost(kind: str, engine: str, guarantee: str) -> None:
    """The store's content, and its treatment of late records after that, are the same with and without a wiped disk."""
    uri, heard = in_memory(), Heard()

    def run(*, wiped: bool) -> list[Any]:
        shown: list[Any] = []

        async def test(harness: AppHarness) -> None:
            dice = Random(f"{kind} {guarantee}")
            await feed_all(harness, "in", records_of(dice, 0, 900))
            if wiped:
                manifest = await harness.app.snapshot()
                assert manifest.tasks["0_0"].left_out == ({"s": "custom"} if kind == "custom" else {})
                assert (manifest.tasks["0_0"].stores["s"].rows > 0) if kind != "custom" else manifest.tasks["0_0"].stores == {}
            await feed_all(harness, "in", records_of(dice, 900, 200))
            if wiped:
                await restart_empty(harness, heard)
                assert heard.told[0][0] == ("start" if kind == "custom" else "snapshot")
            await feed_all(harness, "in", [show(0), *records_of(dice, 1_100, 200), show(0)])
            shown.extend((record.key, record.value) for record in await harness.read("out"))

        run_app(
            test,
            topology_of(kind, engine),
            topics={"in": 1, "out": 1},
            processing_guarantee=guarantee,
            restore_listener=heard if wiped else None,
            snapshot_uri=uri if wiped else None,
            **SETTINGS,
        )
        return shown

    expected = run(wiped=False)
    assert len(expected) > 20
    assert run(wiped=True) == expected
    assert [snapshot.verify() > 0 for snapshot in find_snapshots(uri, "app")[0]] == [kind != "custom"]


async def put_in(log: EmbeddedLog, records: Sequence[TestRecord[str, str]]) -> None:
    producer = await log.producer(client_id="test")
    keys, values = [(record.key or "").encode() for record in records], [(record.value or "").encode() for record in records]
    await producer.send([Outgoing(TopicPartition("in", 0), Batch(keys, values, [record.timestamp or 0 for record in records]))])
    await producer.close()


def app_of(kind: str, engine: str, log: EmbeddedLog, directory: Path, **more: object) -> App:
    config = StreamsConfig.of({"application_id": "app", "state_dir": directory, **SETTINGS, **more})
    return App(topology_of(kind, engine), config, log=log, topics={"in": 1, "out": 1})


async def shown_by(app: App, log: EmbeddedLog) -> list[tuple[bytes, bytes | None]]:
    """Return the content of the store, by queries."""
    before = len(await contents(log, OUT))
    async with app:
        await put_in(log, [show(0)])
        await app.wait_until_caught_up()
    return (await contents(log, OUT))[before:]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "custom"])
async def test_loaded_state_equals_its_source(kind: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another log the store holds the same, from the database that was made and from the changelog, and goes on the same."""
    uri, dice = in_memory(), Random(kind)
    monkeypatch.setattr(_bootstrap_versions.by_time, "__defaults__", (100,))
    history, tail = records_of(dice, 0, 900), records_of(dice, 900, 300)
    async with EmbeddedLog() as here, EmbeddedLog() as there:
        async with (one := app_of(kind, engine, here, tmp_path / "here", snapshot_uri=uri)):
            await put_in(here, history)
            await one.wait_until_caught_up()
            await one.snapshot()
            await put_in(here, tail)
            await one.wait_until_caught_up()
        expected = await shown_by(app_of(kind, engine, here, tmp_path / "here"), here)
        assert len(expected) > 10
        two = app_of(kind, engine, there, tmp_path / "there")
        await two._create_topics(there)
        await put_in(there, history)
        await two.seed(uri)
        await put_in(there, tail)
        for _ in range(2):
            assert await shown_by(app_of(kind, engine, there, tmp_path / "there"), there) == expected
            shutil.rmtree(tmp_path / "there")
        if kind == "versioned":
            with pytest.raises(SnapshotRefused, match="already has records"):
                await two.seed(uri, if_seeded="overwrite")


async def test_a_store_of_the_users_own_is_handed_over_when_somebody_writes_its_rows(tmp_path: Path) -> None:
    """An app leaves it out and says so, which is refused; rows of the kind custom become its changelog."""
    uri, written = in_memory(), in_memory()
    async with EmbeddedLog() as here, EmbeddedLog() as there:
        async with (one := app_of("custom", "rocksdb", here, tmp_path / "here", snapshot_uri=uri)):
            await put_in(here, records_of(Random(1), 0, 10))
            await one.wait_until_caught_up()
            await one.snapshot()
        two = app_of("custom", "rocksdb", there, tmp_path / "there")
        with pytest.raises(SnapshotRefused, match=r"their state cannot be loaded: s \(a custom store"):
            await two.seed(uri)
        with SnapshotWriter(written, "app", created_ms=1) as snapshot:
            rows = snapshot.store("0_0", Shape("s", "custom"))
            rows.write(Batch([b"a", b"b"], [b"7", b"5"], [1, 2]))
            snapshot.add("0_0", rows.close(), positions=[SourcePosition("in", 0, 0)])
            snapshot.commit()
        await two.seed(written)
        assert await shown_by(app_of("custom", "rocksdb", there, tmp_path / "there"), there) == [(b"0", b"('a', 7)"), (b"1", b"('b', 5)")]


async def records_up_to(log: EmbeddedLog, changelog: TopicPartition, end: int) -> list[tuple[bytes, bytes | None, int]]:
    fetcher = log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({changelog: 0})
    at, found = 0, []
    while at < end:
        for fetched in await fetcher.fetch(max_wait_ms=50):
            batch, at = fetched.batch, fetched.next_offset
            rows = zip(batch.offsets or (), batch.keys, batch.values, batch.timestamps, strict=True)
            found += [(key, value, time) for offset, key, value, time in rows if offset < end]
    await fetcher.close()
    return found


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["session", "versioned"])
async def test_rows_are_those_of_one_commit_while_work_goes_on(kind: str, engine: str, guarantee: str, tmp_path: Path) -> None:
    """With any puts and commits while they are written, they are the changelog up to the offset in the manifest."""
    uri, dice = in_memory(), Random(kind)
    async with EmbeddedLog() as log:
        settings = {"snapshot_uri": uri, "processing_guarantee": guarantee, "commit_interval_ms": 5, "snapshot_keep": 9}
        async with (app := app_of(kind, engine, log, tmp_path, **settings)):
            manifests = []
            for part in range(6):
                await put_in(log, records_of(dice, part * 700, 700))
                manifests.append(await app.snapshot())
            await app.wait_until_caught_up()
        for manifest in manifests:
            stored = manifest.tasks["0_0"].stores["s"]
            assert stored.next_offset is not None
            expected: dict[bytes, tuple[bytes, int]] = {}
            for key, value, time in await records_up_to(log, TopicPartition("app-s-changelog", 0), stored.next_offset):
                if kind == "versioned":
                    expected[key + time.to_bytes(8, "big")] = (b"", -1 - time) if value is None else (value, time)
                else:
                    expected.pop(key, None)
                    expected |= {} if value is None else {key: (value, 0)}
            reader = SnapshotReader.open(Place.of(uri).at("app", manifest.name))
            rows = [row for batch in reader.batches("0_0", "s") for row in zip(batch.keys, batch.values, batch.timestamps, strict=True)]
            assert {key: value for key, value, _ in rows}.items() <= {key: value for key, (value, _) in expected.items()}.items()
            missing = expected.keys() - {key for key, _, _ in rows}
            if kind == "versioned":
                assert {key: (value, time) for key, value, time in rows}.items() <= expected.items()
                assert all(int.from_bytes(key[-8:], "big") < stored.observed - RETENTION for key in missing)
            else:
                assert all(int.from_bytes(key[-16:-8], "big") <= stored.observed - RETENTION for key in missing)
