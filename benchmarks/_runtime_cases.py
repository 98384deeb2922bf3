"""The measurements, each in its own process: functions that return figures by name."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks._runtime_apps import async_topology, count_topology, map_topology
from benchmarks._runtime_load import IN, PARTITIONS, each_key_once, fill, make_topics, records
from ks_actors import App, StreamsConfig, tune_gc
from ks_actors.log import TopicPartition, open_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ks_actors.log import Log, Outgoing
    from ks_actors.topology import Topology

LOOK_SECONDS = 0.005
PATIENCE_MS = 600_000
ENOUGH_COMMITS = 200
BACKLOG = 40_000
KEPT_BYTES = 32 << 20
CALL_SECONDS = 0.010
IN_FLIGHT = 500


@asynccontextmanager
async def opened(kept_bytes: int | None = None) -> AsyncIterator[Log]:
    """Open a log in memory with the topics."""
    log = open_log("memory://")
    await log.start()
    try:
        await make_topics(log, kept_bytes)
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def state() -> AsyncIterator[Path]:
    """Provide a directory for stores."""
    directory = Path(tempfile.mkdtemp(prefix="ks-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def configured(guarantee: str, directory: Path) -> StreamsConfig:
    """Return the settings, mostly defaults.

    So exactly once commits every 100 ms; at least once, every 30 s and at the end.
    """
    return StreamsConfig(application_id="bench", processing_guarantee=guarantee, state_dir=directory)


def processed(app: App) -> int:
    """Return the number of records processed by the app."""
    return int(app.metrics()["process-total"])


async def reached(app: App, metric: str, figure: int) -> None:
    """Wait until a metric reaches `figure`."""
    while app.metrics()[metric] < figure:  # noqa: ASYNC110 - the app has no event for it, and none of its time is to be spent on one
        await asyncio.sleep(LOOK_SECONDS)


async def all_of(app: App, total: int) -> dict[str, float]:
    """Measure from now, with the app running, until all is processed and committed."""
    before = processed(app)
    began, used = time.perf_counter(), time.process_time()
    await reached(app, "process-total", total)
    await app.wait_until_caught_up(PATIENCE_MS)
    took, used = time.perf_counter() - began, time.process_time() - used
    count = total - before
    return {"per_s": count / took, "cpu_us": used / count * 1e6}


async def throughput(topology: Topology, guarantee: str, total: int, keys: int, *, tuned: bool = False) -> dict[str, float]:
    """Run a topology over `total` records that are in the log when it starts.

    `tuned` sets the garbage collector; else it has its defaults.
    """
    async with opened() as log, state() as directory:
        await fill(log, records(total, keys))
        async with App(topology, configured(guarantee, directory), log=log) as app:
            if tuned:
                tune_gc()
            figures = await all_of(app, total)
            metrics = app.metrics()
    return {**figures, "commits": metrics["commit-total"], "pause_p99_ms": metrics["commit-pause-p99"]}


async def map_records(guarantee: str, total: int, keys: int, *, tuned: bool = False) -> dict[str, float]:
    """Parse, filter, write."""
    return await throughput(map_topology(), guarantee, total, keys, tuned=tuned)


async def count_records(guarantee: str, total: int, keys: int, *, tuned: bool = False) -> dict[str, float]:
    """Count per key in RocksDB."""
    return await throughput(count_topology(), guarantee, total, keys, tuned=tuned)


async def commit_pauses(keys: int, commits: int) -> dict[str, float]:
    """Count under full load for some commits, with `keys` keys of an earlier run in the state."""
    async with opened(KEPT_BYTES) as log, state() as directory:
        await fill(log, each_key_once(keys))
        config = configured("exactly_once_v2", directory)
        async with App(count_topology(), config, log=log) as app:
            await all_of(app, keys)
        load = list(records(200_000, keys))
        async with App(count_topology(), config, log=log) as app:
            feeding = asyncio.create_task(_feed(app, log, load))
            await reached(app, "commit-total", commits)
            metrics = app.metrics()
            feeding.cancel()
    return {
        "p99_ms": metrics["commit-pause-p99"],
        "p50_ms": metrics["commit-pause-p50"],
        "max_ms": metrics["commit-pause-max"],
        "commits": metrics["commit-total"],
        "commit_ms": metrics["commit-latency-avg"],
        "records": metrics["process-total"],
    }


async def _feed(app: App, log: Log, load: list[list[Outgoing]]) -> None:
    """Write the same batches repeatedly, never more than a little ahead of the app."""
    producer = await log.producer(client_id="feed")
    written = 0
    while True:
        for batch in load:
            await reached(app, "process-total", written - BACKLOG)
            for outgoing in batch:
                await producer.send([outgoing])  # alone: others are not to wait for it any longer than they must
                written += len(outgoing.batch)


async def async_calls(guarantee: str, total: int, keys: int) -> dict[str, float]:
    """Make a 10 ms call per record, one at a time per key, and check the commits."""
    load = list(records(total, keys))
    watch = Watch(load)

    async def call(key: str, value: bytes) -> bytes:
        await asyncio.sleep(CALL_SECONDS)
        watch.done.add(value)
        return value

    async with opened() as log, state() as directory:
        await fill(log, iter(load))
        async with App(async_topology(call, IN_FLIGHT), configured(guarantee, directory), log=watch.over(log)) as app:
            figures = await all_of(app, total)
            metrics = app.metrics()
    watch.check_all_committed()
    return {**figures, "commits": metrics["commit-total"], "commit_ms": metrics["commit-latency-avg"], "checked": watch.commits}


class Watch:
    """Check that no offset is committed before its record and all before it are done.

    All values are different.
    """

    def __init__(self, load: list[list[Outgoing]]) -> None:
        self.done: set[bytes] = set()
        self.commits: int = 0
        self._values: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self._committed: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        for batch in load:
            for outgoing in batch:
                self._values[outgoing.partition.partition] += cast("list[bytes]", outgoing.batch.values)

    def over(self, log: Log) -> Log:
        """Return the log with its commits watched."""
        return cast("Log", _Watched(log, self))

    def note(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Check the offsets of a commit."""
        self.commits += 1
        for (topic, number), committed in offsets.items():
            if topic == IN:
                passed = self._values[number][self._committed[number] : committed.offset]
                if not self.done.issuperset(passed):
                    raise AssertionError(f"offset {committed.offset} of {topic}-{number} is committed, but a record in front of it is in flight")
                self._committed[number] = committed.offset

    def check_all_committed(self) -> None:
        """Check that everything is committed at the end."""
        missing = {number: len(values) - self._committed[number] for number, values in self._values.items()}
        if any(missing.values()):
            raise AssertionError(f"records that were never committed, by partition: {missing}")


class _Watched:
    """A log, or its producer or membership, with a watched `commit`."""

    def __init__(self, watched: Any, watch: Watch) -> None:
        self._watched = watched
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watched, name)

    async def transactional_producer(self, *given: Any, **named: Any) -> _Watched:
        return _Watched(await self._watched.transactional_producer(*given, **named), self._watch)

    async def join(self, *given: Any, **named: Any) -> _Watched:
        return _Watched(await self._watched.join(*given, **named), self._watch)

    async def commit(self, offsets: Mapping[TopicPartition, Any], *given: Any) -> None:
        self._watch.note(offsets)
        await self._watched.commit(offsets, *given)
