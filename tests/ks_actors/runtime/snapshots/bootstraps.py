"""Helpers of the tests of bootstraps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ks_actors import App, Batch, StreamsConfig
from ks_actors.log import IsolationLevel, Log, Outgoing, TopicPartition
from ks_actors.runtime import RestoreListener
from ks_actors.snapshots import Shape, SnapshotWriter, SourcePosition
from tests.ks_actors.runtime.helpers import counting
from tests.ks_actors.snapshots.helpers import batch_of

COUNTS = Shape("counts", "timestamped_key_value")
CHANGELOG = TopicPartition("app-counts-changelog", 0)


def app_of(log: Log, state_dir: Path, *, store: str = "rocksdb", listener: RestoreListener | None = None, **settings: object) -> App:
    """Return an app that counts the records of each key."""
    config = StreamsConfig.of({"application_id": "app", "state_dir": state_dir, "commit_interval_ms": 50, **settings})
    return App(counting(store), config, log=log, topics={"in": 1, "out": 1}, restore_listener=listener)


def counted(uri: str, keys: Sequence[str], *, until: int | None = None, task: str = "0_0", application_id: str = "app") -> str:
    """Write the snapshot that counting these records gives, without an app; return its place."""
    totals = Counter(keys)
    times = {key: number for number, key in enumerate(keys)}
    with SnapshotWriter(uri, application_id, created_ms=1_000) as snapshot:
        store = snapshot.store(task, COUNTS)
        store.write(batch_of([(key.encode(), totals[key].to_bytes(8, "big"), times[key]) for key in sorted(totals)]))
        positions = [] if until is None else [SourcePosition("in", 0, until)]
        snapshot.add(task, store.close(), positions=positions)
        snapshot.commit()
    return str(snapshot.place)


async def put(log: Log, keys: Iterable[str]) -> None:
    """Write a record of each key."""
    wanted = [key.encode() for key in keys]
    producer = await log.producer(client_id="test")
    await producer.send([Outgoing(TopicPartition("in", 0), Batch(wanted, [b"v"] * len(wanted), list(range(len(wanted)))))])
    await producer.close()


async def contents(log: Log, partition: TopicPartition) -> list[tuple[bytes, bytes | None]]:
    """Return the committed records of a partition."""
    end = (await log.end_offsets([partition], IsolationLevel.READ_COMMITTED))[partition]
    at = (await log.begin_offsets([partition]))[partition]
    fetcher = log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({partition: at})
    found: list[tuple[bytes, bytes | None]] = []
    while at < end:
        for fetched in await fetcher.fetch(max_wait_ms=50):
            found += zip(fetched.batch.keys, fetched.batch.values, strict=True)
            at = fetched.next_offset
    await fetcher.close()
    return found


async def table(log: Log) -> Mapping[str, int]:
    """Return the counts in a changelog."""
    rows = dict(await contents(log, CHANGELOG))
    return {key.decode(): int.from_bytes(value, "big") for key, value in rows.items() if value is not None}


async def totals_of(app: App) -> dict[str, int]:
    """Return all counts that the app has."""
    return {key: value async for key, value in app.store("counts").all()}
