"""The metrics of tasks' stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from ks_actors import NotRunning, TaskId
from ks_actors.state import SharedResources, TaskStores
from ks_actors.state.disk._statistics import PROPERTIES, counted
from ks_actors.task.figures import HitRatio
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import counting, in_app
from tests.ks_actors.state.helpers import Task, key_value

TOPICS = {"in": 2, "out": 1}


async def feed(harness: AppHarness, records: int) -> None:
    for number in range(records):
        await harness.produce("in", f"k{number % 10}", "v")
    await harness.caught_up()


@in_app(counting(), topics=TOPICS, statestore_memory_max_bytes=64 << 20)
async def test_each_task_tells_of_its_database_its_caches_and_its_memory(harness: AppHarness) -> None:
    """RocksDB's gauges by Kafka Streams' names, and nothing that has to be counted for them."""
    await feed(harness, 40)
    found = await harness.app.task_metrics()
    assert found.keys() == {TaskId(0, 0), TaskId(0, 1)}
    for figures in found.values():
        assert figures.rocksdb.keys() == set(PROPERTIES)
        assert figures.rocksdb["block-cache-capacity"] == 16 << 20
        assert figures.record_caches == {}
        assert figures.memory_bytes["counts"] > 0
    await harness.app.close()
    with pytest.raises(NotRunning):
        await harness.app.task_metrics()


@in_app(counting(), topics=TOPICS, statestore_cache_max_bytes=10 << 20, commit_interval_ms=1_000_000)
async def test_record_caches_report_their_hit_ratio(harness: AppHarness) -> None:
    """Of forty updates of ten keys three quarters replace a cached one, less those that a commit in between sends."""
    await feed(harness, 40)
    caches = [figures.record_caches for figures in (await harness.app.task_metrics()).values()]
    assert [set(cache) for cache in caches] == [{"counts"}, {"counts"}]
    for cache in caches:
        least, average, most = (cache["counts"][f"hit-ratio-{what}"] for what in ("min", "avg", "max"))
        assert 0.4 < least <= average <= most <= 0.75


def test_from_debug_on_rocksdb_counts(tmp_path: Path) -> None:
    """Bytes written and read, and the hits of the memtable."""
    shared = SharedResources.within(64 << 20, statistics=True)
    task = Task([key_value()], tmp_path, shared=shared)
    for number in range(100):
        task["s"].put(f"k{number}", number)
    task.commit()
    task.flush()
    stores: TaskStores = task.stores
    figures = stores.statistics()
    assert figures["bytes-written-total"] > 100 * 16
    assert figures["write-stall-duration-total"] == 0
    assert 0 <= figures["memtable-hit-ratio"] <= 1
    assert figures.keys() > set(PROPERTIES)
    engine = stores._engine
    task.close()
    assert stores.statistics() == {}
    assert engine is not None
    assert engine.statistics() == {}
    shared.close()


def test_statistics_are_read_as_rocksdb_writes_them() -> None:
    """Counts, histograms in microseconds, ratios; missing ones are 0."""
    text = """\
rocksdb.block.cache.data.hit COUNT : 30
rocksdb.block.cache.data.miss COUNT : 10
rocksdb.bytes.written COUNT : 5
rocksdb.stall.micros COUNT : 6000
rocksdb.db.write.stall P50 : 1.0 P95 : 2.0 P99 : 3.0 P100 : 4.0 COUNT : 3 SUM : 6
rocksdb.db.flush.micros P50 : 1.0 P95 : 2.0 P99 : 3.0 P100 : 4000.0 COUNT : 2 SUM : 6000
rocksdb.no.file.opens COUNT : 3"""
    figures = counted(text)
    assert (figures["block-cache-data-hit-ratio"], figures["bytes-written-total"], figures["number-open-files"]) == (0.75, 5, 3)
    assert (figures["memtable-flush-time-avg"], figures["memtable-flush-time-max"]) == (3, 4)
    assert (figures["write-stall-duration-total"], figures["write-stall-duration-avg"]) == (6, 2)
    assert figures["compaction-time-avg"] == figures["memtable-hit-ratio"] == 0
    assert set(counted("").values()) == {0}


def test_hit_ratios_are_of_samples() -> None:
    """Of a thousand updates or more; the rest of a period counts only where there is no other."""
    ratio = HitRatio()
    assert set(ratio.figures().values()) == {0.0}
    ratio.note(1000, 500)
    ratio.note(2000, 0)
    ratio.note(1, 1)
    assert ratio.figures() == {"hit-ratio-avg": 0.75, "hit-ratio-min": 0.5, "hit-ratio-max": 1.0}
    first = HitRatio()
    first.note(4, 1)
    assert first.figures()["hit-ratio-avg"] == 0.75


def test_reading_a_hit_ratio_takes_no_sample() -> None:
    """The figures are the same however often they are read: metrics are noted every 10 s, soon after a task's first updates."""
    read, unread = HitRatio(), HitRatio()
    for fresh in (1, 0, 0, 0):
        for ratio in (read, unread):
            ratio.note(250, 250 * fresh)
        assert set(read.figures().values()) == set(read.figures().values())
    assert read.figures() == unread.figures() == {"hit-ratio-avg": 0.75, "hit-ratio-min": 0.75, "hit-ratio-max": 0.75}
