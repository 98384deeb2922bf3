"""Measure a backfill in one process and on Spark, against a stream over the same records.

It also measures starts from the backfill's result. The table goes to stdout; the last line of
stdout is one JSON object. The log is the embedded one, in a directory; Spark is local[2]. Figures:

    backfill_equal    whether all three give the same stores, key by key, and both engines the
                      same records
    backfill_per_s    records per second of a backfill on Spark, in a session that has run one
    cold_s            the first one, from the start of the session to its end: seconds
    local_per_s       records per second of a backfill in one process
    replay_per_s      records per second of an app that reads from the beginning, from its start
                      until all is committed
    snapshot_start_s  from the call of App.seed to a running app, from the backfill's snapshot:
                      a one-time cost
    seeded_start_s    the part of it that each later start takes: its state is on disk
    restore_start_s   the start of the same app without its state on disk, by its changelog
    restored          changelog records restored by that: as many as there are records of history
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

# Put the project first on the path, before the script's directory.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Column, Table

from actors import System
from ks_actors import App, Batch, Consumed, Materialized, Produced, RestoreListener, StreamsBuilder, StreamsConfig, serdes, tune_gc
from ks_actors.batch import Backfill, BatchBridge, SparkSettings, backfill
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.snapshots import Place, SnapshotReader

if TYPE_CHECKING:
    from ks_actors.topology import Topology

RECORDS = 1_000_000
KEYS = 100_000
PARTITIONS = 4
PART = 10_000
SPARK = SparkSettings(master="local[2]")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS, help=f"records of history, of about 100 bytes (default {RECORDS:,})")
    parser.add_argument("--keys", type=int, default=KEYS, help=f"keys that they are of (default {KEYS:,})")
    parser.add_argument("--without-spark", action="store_true", help="without Spark: the backfill in one process, the stream and the starts")
    options = parser.parse_args()
    tune_gc()
    with tempfile.TemporaryDirectory(prefix="ks-actors-bench-") as directory:
        figures = asyncio.run(_measure(Path(directory), options.records, options.keys, spark=not options.without_spark))
    table = Table(
        "what", Column("figure", justify="right"), title=f"history of {options.records:,} records, {options.keys:,} keys, {PARTITIONS} partitions"
    )
    for name, figure in figures.items():
        table.add_row(name, f"{figure:,.3f}" if isinstance(figure, float) else str(figure))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    print(json.dumps(figures), flush=True)


def topology() -> Topology:
    builder = StreamsBuilder()
    values = builder.stream("in", Consumed(serdes.STRING, serdes.STRING))
    sums = values.group_by_key().aggregate(_none, _add, Materialized("sums", serdes.STRING, serdes.json(tuple[int, int])))
    sums.to_stream().to("out", Produced(serdes.STRING, serdes.json(tuple[int, int])))
    return builder.build()


def _none() -> tuple[int, int]:
    return 0, 0


def _add(_: str, value: str, so_far: tuple[int, int]) -> tuple[int, int]:
    return so_far[0] + 1, so_far[1] + len(value)


async def _measure(directory: Path, records: int, keys: int, *, spark: bool) -> dict[str, Any]:
    async with EmbeddedLog(directory / "log") as log:
        await _fill(log, records, keys)
        local = await _backfilled(log, directory, "local")
        on_spark = await _on_spark(log, directory) if spark else []
        starts = await _starts(log, directory, records)
        replay, stores = await _replayed(log, directory)
    figures: dict[str, Any] = {"backfill_equal": stores == local[2] and all(found[1:] == local[1:] for found in on_spark)}
    if on_spark:
        cold, warm = on_spark
        figures |= {"backfill_per_s": round(records / warm[0]), "cold_s": round(cold[0], 2)}
    return {
        **figures,
        "local_per_s": round(records / local[0]),
        "replay_per_s": round(records / replay),
        **starts,
    }


async def _on_spark(log: EmbeddedLog, directory: Path) -> list[tuple[float, str, dict[str, str]]]:
    """Backfill on Spark, first in a new session and then once more in it."""
    async with System("bench") as system:
        bridge = await system.spawn(BatchBridge.spec(SPARK), "batch")
        return [await _backfilled(log, directory, "spark", spark=bridge) for _ in range(2)]


async def _fill(log: EmbeddedLog, records: int, keys: int) -> None:
    await log.create_topics([NewTopic("in", PARTITIONS), NewTopic("out", PARTITIONS)])
    producer = await log.producer(client_id="bench")
    for begin in range(0, records, PART):
        batches = {number: Batch([], [], []) for number in range(PARTITIONS)}
        for number in range(begin, min(begin + PART, records)):
            key = number * 7_919 % keys
            batch = batches[key % PARTITIONS]
            batch.keys.append(b"key-%08d" % key)
            batch.values.append(b"%0*d" % (70 + number % 20, number))
            batch.timestamps.append(number)
        await producer.send([Outgoing(TopicPartition("in", number), batch) for number, batch in batches.items()])
    await producer.close()


def _config(directory: Path, name: str) -> StreamsConfig:
    return StreamsConfig(application_id=name, state_dir=directory / "state", commit_interval_ms=1_000)


async def _backfilled(log: EmbeddedLog, directory: Path, engine: Any, **options: Any) -> tuple[float, str, dict[str, str]]:
    """Return seconds, a checksum of the output, and one of each store.

    The last backfill's snapshot is used for the bootstrap.
    """
    uri = directory / "snapshots"
    shutil.rmtree(uri, ignore_errors=True)
    done = await backfill(topology(), _config(directory, "bench"), log=log, snapshot_uri=str(uri), engine=engine, directory=directory, **options)
    with done:
        return done.seconds, await asyncio.to_thread(_written, done), await asyncio.to_thread(_stores, done, str(uri))


def _written(done: Backfill) -> str:
    total = hashlib.sha256()
    for where in done.partitions:
        for batch in done.read(where):
            for row in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                total.update(repr((where, row)).encode())
    return total.hexdigest()


def _stores(done: Backfill, uri: str) -> dict[str, str]:
    found: dict[str, str] = {}
    if done.snapshot is None:
        return found
    reader = SnapshotReader.open(Place.of(uri).at("bench", done.snapshot.name))
    for task in sorted(done.snapshot.tasks):
        rows = sorted(row for batch in reader.batches(task, "sums") for row in zip(batch.keys, batch.values, batch.timestamps, strict=True))
        found[task] = hashlib.sha256(repr(rows).encode()).hexdigest()
    return found


async def _starts(log: EmbeddedLog, directory: Path, records: int) -> dict[str, Any]:
    """Return the times to bootstrap and start, and to start by a changelog of `records` records."""
    config = _config(directory, "bench")
    began = time.perf_counter()
    app = App(topology(), config, log=log)
    await app.seed(str(directory / "snapshots"))
    seeded = time.perf_counter()
    async with app:
        started = time.perf_counter()
    await _grow(log, "bench-sums-changelog", records)
    shutil.rmtree(directory / "state")
    count = _Restored()
    again = time.perf_counter()
    async with App(topology(), config, log=log, restore_listener=count):
        restored = time.perf_counter()
    return {
        "snapshot_start_s": round(started - began, 3),
        "seeded_start_s": round(started - seeded, 3),
        "restore_start_s": round(restored - again, 3),
        "restored": count.records,
    }


async def _grow(log: EmbeddedLog, changelog: str, records: int) -> None:
    """Rewrite a changelog's rows until it has `records` records.

    An app that had processed that many would have written one for each.
    """
    rows = {number: await _read(log, TopicPartition(changelog, number)) for number in range(PARTITIONS)}
    missing = records - sum(map(len, rows.values()))
    producer = await log.producer(client_id="bench")
    while missing > 0:
        for number, batch in rows.items():
            part = batch.slice(0, min(missing, len(batch)))
            await producer.send([Outgoing(TopicPartition(changelog, number), part)] if len(part) else [])
            missing -= len(part)
    await producer.close()


@final
class _Restored(RestoreListener):
    """Count the restored records."""

    def __init__(self) -> None:
        self.records: int = 0

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.records += total


async def _replayed(log: EmbeddedLog, directory: Path) -> tuple[float, dict[str, str]]:
    began = time.perf_counter()
    async with App(topology(), _config(directory, "replay"), log=log) as app:
        await app.wait_until_caught_up(3_600_000)
        seconds = time.perf_counter() - began
    found = {}
    for number in range(PARTITIONS):
        batch = await _read(log, TopicPartition("replay-sums-changelog", number))
        last = {key: (key, value, time) for key, value, time in zip(batch.keys, batch.values, batch.timestamps, strict=True)}
        found[f"0_{number}"] = hashlib.sha256(repr(sorted(last.values())).encode()).hexdigest()
    return seconds, found


async def _read(log: EmbeddedLog, where: TopicPartition) -> Batch:
    fetcher = log.fetcher(client_id="bench", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({where: 0})
    whole = Batch([], [], [])
    while fetched := await fetcher.fetch(max_wait_ms=0):
        for one in fetched:
            whole.keys += one.batch.keys
            whole.values += one.batch.values
            whole.timestamps += one.batch.timestamps
    await fetcher.close()
    return whole


if __name__ == "__main__":
    main()
