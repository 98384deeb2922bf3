"""Global topics with several partitions: none of them waits for another one."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors import serdes
from ks_actors.dsl import Materialized, StreamsBuilder
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, in_app, in_virtual_time

# More than one fetch brings of a partition.
MANY = 12_000
TOPICS = {"rows": 2, "in": 1, "out": 1}


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.global_table("rows", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).to("out", STRINGS_OUT)
    return builder.build()


@pytest.mark.parametrize("max_task_idle_ms", [-1, 0, 1_000])
@in_virtual_time
async def test_a_start_fills_a_table_whose_partitions_are_of_different_times(max_task_idle_ms: int) -> None:
    """All rows of one partition are older than those of the other one, and neither fits into one fetch: the app starts with all of them."""
    async with AppHarness(topology(), topics=TOPICS, start=False, max_task_idle_ms=max_task_idle_ms) as harness:
        for partition in range(2):
            rows = [TestRecord(f"{partition}-{number}", "v", partition * 10**6 + number) for number in range(MANY)]
            await harness.produce_all("rows", rows, partition=partition)
        await harness.start()
        assert await harness.app.store("rows").approximate_num_entries() == 2 * MANY


@in_app(topology(), topics=TOPICS, max_task_idle_ms=60_000)
async def test_a_row_of_one_partition_does_not_wait_for_the_others(harness: AppHarness) -> None:
    """A table has a row at once whatever `max_task_idle_ms` says, and the loop has rest meanwhile."""
    await harness.produce("rows", "k", "v", partition=0)
    await asyncio.sleep(1.0)
    assert await harness.app.store("rows").get("k") == "v"
    steps = harness.kit._dispatch.steps
    await asyncio.sleep(1.0)
    assert harness.kit._dispatch.steps - steps < 200
