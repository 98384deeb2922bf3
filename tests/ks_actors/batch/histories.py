"""The same records for a stream and for a backfill, with the results of each."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ks_actors import Batch, StreamsConfig, partition_of
from ks_actors.batch import backfill
from ks_actors.batch.tables._columns import latest
from ks_actors.log import IsolationLevel, Log, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors.tables._suppressed_serde import BufferedChangeSerde
from ks_actors.snapshots import Place, SnapshotManifest, SnapshotReader
from ks_actors.state import TIMESTAMPED, has_rows
from ks_actors.state.timed import ENDS
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import StoreKind, Topology
from tests.waiting import PATIENCE_S

NUMBER = struct.Struct(">i")
SUFFIX = struct.Struct(">qi")
HELD = struct.Struct(">qq")  # the timestamp and offset that a change begins with which is held back; topic and partition are behind
WINDOWS = (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW)
Rows = list[tuple[Any, ...]]
Input = tuple[str, bytes | None, bytes | None, int]


def topics_of(topology: Topology, outputs: Iterable[str], partitions: int, inputs: Iterable[Input]) -> dict[str, int]:
    read = {topic for part in topology.subtopologies() for topic in part.source_topics} - set(topology.internal_topics)
    wanted = dict.fromkeys([*read, *outputs, *(one[0] for one in inputs)], partitions)
    return wanted | dict.fromkeys(topology.global_topics, 1)


def batches_of(topics: Mapping[str, int], records: Iterable[Input], prefix: str = "") -> list[Outgoing]:
    """Return the records to send, by partition; the prefix is before the names of the topics."""
    batches: dict[TopicPartition, Batch] = {}
    for topic, key, value, time in records:
        number = 0 if key is None else partition_of(key, topics[topic])
        batch = batches.setdefault(TopicPartition(prefix + topic, number), Batch([], [], []))
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(time)
    return [Outgoing(where, batch) for where, batch in batches.items()]


async def fill(log: Log, topics: Mapping[str, int], records: Iterable[Input]) -> None:
    producer = await log.producer(client_id="test")
    await producer.send(batches_of(topics, records))
    await producer.close()


async def read_all(log: Log, topic: str, partitions: int) -> dict[int, list[Batch]]:
    fetcher = log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({TopicPartition(topic, number): 0 for number in range(partitions)})
    found: dict[int, list[Batch]] = {}
    while fetched := await fetcher.fetch(max_wait_ms=0):
        for one in fetched:
            found.setdefault(one.partition.partition, []).append(one.batch)
    await fetcher.close()
    return found


async def read_committed(log: Log, where: TopicPartition) -> list[Batch]:
    """Return all that is committed in a partition, to its end, however long a broker takes to give it."""
    end = (await log.end_offsets([where], IsolationLevel.READ_COMMITTED))[where]
    at = (await log.begin_offsets([where]))[where]
    fetcher = log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({where: at})
    found: list[Batch] = []
    async with asyncio.timeout(PATIENCE_S):
        while at < end:
            for one in await fetcher.fetch(max_wait_ms=200):
                at = one.next_offset
                found.append(one.batch)
    await fetcher.close()
    return found


async def changelogs_of(log: Log, application_id: str) -> dict[tuple[str, int], dict[bytes, Any]]:
    """Return the final rows in the changelogs of an app's stores, by store and partition."""
    found: dict[tuple[str, int], dict[bytes, Any]] = {}
    for name, topic in (await log.describe_topics()).items():
        if name.startswith(f"{application_id}-") and name.endswith("-changelog"):
            store = name.removeprefix(f"{application_id}-").removesuffix("-changelog")
            for number in range(topic.partitions):
                found[store, number] = last(await read_committed(log, TopicPartition(name, number)))
    return found


def rows_of(batches: Iterable[Batch]) -> Rows:
    return [row for batch in batches for row in zip(batch.keys, batch.values, batch.timestamps, batch.headers or [()] * len(batch), strict=True)]


def streamed(
    topology: Topology, settings: Mapping[str, Any], topics: Mapping[str, int], records: Sequence[Input], *, one_by_one: bool = False
) -> tuple[dict[TopicPartition, Rows], dict[tuple[str, int], dict[bytes, Any]]]:
    """Return the records that an app writes to topics, and the final rows of its stores' changelogs.

    With `one_by_one` each record has gone all its way before the next one comes: nothing is left to chance, not even behind repartition topics.
    """

    async def stream(harness: AppHarness) -> Any:
        first = [record for record in records if not one_by_one or record[0] in topology.global_topics]
        await fill(harness.log, topics, first)
        await harness.start()
        await harness.caught_up()
        for record in records if one_by_one else ():
            if record not in first:
                await fill(harness.log, topics, [record])
                await harness.caught_up()
        await harness.close()
        written: dict[TopicPartition, Rows] = {}
        stores: dict[tuple[str, int], dict[bytes, Any]] = {}
        internal = {f"{settings['application_id']}-{name}" for name in topology.internal_topics}
        for name, topic in (await harness.log.describe_topics()).items():
            found = await read_all(harness.log, name, topic.partitions)
            if name.endswith("-changelog"):
                store = name.removeprefix(f"{settings['application_id']}-").removesuffix("-changelog")
                stores.update({(store, number): last(batches) for number, batches in found.items()})
            elif name not in internal and name not in {one[0] for one in records}:
                written.update({TopicPartition(name, number): rows_of(batches) for number, batches in found.items()})
        return written, plain(topology, stores)

    return run_app(stream, topology, topics=topics, start=False, **settings)  # type: ignore[no-any-return]  # as it says


def last(batches: Iterable[Batch]) -> dict[bytes, Any]:
    """Return the final rows of a changelog: value and time by key."""
    found = latest([Batch(one.keys, one.values, one.timestamps, None, range(len(one))) for one in batches])
    return {key: (value, time) for key, value, time in zip(found.keys, found.values, found.timestamps, strict=True)}


def filled_back(
    topology: Topology,
    settings: Mapping[str, Any],
    topics: Mapping[str, int],
    records: Iterable[Input],
    uri: Path,
    *,
    durable: Path | None = None,
    **options: Any,
) -> tuple[dict[TopicPartition, Rows], dict[tuple[str, int], dict[bytes, Any]]]:
    """Return the records that a backfill writes to topics, and the stores of its snapshot."""

    async def main() -> Any:
        async with EmbeddedLog(durable) as log:
            await log.create_topics([NewTopic(name, count) for name, count in topics.items()])
            await fill(log, topics, records)
            done = await backfill(topology, StreamsConfig.of(settings), log=log, snapshot_uri=str(uri), **options)
            with done:
                return {where: rows_of(done.read(where)) for where in done.partitions}, stores_in(topology, done.snapshot, uri)

    return asyncio.run(main())  # type: ignore[no-any-return]  # as it says


def plain(topology: Topology, changelogs: Mapping[tuple[str, int], dict[bytes, Any]]) -> dict[tuple[str, int], dict[bytes, Any]]:
    """Return the rows of changelogs without the times of values that have none, and without empty stores."""
    return {
        place: {key: row if topology.stores[place[0]].kind in TIMESTAMPED else row[0] for key, row in rows.items()}
        for place, rows in changelogs.items()
        if rows
    }


def difference(
    topology: Topology, streams: dict[tuple[str, int], Any], snapshot: dict[tuple[str, int], Any], until: int, *, live: bool = False, prefix: str = ""
) -> list[Any]:
    """Return the differences of a snapshot from the changelogs of a stream, which may still have windows that had expired at `until`.

    `live` says that an app has gone on from it: it has put records into repartition topics itself. The `prefix` is before the names of its topics.
    """
    found: list[Any] = []
    for place in sorted({*streams, *snapshot}):
        spec, expected, got = topology.stores[place[0]], streams.get(place, {}), snapshot.get(place, {})
        if not has_rows(spec) or spec.kind is StoreKind.VERSIONED:  # the last record of a key is not all there is of it
            continue
        if spec.retain_duplicates:  # which of several rows of a time and key has which number says nothing
            expected, got = unnumbered(expected), unnumbered(got)
        if isinstance(spec.value, BufferedChangeSerde):
            expected, got = placed(topology, expected, known=False), placed(topology, got, known=not live, prefix=prefix)
        for key in {*expected, *got}:
            suffix = SUFFIX if spec.kind in WINDOWS else ENDS if spec.kind is StoreKind.SESSION else None
            expires = None if suffix is None else suffix.unpack_from(key, len(key) - suffix.size)[0]
            if expected.get(key) != got.get(key) and (key in got or expires is None or expires > until - spec.retention_ms):
                found.append((place, key, expected.get(key), got.get(key)))
    return found


def placed(topology: Topology, rows: Mapping[bytes, bytes], *, known: bool, prefix: str = "") -> dict[bytes, tuple[Any, ...]]:
    """Return changes that are held back, each with topic, partition and offset of its source record.

    Unless they are `known` those in repartition topics are taken as unknown, as a backfill has them: its records are in none of the log.
    """
    internal = tuple(f"-{name}" for name in topology.internal_topics)
    found: dict[bytes, tuple[Any, ...]] = {}
    for key, row in rows.items():
        time, offset = HELD.unpack_from(row)
        (length,) = NUMBER.unpack_from(row, HELD.size)
        at = HELD.size + NUMBER.size + max(0, length)
        topic = row[HELD.size + NUMBER.size : at].decode().removeprefix(prefix)
        (partition,) = NUMBER.unpack_from(row, at)
        place = (topic, partition, offset) if known or not internal or not topic.endswith(internal) else ("", -1, -1)
        found[key] = (place, time, row[at + NUMBER.size :])
    return found


def unnumbered(rows: Mapping[bytes, Any]) -> dict[bytes, Any]:
    values: dict[bytes, list[Any]] = {}
    for key, value in rows.items():
        values.setdefault(key[: -NUMBER.size] + NUMBER.pack(0), []).append(value)
    return {key: sorted(found) for key, found in values.items()}


def stores_in(topology: Topology, manifest: SnapshotManifest | None, uri: Path) -> dict[tuple[str, int], dict[bytes, Any]]:
    assert manifest is not None
    reader = SnapshotReader.open(Place.of(str(uri)).at(manifest.application_id, manifest.name), application_id=manifest.application_id)
    reader.verify()
    found: dict[tuple[str, int], dict[bytes, Any]] = {}
    for task, content in manifest.tasks.items():
        for name in content.stores:
            rows = rows_of(reader.batches(task, name))
            if rows:
                found[name, int(task.partition("_")[2])] = {
                    row[0]: (row[1], row[2]) if topology.stores[name].kind in TIMESTAMPED else row[1] for row in rows
                }
    return found
