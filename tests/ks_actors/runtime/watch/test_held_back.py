"""Records behind an open transaction are told of as others that wait."""

from __future__ import annotations

import logging

import pytest

from ks_actors import HealthReason, TaskId, WaitReason, serdes
from ks_actors.dsl import Repartitioned, StreamsBuilder
from ks_actors.log import GroupMetadata, IsolationLevel, Outgoing, TopicPartition, TransactionalProducer
from ks_actors.records import Batch
from ks_actors.runtime.watch._held_back import OpenTransactions
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, echo, feed, in_virtual_time

FIRST = TopicPartition("in", 0)
IN_AND_OUT = {"in": 1, "out": 1}


async def open_one(harness: AppHarness) -> TransactionalProducer:
    """Write a record in a transaction that stays open, and another one behind it."""
    producer = await harness.log.transactional_producer("other", client_id="other", timeout_ms=600_000)
    await producer.send([Outgoing(FIRST, Batch([b"a"], [b"open"], [0]))])
    await harness.produce("in", "b", "behind", 0)
    return producer


def lines(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


@in_virtual_time
async def test_records_behind_an_open_transaction_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """After `stall_warning_ms`, then ever more rarely, with the offset and the remedy; `App.waiting` has it at once, and its end is told."""
    caplog.set_level(logging.INFO, logger="ks_actors")
    async with AppHarness(echo(), topics=IN_AND_OUT, processing_guarantee="exactly_once_v2") as harness:
        await feed(harness, "in", "a", "before", 0)
        producer = await open_one(harness)
        await harness.kit.clock.advance(9)
        assert lines(caplog, "(transaction)") == []
        (wait,) = harness.app.waiting()
        assert (wait.partition, wait.reason, wait.lag) == (FIRST, WaitReason.TRANSACTION, 2)
        assert "holds back 2 offsets from 1 on" in wait.text
        await harness.kit.clock.advance(91)
        told = lines(caplog, "(transaction)")
        assert len(told) == 4
        assert harness.app.metrics()["stalled-partitions"] == 1
        assert HealthReason.STALLED in {problem.reason for problem in harness.app.health().problems}
        assert all(line.startswith("in-0 of task 0_0 has waited for ") and "find-hanging" in line for line in told)
        await producer.commit({}, GroupMetadata("other", -1, ""))
        await harness.kit.clock.advance(8)
        assert [record.value for record in await harness.read("out")] == ["before", "open", "behind"]
        assert len(lines(caplog, "the transaction in in-0 at offset 1 has ended")) == 1
        assert [wait.reason for wait in harness.app.waiting()] == [WaitReason.RECORDS]


def test_transactions_that_end_in_time_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """However many there are, one after the other."""

    async def test(harness: AppHarness) -> None:
        producer = await harness.log.transactional_producer("other", client_id="other", timeout_ms=600_000)
        for _ in range(6):
            await producer.send([Outgoing(FIRST, Batch([b"a"], [b"v"], [0]))])
            await harness.kit.clock.advance(8)
            await producer.commit({}, GroupMetadata("other", -1, ""))
        await harness.caught_up()
        assert len(await harness.read("out")) == 6

    run_app(test, echo(), topics=IN_AND_OUT, processing_guarantee="exactly_once_v2")
    assert lines(caplog, "has waited") == []


@pytest.mark.parametrize("internal", [True, False])
def test_an_app_is_not_told_of_its_own_transactions(caplog: pytest.LogCaptureFixture, *, internal: bool) -> None:
    """Records of a topic that it writes and reads, internal or not, wait for its next commit, however long that is."""

    async def test(harness: AppHarness) -> None:
        # So many that they are sent before the commit.
        await harness.produce_all("in", [TestRecord("a", "v", 0) for _ in range(12_000)])
        await harness.kit.clock.advance(30)
        through = TopicPartition(f"{harness.app.config.application_id}-through-repartition" if internal else "through", 0)
        ends = [await harness.log.end_offsets([through], isolation) for isolation in IsolationLevel]
        assert {end[through] for end in ends} > {0}
        assert [wait.reason for wait in harness.app.waiting()] == [WaitReason.RECORDS] * 2
        await harness.caught_up()
        assert len(await harness.read("out")) == 12_000

    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    if internal:
        stream.repartition(Repartitioned(serdes.STRING, serdes.STRING, name="through")).to("out", STRINGS_OUT)
    else:
        stream.to("through", STRINGS_OUT)
        builder.stream("through", STRINGS).to("out", STRINGS_OUT)
    settings = {"commit_interval_ms": 40_000, "transaction_timeout_ms": 60_000}
    run_app(test, builder.build(), topics={**IN_AND_OUT, "through": 1}, processing_guarantee="exactly_once_v2", **settings)
    assert lines(caplog, "has waited") == []


def test_an_app_that_reads_uncommitted_records_waits_for_no_transaction(caplog: pytest.LogCaptureFixture) -> None:
    """At least once they are processed."""

    async def test(harness: AppHarness) -> None:
        await open_one(harness)
        await harness.kit.clock.advance(60)
        assert [record.value for record in await harness.read("out")] == ["open", "behind"]
        assert [wait.reason for wait in harness.app.waiting()] == [WaitReason.RECORDS]

    run_app(test, echo(), topics=IN_AND_OUT, processing_guarantee="at_least_once")
    assert lines(caplog, "has waited") == []


def test_a_partition_that_is_not_asked_about_any_more_is_not_told_to_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """It may have moved to another instance, with the transaction still open."""
    caplog.set_level(logging.INFO, logger="ks_actors")
    open_ones = OpenTransactions(10.0, ["own"])
    own = TopicPartition("own", 0)
    open_ones.note({FIRST: 3, own: 1}, {FIRST: 5, own: 2}, 0.0)
    assert open_ones.of(own, 1) is None
    held = open_ones.of(FIRST, 3)
    assert held is not None
    assert open_ones.of(FIRST, 4) is None
    open_ones.tell({FIRST: (TaskId(0, 0), held)}, 10.0)
    assert len(lines(caplog, "has waited for 10 s (transaction)")) == 1
    open_ones.note({}, {}, 12.0)
    assert lines(caplog, "has ended") == []
