"""Snapshots on a real Kafka: handed over, taken, and begun with."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from ks_actors import App, Batch, SnapshotRefused, StreamsConfig, TopicExists
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.runtime import RestoreListener
from ks_actors.snapshots import Shape, SnapshotWriter, SourcePosition
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect
from tests.ks_actors.runtime.helpers import counting
from tests.waiting import soon

SOURCE = TopicPartition("in", 0)
KEYS = 5_000
HISTORY = [f"k{number % KEYS:06d}" for number in range(20_000)]
LIVE = [f"k{number * 7 % KEYS:06d}" for number in range(3_000)]


class Told(RestoreListener):
    """Keep each call."""

    def __init__(self) -> None:
        self.snapshots: list[int] = []
        self.restored: list[int] = []

    def on_snapshot_loaded(self, partition: TopicPartition, store: str, snapshot: str, end: int, count: int) -> None:
        self.snapshots.append(count)

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.restored.append(total)


async def put_in(log: KafkaLog, keys: list[str]) -> None:
    producer = await log.producer(client_id="test")
    for start in range(0, len(keys), 2_000):
        part = [key.encode() for key in keys[start : start + 2_000]]
        await producer.send([Outgoing(SOURCE, Batch(part, [b"v"] * len(part), [start] * len(part)))])
    await producer.close()


async def beginning(log: KafkaLog) -> int:
    """Make sure that there is the topic; return where it goes on: other tests have written to it."""
    with suppress(TopicExists):
        await log.create_topics([NewTopic("in", 1)])
    await log.delete_records(await log.end_offsets([SOURCE], IsolationLevel.READ_UNCOMMITTED))
    return (await log.end_offsets([SOURCE], IsolationLevel.READ_UNCOMMITTED))[SOURCE]


def history(uri: str, application_id: str, until: int) -> None:
    """Write the results of counting history, without an app."""
    totals = Counter(HISTORY)
    keys = sorted(totals)
    with SnapshotWriter(uri, application_id, created_ms=1_000) as snapshot:
        store = snapshot.store("0_0", Shape("counts", "timestamped_key_value"))
        store.write(Batch([key.encode() for key in keys], [totals[key].to_bytes(8, "big") for key in keys], [5] * len(keys)))
        snapshot.add("0_0", store.close(), positions=[SourcePosition("in", 0, until)])
        snapshot.commit()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_a_snapshot_is_handed_over_taken_and_begun_with(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """History from a file, the tail live, then a lost disk: the counts are those of all records, and only the tail is read."""
    name = f"snapshots-{uuid.uuid4().hex[:8]}"
    log = await connect(kafka_broker)
    settings = {"application_id": name, "processing_guarantee": guarantee, "commit_interval_ms": 200, "snapshot_interval_ms": 0}

    def app_of(directory: str, told: Told, **more: str) -> App:
        config = StreamsConfig.of({**settings, "state_dir": tmp_path / directory, **more})
        return App(counting(), config, log=log, topics={"in": 1, "out": 1}, restore_listener=told)

    async def totals(app: App) -> dict[str, int]:
        return {key: value async for key, value in app.store("counts").all()}

    begin = await beginning(log)
    await put_in(log, HISTORY)
    history(f"file://{tmp_path / 'history'}", name, begin + len(HISTORY))
    assert await soon(app_of("one", Told()).seed(f"file://{tmp_path / 'history'}")) is not None
    with pytest.raises(SnapshotRefused, match="has committed offsets"):
        await soon(app_of("one", Told()).seed(f"file://{tmp_path / 'history'}"))
    await put_in(log, LIVE)
    told, place = Told(), f"file://{tmp_path / 'snapshots'}"
    async with app_of("one", told, snapshot_uri=place) as app:
        assert told.restored == [0]
        await app.wait_until_caught_up()
        assert await totals(app) == Counter(HISTORY + LIVE)
        manifest = await soon(app.snapshot())
        assert manifest.tasks["0_0"].stores["counts"].rows == KEYS
        await put_in(log, LIVE[:100])
        await app.wait_until_caught_up()
    for directory, snapshot_uri, rows, tail in (("two", place, [KEYS], 100), ("three", None, [], KEYS + 100)):
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        told = Told()
        async with app_of(directory, told, **({} if snapshot_uri is None else {"snapshot_uri": snapshot_uri})) as app:
            assert told.snapshots == rows
            assert told.restored[0] <= tail if rows else told.restored[0] > KEYS
            assert await totals(app) == Counter(HISTORY + LIVE + LIVE[:100])
    await log.close()
