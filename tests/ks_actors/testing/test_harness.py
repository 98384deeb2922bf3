"""The harness that the tests of apps stand on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from ks_actors import MissingSourceTopics, NotRunning, ProcessingFailed, StorageFull, TaskTimeout, UnknownTopicOrPartition, serdes
from ks_actors.log import IsolationLevel, NewTopic, TopicPartition
from ks_actors.log.embedded._faults import Operation
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.testing import AppHarness, TestRecord, explore_app, run_app
from ks_actors.testing._disk import copy_as_is
from tests.ks_actors.runtime.helpers import EOS, Asked, Bomb, Load, by_key, counting, echo, feed, in_app, in_virtual_time
from tests.waiting import until

TOPICS = {"in": 2, "out": 1}


def test_the_same_seed_gives_the_same_run() -> None:
    """One seed gives the same steps and the same output in the same order each time, crashes included; another one others."""

    def run(seed: int) -> tuple[int, list[object]]:
        async def test(harness: AppHarness) -> tuple[int, list[object]]:
            load = Load(harness, Random(5))
            async with harness.another(client_id="second"):
                await load.send(200)
                await harness.turns(50)
                await harness.crash()
                await harness.restart()
                await load.through(100)
            return harness.kit._dispatch.steps, [*await harness.read("out")]

        return run_app(test, counting("in_memory"), seed=seed, topics={"in": 4, "out": 1}, num_workers=2, processing_guarantee=EOS)

    assert run(1) == run(1)
    assert len({run(seed)[0] for seed in range(4)}) > 1


@pytest.mark.extended
@in_app(echo(), topics=TOPICS, wall_clock_ms=5_000)
async def test_time_is_virtual(harness: AppHarness) -> None:
    """Hours go by in no time, and the app's wall clock is the harness's."""
    await asyncio.sleep(3600)
    assert harness.kit.wall_time_ms() == 5_000 + 3_600_000
    await feed(harness, "in", "a", "now")
    assert (await harness.read("out"))[0].timestamp == 3_605_000


@in_app(counting(), topics={"in": NewTopic("in", 2), "out": 1})
async def test_records_are_written_with_the_serdes_of_the_topology(harness: AppHarness) -> None:
    """Keys and values go through the serdes that the topology has for the topic; bytes and None as they are; where it has none, all is bytes."""
    await harness.produce("in", "a", "1", headers=(("h", b"x"),))
    await feed(harness, "in", b"raw", None, 7, partition=1)
    assert await harness.read("out") == [TestRecord("a", 1, 0, (("h", b"x"),))]
    assert await harness.read("in", value=serdes.BYTES) == [TestRecord("a", b"1", 0, (("h", b"x"),)), TestRecord("raw", None, 7)]
    (record,) = await harness.read("app-counts-changelog")
    assert (record.key, record.value) == (b"a", (1).to_bytes(8))
    for call in (harness.read("nowhere"), harness.produce("nowhere", b"a", b"b")):
        with pytest.raises(UnknownTopicOrPartition, match="name it in `topics`"):
            await call


@in_app(counting(), topics=TOPICS, processing_guarantee=EOS, commit_interval_ms=5_000)
async def test_a_crash_leaves_the_state_of_a_killed_process(harness: AppHarness) -> None:
    """After a crash the transaction is open and the member in its group, as nobody has said good-bye; nothing uncommitted is to be seen."""
    many = 5_000  # little would not be written before the commit
    await harness.produce_all("in", [TestRecord("a", "1", 0)] * many)
    await until(lambda: harness.app.metrics()["produced-records-total"] >= many)
    app = harness.app
    await harness.crash()
    with pytest.raises(NotRunning):
        harness.app  # noqa: B018 - that it raises is the point
    assert app.state is InstanceState.RUNNING
    assert await harness.read("out") == []
    assert len(await harness.read("out", isolation=IsolationLevel.READ_UNCOMMITTED)) == many
    group = harness.log._groups.get("app")
    assert len(group._members) == 1
    await asyncio.sleep(11)
    assert harness.log._broker.partitions[TopicPartition("out", 0)].stable == many + 1  # aborted for its age
    await asyncio.sleep(35)
    assert len(group._members) == 0
    await harness.restart()
    with pytest.raises(NotRunning, match="already running"):
        await harness.start()
    with pytest.raises(NotRunning, match="close it, or crash it"):
        harness.wipe_state()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"a": list(range(1, many + 1))}


@in_app(echo(), topics=TOPICS)
async def test_ordered_failures_are_for_the_app_alone(harness: AppHarness) -> None:
    """The harness itself writes and reads, with any ordered failures."""
    await harness.close()
    harness.fail("send", StorageFull("no room"))
    harness.fail("fetch", StorageFull("no room"))
    await harness.produce("in", "a", "1")
    assert len(await harness.read("in")) == 1
    await harness.start()
    assert isinstance(await harness.ended(), StorageFull)


@in_virtual_time
async def test_an_ordered_failure_of_a_fetch_meets_one_that_waits() -> None:
    """A fetch that waits for records when the failure is ordered is the next call: it fails at once, and the app sees it."""
    errors = Asked(UncaughtResponse.SHUTDOWN_CLIENT)

    async with AppHarness(echo(), topics=TOPICS, uncaught_handler=errors, poll_ms=60_000) as harness:
        await harness.kit.clock.advance(10)
        before = asyncio.get_running_loop().time()
        harness.fail("fetch", StorageFull("no room"))
        assert isinstance(await harness.ended(), StorageFull)
        assert asyncio.get_running_loop().time() - before < 0.1
        assert len(errors) == 1


@pytest.mark.parametrize("operation", ["fetch", "join", "describe_topics"])
@in_app(echo(), topics=TOPICS)
async def test_a_failure_after_a_call_that_writes_nothing_is_refused(harness: AppHarness, operation: Operation) -> None:
    """It would never be raised; the error names the calls that can fail so."""
    with pytest.raises(ValueError, match=f"after=True is for abort, commit, commit_offsets, send: {operation} changes nothing"):
        harness.fail(operation, StorageFull("no room"), after=True)


def test_the_final_error_of_the_app_is_raised_at_the_end() -> None:
    """An app that has ended by an error fails the test, unless the test has looked at it, or fails by itself."""
    bomb = Bomb()

    async def test(harness: AppHarness) -> None:
        bomb.armed = 1
        await harness.produce("in", "a", "1")
        await harness.kit.clock.advance(1)

    with pytest.raises(ProcessingFailed, match="boom"):
        run_app(test, echo(bomb), topics=TOPICS)

    async def fails(harness: AppHarness) -> None:
        await test(harness)
        raise LookupError("the test's own")

    with pytest.raises(LookupError, match="own"):
        run_app(fails, echo(bomb), topics=TOPICS)


@in_app(echo(), topics=TOPICS)
async def test_waiting_has_its_limits(harness: AppHarness) -> None:
    """A wait for an event that does not come is TaskTimeout, in virtual time."""
    with pytest.raises(TaskTimeout, match="still runs after 5000 ms"):
        await harness.ended(5_000)
    await harness.start()
    await harness.app.pause()
    await harness.produce("in", "a", "1")
    with pytest.raises(TaskTimeout, match="not caught up"):
        await harness.caught_up(2_000)
    await harness.crash()
    with pytest.raises(TaskTimeout, match=r"in-. has records from offset 0 on"):
        await harness.caught_up(2_000)


@in_app(counting(), topics={"in": 1, "out": 1})
async def test_the_next_version_starts_on_the_same_log_and_disk(harness: AppHarness) -> None:
    """A restart with a topology, or settings, runs that version from where the last one was, which is closed first if it runs."""
    await feed(harness, "in", "a", "1")
    harness.create_topics({"more": 1})
    await harness.restart(topology=counting(topics=("in", "more")), commit_interval_ms=5)
    assert harness.config.commit_interval_ms == 5
    await feed(harness, "more", "a", "2")
    assert [record.value for record in await harness.read("out")] == [1, 2]
    async with harness.another(counting(topics=("in", "more")), start=False) as other:
        await harness.close()
        await other.start()
        await other.produce("more", "a", "3")
        await other.caught_up()
    assert [record.value for record in await harness.read("out")] == [1, 2, 3]
    await harness.restart(topology=echo())
    await feed(harness, "more", b"b", b"not read any more")


@in_app(echo(), topics=TOPICS)
async def test_topics_change_under_an_app(harness: AppHarness) -> None:
    """Topics are made, grow, and go while the app runs; errors that are on order are for the app, not for that."""
    harness.fail("create_topics", StorageFull("no room"))
    harness.create_topics({"late": NewTopic("late", 1)})
    harness.create_partitions({"late": 3, "in": 3})
    await feed(harness, "in", "a", "1", partition=2)
    harness.delete_topics("late")
    described = await harness.log.describe_topics()
    assert {name: topic.partitions for name, topic in described.items()} == {"in": 3, "out": 1}


def test_a_harness_whose_app_does_not_start_leaves_nothing() -> None:
    """The error of the start comes out of entering the block."""
    with pytest.raises(MissingSourceTopics):
        run_app(lambda _: pytest.fail("it started"), echo())


def test_exploring_finds_the_seed_that_fails() -> None:
    """`explore_app` returns the first failing seed, with its error, or None."""
    seen: list[int] = []

    async def test(harness: AppHarness) -> None:
        seen.append(harness.kit.seed)
        assert harness.kit.seed != 7

    found = explore_app(test, echo(), runs=10, seed=5, topics=TOPICS)
    assert found is not None
    assert (found.seed, type(found.error)) == (7, AssertionError)
    assert seen == [5, 6, 7]
    assert explore_app(test, echo(), runs=2, seed=8, topics=TOPICS) is None


def test_a_disk_is_copied_as_it_is(tmp_path: Path) -> None:
    """A copy has all files as they are; files that vanish or change meanwhile are copied again."""
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_text("content")
    target.mkdir()
    (target / "old").write_text("gone")
    copy_as_is(source, target)
    assert (target / "deep" / "file").read_text() == "content"
    assert not (target / "old").exists()
