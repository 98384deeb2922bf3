"""The times and contents of an app's commits, and failed commits."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import chain, repeat
from random import Random
from typing import Any, ClassVar

import pytest

from ks_actors import (
    Fenced,
    IllegalGeneration,
    LogError,
    LogTimeout,
    Processor,
    ProductionFailed,
    Record,
    StorageFull,
    TaskMigrated,
    TransactionAborted,
    UnknownTopicOrPartition,
    serdes,
    stores,
)
from ks_actors.log import GroupMetadata, OffsetAndMetadata, TopicPartition, TransactionalProducer, TransactionScope
from ks_actors.log._delegating_log import DelegatedMembership
from ks_actors.log.embedded._faults import Operation
from ks_actors.processors import PunctuationType
from ks_actors.runtime import InstanceState
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.testing._connection import Connection
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import ALOS, EOS, Asked, Bomb, Load, by_key, check_counts, counting, echo, feed, in_app, in_virtual_time, replace

FOREVER = 1_000_000
IN = TopicPartition("in", 0)


def committed(harness: AppHarness) -> dict[TopicPartition, int]:
    """Return the offsets that the group has committed."""
    return {partition: one.offset for partition, one in harness.log._groups.get("app").committed().items()}


def processing(processor: type[Processor[Any, Any, Any, Any]]) -> Topology:
    """Read `in`, process it, write `out`."""
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("processor", processor, "source")
    topology.add_sink("sink", "out", "processor", key=serdes.STRING, value=serdes.STRING)
    return topology


# --- when -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("guarantee", "interval_ms"), [(ALOS, 30_000), (EOS, 100)])
@in_app(echo(), topics={"in": 1, "out": 1})
async def test_commits_come_by_the_interval(harness: AppHarness, guarantee: str, interval_ms: int) -> None:
    """Without a word the app commits every 30 seconds, exactly once every 100 ms; not before, and not when there is nothing to commit."""
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(interval_ms / 1000 - 0.001)
    assert harness.app.metrics()["process-total"] == 1
    assert committed(harness) == {}
    await harness.kit.clock.advance(0.001)
    assert committed(harness) == {IN: 1}
    await harness.kit.clock.advance(100)
    assert harness.app.metrics()["commit-total"] == 1


class Committing(Processor[str, str, str, str]):
    """Ask for a commit at each record with the value "commit"."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)
        if record.value == "commit":
            self.context.commit()


@in_app(processing(Committing), topics={"in": 1, "out": 1}, commit_interval_ms=9_000)
async def test_a_processor_may_ask_for_a_commit(harness: AppHarness, guarantee: str) -> None:
    """`context.commit()` has everything committed that was processed so far, at once."""
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(1)
    assert committed(harness) == {}
    await harness.produce("in", "b", "commit")
    await harness.kit.clock.advance(0.001)
    assert committed(harness) == {IN: 2}
    assert len(await harness.read("out")) == 2


@in_app(counting(), topics={"in": 1, "out": 1}, statestore_uncommitted_max_bytes=20_000, commit_interval_ms=FOREVER)
async def test_a_full_overlay_is_committed(harness: AppHarness) -> None:
    """When the stores hold more than statestore_uncommitted_max_bytes uncommitted, a commit comes without a request."""
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(1)
    assert committed(harness) == {}
    await harness.produce_all("in", [TestRecord(f"key {number}", "1", 0) for number in range(2000)])
    await harness.kit.clock.advance(0.01)
    assert committed(harness)
    assert harness.app.metrics()["uncommitted-bytes"] < 20_000


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_overlay_is_committed_before_it_is_full(partitions: int) -> None:
    """When the growth in one slice of work predicts that the next one would cross the limit, which all tasks share; with -1 there is none."""
    limit = 200_000

    def test(unlimited: bool) -> Callable[[AppHarness], Awaitable[None]]:
        async def run(harness: AppHarness) -> None:
            most = 0
            for number in range(60):
                await harness.produce_all("in", [TestRecord(f"{number}-{place}", "1", 0) for place in range(50)])
                await harness.kit.clock.advance(0.01)
                most = max(most, int(harness.app.metrics()["uncommitted-bytes"]))
            assert unlimited or limit // 2 < most < limit
            assert (harness.app.metrics()["commit-total"] == 0) is unlimited

        return run

    for most_bytes in (limit, -1):
        options = {"statestore_uncommitted_max_bytes": most_bytes, "commit_interval_ms": FOREVER}
        run_app(test(most_bytes < 0), counting(), topics={"in": partitions, "out": 1}, **options)


class SlowCommits(Connection):
    """A log that takes ten seconds to end a transaction."""

    async def transactional_producer(
        self, transactional_id: str, *, client_id: str, timeout_ms: int, scope: TransactionScope | None = None
    ) -> TransactionalProducer:
        producer = await super().transactional_producer(transactional_id, client_id=client_id, timeout_ms=timeout_ms, scope=scope)
        commit = producer.commit

        async def slowly(offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /) -> None:
            await asyncio.sleep(10)
            await commit(offsets, group)

        producer.commit = slowly  # type: ignore[method-assign]
        return producer


@pytest.mark.parametrize("partitions", [1, 4])
@in_virtual_time
async def test_the_overlay_is_bounded_while_a_commit_is_under_way(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output during the end of a transaction belongs to the next one, which has to wait: processing does, too, before the limit is crossed."""
    monkeypatch.setattr("ks_actors.testing._harness.Connection", SlowCommits)
    limit, count = 200_000, 6_000
    async with AppHarness(
        counting(),
        topics={"in": partitions, "out": 1},
        processing_guarantee=EOS,
        statestore_uncommitted_max_bytes=limit,
        commit_interval_ms=FOREVER,
        transaction_timeout_ms=FOREVER,
    ) as harness:
        most = longest = 0
        for number in range(count // 50):
            await harness.produce_all("in", [TestRecord(f"{number}-{place}", "1", 0) for place in range(50)])
            await harness.kit.clock.advance(0.01)
            figures = harness.app.metrics()
            most = max(most, int(figures["uncommitted-bytes"]))
            longest = max(longest, int(figures["process-total"]))
        assert limit // 2 < most < limit
        assert longest < count // 2
        await harness.caught_up()
        assert harness.app.metrics()["process-total"] == count
        assert harness.app.metrics()["uncommitted-bytes"] < limit
        assert harness.app.metrics()["commit-total"] > 5


@in_app(counting(), topics={"in": 1, "out": 1}, statestore_uncommitted_max_bytes=20_000, num_workers=8, commit_interval_ms=FOREVER)
async def test_the_share_of_a_worker_counts_too(harness: AppHarness) -> None:
    """A task that alone holds more than one worker's share of the budget is committed."""
    await harness.produce_all("in", [TestRecord(f"key {number}", "1", 0) for number in range(100)])
    await harness.kit.clock.advance(0.01)
    assert committed(harness)


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_the_app_can_be_told_to_commit(harness: AppHarness) -> None:
    """`App.commit` returns when everything is committed."""
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(0.01)
    await harness.app.commit()
    assert committed(harness) == {IN: 1}


# --- what -----------------------------------------------------------------------------------------------------------------------


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_the_time_of_a_partition_is_committed_with_its_offset(harness: AppHarness, guarantee: str) -> None:
    """The metadata of a position is Kafka Streams': base64 of a magic byte 2 and the partition's time; the next app goes on from that time."""
    await harness.produce("in", "a", "1", 1234)
    await feed(harness, "in", "a", "2", 1000)
    (position,) = harness.log._groups.get("app").committed().values()
    assert position.offset == 2
    assert struct.unpack(">bq", base64.b64decode(position.metadata)) == (2, 1234)
    await harness.close()
    await harness.restart()
    (task,) = harness.app._metrics.tasks.values()
    assert task.stream_time == 1234


@in_virtual_time
async def test_a_transaction_holds_the_records_of_its_offsets() -> None:
    """Exactly once, input, output and state become visible together: at any moment the output that is committed is that of the input that is."""
    bomb = Bomb()
    async with AppHarness(counting("in_memory", bomb), topics={"in": 1, "out": 1}, processing_guarantee=EOS, commit_interval_ms=50) as harness:
        random = Random(1)
        load = Load(harness, random)
        for _ in range(40):
            await load.send(random.randrange(1, 30))
            await harness.turns(random.randrange(60))
            if random.random() < 0.5:
                await asyncio.sleep(0.05)
            out = await harness.read("out")
            assert sum(len(values) for values in by_key(out).values()) == sum(committed(harness).values())
            log = await harness.read("app-counts-changelog")
            latest = {record.key: int.from_bytes(record.value or b"") for record in log}
            assert sum(latest.values()) == len(out)


# --- when it fails --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["send", "commit", "commit_offsets"])
@in_virtual_time
async def test_a_commit_that_fails_is_rolled_back(operation: Operation, guarantee: str) -> None:
    """The handler decides; with REPLACE_WORKER the app goes back to the last commit, does all since then again, and results are exact."""
    asked = Asked()

    async with AppHarness(
        counting("in_memory"), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=200, uncaught_handler=asked
    ) as harness:
        load = Load(harness, Random(1))
        await load.through(50)
        harness.fail(operation, StorageFull("no room"))
        await load.send(50)
        await load.check(guarantee)
        used = operation == "send" or (operation == "commit") == (guarantee == EOS)
        assert len(asked) == (1 if used else 0)
        if used:
            assert isinstance(asked[0], StorageFull)
            assert harness.app.metrics()["rolled-back-total"] >= 1
        assert harness.app.metrics()["alive-workers"] == 1


@in_app(counting(), topics={"in": 1, "out": 1})
async def test_a_commit_that_fails_ends_the_app_unless_told_otherwise(harness: AppHarness, guarantee: str) -> None:
    """Without a handler the app ends in ERROR with the log's error; uncommitted work is done by the next app."""
    harness.fail("send", LogError("away"))
    await harness.produce("in", "a", "1")
    error = await harness.ended()
    assert isinstance(error, LogError)
    await harness.restart()
    await harness.caught_up()
    check_counts(await harness.read("out"), {"a": 1}, guarantee)


@pytest.mark.parametrize("error", [Fenced("somebody else has it"), IllegalGeneration("a new generation")])
@in_virtual_time
async def test_tasks_that_are_somebody_elses_are_given_up(error: Exception, guarantee: str) -> None:
    """Fenced and IllegalGeneration mean that the tasks have moved: no handler is asked, the app gives them up, joins again, and results are exact."""
    seen: list[str] = []
    async with AppHarness(
        counting("in_memory"),
        topics={"in": 2, "out": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=5_000,
        on_state=lambda new, _: seen.append(new.name),
    ) as harness:
        load = Load(harness, Random(1))
        await load.through(50)
        seen.clear()
        await load.send(50)
        while harness.app.metrics()["process-total"] < 100:
            await asyncio.sleep(0.001)
        harness.fail("commit" if guarantee == EOS else "commit_offsets", error)
        with pytest.raises(TaskMigrated, match="belong to another member"):
            await harness.app.commit()
        await load.check(guarantee)
        assert seen == ["REBALANCING", "RUNNING"]


@in_virtual_time
async def test_tasks_stay_when_their_commit_takes_until_the_next_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group refuses it, but no other member has the tasks: only the work is rolled back, and results are exact."""
    seen: list[str] = []
    later: Iterator[int] = chain([0, 1], repeat(0))
    known: property = vars(DelegatedMembership)["committing"]

    def committing(membership: DelegatedMembership) -> GroupMetadata:
        group: GroupMetadata = known.fget(membership)  # type: ignore[misc]
        # The harness has one in another.
        plus = next(later) if isinstance(membership._inner, DelegatedMembership) else 0
        return GroupMetadata(group.group_id, group.generation + plus, group.member_id)

    async with AppHarness(
        counting("in_memory"),
        topics={"in": 2, "out": 1},
        processing_guarantee=EOS,
        commit_interval_ms=5_000,
        on_state=lambda new, _: seen.append(new.name),
    ) as harness:
        load = Load(harness, Random(1))
        await load.through(50)
        seen.clear()
        await load.send(50)
        while harness.app.metrics()["process-total"] < 100:
            await asyncio.sleep(0.001)
        harness.fail("commit", IllegalGeneration("a new generation"))
        monkeypatch.setattr(DelegatedMembership, "committing", property(committing))
        with pytest.raises(IllegalGeneration):
            await harness.app.commit()
        assert seen == []
        # Commits go on with the assignment of that generation.
        async with harness.another():
            await load.check(EOS)


@in_app(counting(), topics={"in": 1, "out": 1}, processing_guarantee=EOS, uncaught_handler=replace)
async def test_an_answer_that_is_lost_does_not_commit_twice(harness: AppHarness) -> None:
    """When the log has committed, but the answer does not come, only the log knows: the tasks begin anew from there, and nothing is doubled."""
    load = Load(harness, Random(1))
    await load.through(50)
    harness.fail("commit", LogError("the answer is lost"), after=True)
    await load.send(50)
    await load.check(EOS)


@pytest.mark.parametrize("times", [1, 5])
@in_app(counting(), topics={"in": 1, "out": 1}, processing_guarantee=EOS, uncaught_handler=replace)
async def test_aborting_is_tried_again(harness: AppHarness, times: int) -> None:
    """A transaction that cannot be aborted at once is aborted later: nothing of it gets into the next one."""
    load = Load(harness, Random(1))
    await load.send(50)
    harness.fail("commit", TransactionAborted("void"))
    harness.fail("abort", LogError("away"), times)
    await load.check(EOS)


@in_app(counting(), topics={"in": 1, "out": 1}, processing_guarantee=EOS, task_timeout_ms=2_000)
async def test_a_transaction_that_cannot_be_aborted_ends_the_app(harness: AppHarness) -> None:
    """When aborting fails for longer than task_timeout_ms, nothing is certain any more: the app ends, whatever the handler says."""
    harness.fail("commit", TransactionAborted("void"))
    harness.fail("abort", LogError("away for good"), 1000)
    await harness.produce("in", "a", "1")
    error = await harness.ended()
    assert isinstance(error, LogError)
    harness.log._faults._before.clear()
    await harness.restart()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"a": [1]}


@in_app(counting(), topics={"in": 1, "out": 1}, processing_guarantee=EOS, commit_interval_ms=1_000)
async def test_a_transaction_is_open_no_longer_than_it_has_to(harness: AppHarness) -> None:
    """Little output waits for its commit, as nobody sees it earlier; if the instance dies before that, it has kept nobody from reading."""
    load = Load(harness, Random(1))
    await load.send(50)
    await harness.kit.clock.advance(0.9)
    assert harness.app.metrics()["process-total"] == 50
    (transaction,) = harness.log._broker.transactions.values()
    assert not transaction.partitions
    await load.check(EOS)


@in_app(counting(), topics={"in": 1, "out": 1}, processing_guarantee=EOS, commit_interval_ms=1_000, uncaught_handler=replace)
async def test_a_transaction_that_takes_too_long_is_done_again(harness: AppHarness) -> None:
    """When the log has aborted the transaction because its time was over, everything in it is done again, once."""
    load = Load(harness, Random(1))
    await load.send(6_000)  # fewer would not be written before the commit
    await harness.kit.clock.advance(0.01)
    (transaction,) = harness.log._broker.transactions.values()
    assert transaction.partitions
    harness.log._broker._expire(transaction)  # as if its time were over
    await load.check(EOS)
    assert harness.app.metrics()["rolled-back-total"] == 1


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_an_output_topic_that_is_gone_is_named(harness: AppHarness) -> None:
    """Records for a topic that was deleted are ProductionFailed, naming the topic."""
    harness.delete_topics("out")
    await harness.produce("in", "a", "1")
    error = await harness.ended()
    assert isinstance(error, ProductionFailed)
    assert (error.topic, error.partition) == ("out", 0)
    assert isinstance(error.__cause__, UnknownTopicOrPartition)


class Punctuating(Processor[str, str, str, str]):
    """Write a record every second of the wall clock."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1000, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", str(now), now))

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


@in_app(processing(Punctuating), topics={"in": 1, "out": 1})
async def test_the_output_of_punctuators_is_committed(harness: AppHarness, guarantee: str) -> None:
    """Output without input is committed like any other."""
    await harness.kit.clock.advance(3.5)
    await harness.app.commit()
    assert [int(record.value or 0) // 1000 for record in await harness.read("out")] == [1, 2, 3]
    assert harness.app.state is InstanceState.RUNNING


class EachMinute(Processor[str, str, str, str]):
    """Writes a record every minute of the wall clock."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(60_000, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", str(now), now))

    def process(self, record: Record[str, str]) -> None:
        """Ignore the input."""


@pytest.mark.parametrize("error", [LogTimeout("late"), TransactionAborted("void")])
@in_app(processing(EachMinute), topics={"in": 1, "out": 1}, processing_guarantee=EOS, commit_interval_ms=100, task_timeout_ms=20_000)
async def test_failures_with_no_work_in_between_end_no_app(harness: AppHarness, error: Exception) -> None:
    """The work of a punctuation does not come back, so nothing is committed between two failures, each alone within the limit."""
    await harness.kit.clock.advance(30)
    for minutes in (1, 2, 3):
        harness.fail("send", error)
        await harness.kit.clock.advance(60)
        assert harness.app.metrics()["rolled-back-total"] == minutes
    assert harness.app.state is InstanceState.RUNNING
    await harness.kit.clock.advance(60)
    assert len(await harness.read("out")) == 1


class Looking(Punctuating):
    """Do something on every punctuation, by the first record's value; `touch` is a put, and `read` looks."""

    times: ClassVar[list[int]] = []

    def tick(self, now: int) -> None:
        self.times.append(now)
        store = self.context.get_state_store("kept")
        if store.get("does") == "touch":
            store.put("at", str(now))
        if store.get("does") == "order":
            self.context.commit()

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("kept").put("does", record.value)


@pytest.mark.parametrize(("does", "commits"), [("read", False), ("touch", True), ("order", True)])
@in_virtual_time
async def test_a_punctuator_that_does_nothing_costs_no_commit(guarantee: str, does: str, commits: bool) -> None:
    """One that forwards nothing and only reads stores leaves nothing to commit; a put, or an order to commit, does."""
    topology = processing(Looking)
    topology.add_state_store(stores.key_value("kept", serdes.STRING, serdes.STRING), "processor")
    async with AppHarness(topology, topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=500) as harness:
        Looking.times.clear()
        await harness.kit.clock.advance(5)
        assert harness.app.metrics()["commit-total"] == 0
        await harness.produce("in", "a", does)
        await harness.kit.clock.advance(5)
        before = harness.app.metrics()["commit-total"]
        await harness.kit.clock.advance(60)
        assert (harness.app.metrics()["commit-total"] - before >= 50) is commits
        assert commits or harness.app.metrics()["commit-total"] == before == 1
        assert len(Looking.times) >= 65
