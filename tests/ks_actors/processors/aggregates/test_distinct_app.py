"""Streams without duplicates, in apps that crash and move."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ks_actors import LogError, serdes
from ks_actors.dsl import StreamsBuilder
from ks_actors.log import IsolationLevel
from ks_actors.runtime import UncaughtResponse
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import StoreType, Topology
from tests.ks_actors.runtime.helpers import ALOS, EOS, STRINGS, STRINGS_OUT, befall, by_key, feed, feed_all, in_app

WITHIN = 10_000


def _once(store: StoreType) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).distinct(WITHIN, by=lambda value: value, by_serde=serdes.STRING, store_type=store).to("out", STRINGS_OUT)
    return builder.build()


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("seed", range(5))
@in_app(lambda store: _once(store), topics={"in": 2, "out": 1}, processing_guarantee=EOS, commit_interval_ms=100, num_standby_replicas=1)
async def test_exactly_once_there_is_no_duplicate_across_crashes_and_moves(harness: AppHarness, store: StoreType, seed: int) -> None:
    """All that the app knew is in the store, or in its changelog."""
    random = Random(seed)
    sent: set[tuple[str, str]] = set()
    for _ in range(5):
        for _ in range(40):
            key, value = f"k{random.randrange(5)}", f"v{random.randrange(30)}"
            sent.add((key, value))
            await harness.produce("in", key, value, random.randrange(WITHIN))
        await befall(harness, random)
    await harness.caught_up()
    found = [(record.key, record.value) for record in await harness.read("out")]
    assert sorted(found) == sorted(sent)


@pytest.mark.parametrize(("guarantee", "times"), [(ALOS, 2), (EOS, 1)])
@in_app(_once("rocksdb"), topics={"in": 1, "out": 1}, commit_interval_ms=9_000, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
async def test_at_least_once_a_record_is_no_duplicate_of_itself(harness: AppHarness, guarantee: str, times: int) -> None:
    """The store has reached its changelog, the offset is not committed: the record is forwarded again, or it could be lost; its duplicate is not."""
    await harness.produce("in", "k", "v", 10)
    await harness.produce("in", "k", "v", 20)
    harness.fail("commit_offsets" if guarantee == ALOS else "commit", LogError("away"), 100)
    await harness.kit.clock.advance(0.5)
    fetches = harness.log.hold("fetch")
    await harness.kit.clock.advance(0.5)
    with pytest.raises(LogError, match="away"):
        await harness.app.commit()
    await harness.crash()
    fetches.set()
    harness.log._faults._before.clear()
    harness.wipe_state()
    await harness.restart()
    await harness.caught_up()
    await feed(harness, "in", "k", "v", 30)
    isolation = IsolationLevel.READ_UNCOMMITTED if guarantee == ALOS else IsolationLevel.READ_COMMITTED
    assert by_key(await harness.read("out", isolation=isolation)) == {"k": ["v"] * times}


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
def test_batches_are_taken_as_single_records_are(cache_bytes: int) -> None:
    """An app takes many at once; order, times and offsets of all are kept."""
    random = Random(1)
    records = [TestRecord(f"k{random.randrange(3)}", f"v{random.randrange(9)}", time) for time in range(2_000)]

    async def test(harness: AppHarness) -> list[Any]:
        await feed_all(harness, "in", records)
        return [(one.key, one.value, one.timestamp) for one in await harness.read("out")]

    found = run_app(test, _once("in_memory"), topics={"in": 1, "out": 1}, statestore_cache_max_bytes=cache_bytes)
    first = {(one.key, one.value): (one.key, one.value, one.timestamp) for one in reversed(records)}
    assert found == sorted(first.values(), key=lambda one: one[2])
