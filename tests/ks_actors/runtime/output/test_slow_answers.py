"""A broker that takes its time to answer: the app goes on processing meanwhile, and hears the group."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors.log import TopicPartition
from ks_actors.log.embedded._faults import Operation
from ks_actors.runtime import InstanceState
from ks_actors.runtime.output import _collector
from ks_actors.testing import AppHarness, TestRecord
from tests.ks_actors.runtime.helpers import ALOS, EOS, echo, feed, in_app, in_virtual_time

_HIGH = 1 << 20
# Records of the bound, by the least that one is taken for.
_BOUND = _HIGH // 120
END_OF_COMMIT: dict[str, Operation] = {ALOS: "commit_offsets", EOS: "commit"}


async def commit_begins(harness: AppHarness, end: asyncio.Event) -> None:
    """Wait until a commit waits for the log."""
    assert not end.is_set()
    while not harness.app._metrics.committing:
        await asyncio.sleep(0.01)
    await harness.turns(50)


@in_virtual_time
async def test_processing_goes_on_while_a_commit_waits(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the log is slow to commit records are processed, until as much output waits as may; the rest follows behind the commit."""
    monkeypatch.setattr(_collector, "_HIGH", _HIGH)
    monkeypatch.setattr(_collector, "_LOW", _HIGH // 2)
    async with AppHarness(echo(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100) as harness:
        held = harness.log.hold(END_OF_COMMIT[guarantee])
        await harness.produce("in", "k", "first")
        await commit_begins(harness, held)
        for _ in range(10):
            await harness.produce_all("in", [TestRecord("k", "v", 0)] * 10_000)
        await harness.kit.clock.advance(8)
        assert harness.app._metrics.committing
        waiting = harness.app.metrics()["process-total"] - 1
        assert 0.9 * _BOUND < waiting < 2 * _BOUND
        assert len(await harness.read("out")) == (1 if guarantee == ALOS else 0)
        held.set()
        await harness.caught_up()
        assert len(await harness.read("out")) == 100_001


@in_app(echo(), topics={"in": 1, "out": 1}, processing_guarantee=ALOS, commit_interval_ms=100)
async def test_the_group_is_heard_while_offsets_are_committed(harness: AppHarness) -> None:
    """A member that is lost while its commit waits for the broker gives its tasks up at once, and processes them again when it is back."""
    held = harness.log.hold("commit_offsets")
    await harness.produce("in", "k", "first")
    await commit_begins(harness, held)
    await harness.kit.clock.advance(5)
    harness.lose_membership()
    await harness.turns(200)
    assert not harness.app._metrics.tasks
    assert harness.app.state is InstanceState.REBALANCING
    assert not held.is_set()
    await harness.kit.clock.advance(5)
    assert harness.app._metrics.tasks
    held.set()
    await feed(harness, "in", "k", "second")
    assert {record.value for record in await harness.read("out")} == {"first", "second"}


@in_app(echo(), topics={"in": 2, "out": 1}, processing_guarantee=EOS, commit_interval_ms=100)
async def test_other_partitions_are_read_while_one_is_reset(harness: AppHarness) -> None:
    """The search for the position of a partition with deleted records holds up neither other partitions nor the group."""
    first, second = TopicPartition("in", 0), TopicPartition("in", 1)
    fetches = harness.log.hold("fetch")
    await harness.kit.clock.advance(1)
    await harness.produce_all("in", [TestRecord("k", "gone", 0)] * 10, partition=first.partition)
    await harness.log.delete_records({first: 10})
    begins = harness.log.hold("begin_offsets")
    fetches.set()
    await harness.kit.clock.advance(1)
    await harness.produce_all("in", [TestRecord("k", "other", 0)] * 5, partition=second.partition)
    await harness.produce_all("in", [TestRecord("k", "later", 0)], partition=first.partition)
    await harness.kit.clock.advance(1)
    assert [record.value for record in await harness.read("out")] == ["other"] * 5
    harness.lose_membership()
    await harness.turns(200)
    assert not harness.app._metrics.tasks
    begins.set()
    await harness.caught_up()
    assert [record.value for record in await harness.read("out")] == ["other"] * 5 + ["later"]
