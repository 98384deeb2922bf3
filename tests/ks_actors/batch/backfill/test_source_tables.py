"""Tables that are restored from the topics that they are read from (`reuse.ktable.source.topics`), filled back and handed over."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, Joined, Materialized, Produced, StreamsBuilder, StreamsConfig, Topology, serdes
from ks_actors.batch import backfill
from ks_actors.dsl import Stream
from ks_actors.log import IsolationLevel, NewTopic, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.topology import StoreType
from tests.ks_actors.batch.histories import Input, Rows, fill, read_committed, rows_of, streamed
from tests.ks_actors.runtime.helpers import STRINGS
from tests.ks_actors.runtime.stores.standbys import Heard
from tests.ks_actors.state.sqlite_engine import SqliteEngine

REUSE = "reuse.ktable.source.topics"
ROWS: list[Input] = [("table", f"k{number % 7}".encode(), None if number % 5 == 4 else f"v{number}".encode(), 10 * number) for number in range(40)]
STREAM: list[Input] = [("in", f"k{number % 9}".encode(), b"x", 10 * number + 5) for number in range(40)]
RECORDS = sorted([*ROWS, *STREAM], key=lambda record: record[3])


def joined(store: StoreType) -> Topology:
    """A stream that is joined with a table, and counted."""
    builder = StreamsBuilder()
    table = builder.table("table", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING, store_type=store))
    stream = builder.stream("in", STRINGS).left_join(table, lambda value, row: f"{value}:{row}", Joined(serdes.STRING, serdes.STRING))
    return counted(builder, stream, store)


def merged(store: StoreType) -> Topology:
    """A stream with the changes of a table, counted: nothing asks for as many partitions of both."""
    builder = StreamsBuilder()
    table = builder.table("table", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING, store_type=store))
    stream: Stream[str, Any] = builder.stream("in", STRINGS)
    return counted(builder, stream.merge(table.to_stream()), store)


def counted(builder: StreamsBuilder, stream: Stream[str, Any], store: StoreType) -> Topology:
    counts = stream.group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG, store_type=store))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build(StreamsConfig(application_id="app", topology_optimization=REUSE))


async def stores(app: App) -> dict[str, dict[str, Any]]:
    return {name: {key: value async for key, value in app.store(name, timestamped=True).all()} for name in ("rows", "counts")}


@pytest.mark.parametrize("store", ["rocksdb", "in_memory", SqliteEngine])
@pytest.mark.parametrize(("make", "partitions"), [(joined, 2), (merged, 1)])
def test_history_and_live_tail_are_a_stream_over_all_records(make: Any, partitions: int, store: StoreType, tmp_path: Path) -> None:
    """Record for record, with as many partitions as the stream and with fewer; nothing is written to the topic; a wiped member has the same."""
    topology = make(store)
    topics = {"table": partitions, "in": 2, "out": 2}
    settings: dict[str, Any] = {"application_id": "app", "topology_optimization": REUSE}
    written, _ = streamed(topology, settings, topics, RECORDS, one_by_one=True)
    config = StreamsConfig.of({**settings, "snapshot_uri": str(tmp_path / "snapshots"), "state_dir": tmp_path / "state"})
    history, tail = RECORDS[:50], RECORDS[50:]

    async def main() -> None:
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic(name, count) for name, count in topics.items()])
            await fill(log, topics, history)
            with await backfill(topology, config, log=log, snapshot_uri=config.snapshot_uri) as done:
                got: dict[TopicPartition, Rows] = {where: rows_of(done.read(where)) for where in done.partitions}
                assert done.snapshot is not None
                kept = {name: sorted(task.stores) for name, task in done.snapshot.tasks.items()}
            assert kept == {f"0_{number}": ["counts", "rows"] if number < partitions else ["counts"] for number in range(2)}
            tables = [TopicPartition("table", number) for number in range(partitions)]
            before = await log.end_offsets(tables, IsolationLevel.READ_UNCOMMITTED)
            app = App(topology, config, log=log)
            await app.seed(str(tmp_path / "snapshots"))
            assert await log.end_offsets(tables, IsolationLevel.READ_UNCOMMITTED) == before
            async with app:
                for record in tail:
                    await fill(log, topics, [record])
                    await app.wait_until_caught_up()
                everything = await stores(app)
            for where in (TopicPartition("out", number) for number in range(2)):
                got.setdefault(where, []).extend(rows_of(await read_committed(log, where)))
            assert got == written
            last = {key: value for _, key, value, _ in ROWS}
            assert {key: row.value for key, row in everything["rows"].items()} == {
                key.decode(): value.decode() for key, value in last.items() if key is not None and value is not None
            }
            shutil.rmtree(tmp_path / "state")
            async with App(topology, config.replace(snapshot_uri=None), log=log) as wiped:
                assert await stores(wiped) == everything

    asyncio.run(main())


@pytest.mark.parametrize("wiped", [False, True])
async def test_it_begins_at_the_end_of_the_snapshot(wiped: bool, tmp_path: Path) -> None:
    """A table on disk is there when the app starts; one without a disk reads the topic up to the handover, and processes the rest."""
    topology, topics = joined("rocksdb"), {"table": 1, "in": 1, "out": 1}
    config = StreamsConfig(application_id="app", topology_optimization=REUSE, snapshot_uri=str(tmp_path / "snapshots"), state_dir=tmp_path / "state")
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic(name, count) for name, count in topics.items()])
        await fill(log, topics, ROWS)
        with await backfill(topology, config, log=log, until=200, snapshot_uri=config.snapshot_uri) as done:
            assert done.positions[TopicPartition("table", 0)] == 20
        heard = Heard()
        app = App(topology, config.replace(snapshot_uri=None), log=log, restore_listener=heard)
        await app.seed(str(tmp_path / "snapshots"))
        if wiped:
            shutil.rmtree(tmp_path / "state")
        async with app:
            await app.wait_until_caught_up()
            assert {told[2] for told in heard.told if told[0] == "running" and told[2]} == ({20} if wiped else set())
            assert app.metrics()["process-total"] == 20
