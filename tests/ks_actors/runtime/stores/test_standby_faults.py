"""Standbys with failing changelogs, disks or logs: they are no one's only copy, so nothing else suffers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, cast

import pytest

from actors import Spec
from ks_actors import Batch, LogError, StateFull, TaskCorrupted, TaskId
from ks_actors.log import GroupMetadata, IsolationLevel, Membership, NewTopic, Outgoing, TopicPartition
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.runtime import messages as m
from ks_actors.runtime.stores._restore_limits import Limits
from ks_actors.runtime.stores._restorer import Restorer
from ks_actors.state import TaskStores
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import EOS, Asked, Load, counting, echo, in_app, in_virtual_time, replace
from tests.ks_actors.runtime.stores.standbys import Heard, active, all_caught_up, check_places, contents, keeper, other, settled, standing, stores_of
from tests.layouts import OWN

pytestmark = pytest.mark.unmeasured

TOPICS = {"in": 4, "out": 1}


class Gate:
    """In the way of readers of changelogs: one of them reads nothing while it is shut, or gets errors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shut: Restorer | None = None
        self.errors: list[Exception] = []
        real = Restorer._fetch_once
        gate = self

        async def fetch_once(restorer: Restorer, most: int) -> m.FetchSucceeded:
            if gate.shut is restorer:
                await gate.wait(restorer)
            if gate.errors and not restorer._ends:
                raise gate.errors.pop()
            return await real(restorer, most)

        monkeypatch.setattr(Restorer, "_fetch_once", fetch_once)

    async def wait(self, restorer: Restorer) -> None:
        """Wait until it is open, as a log that does not answer would let one wait."""
        fetcher = restorer._fetcher
        positions = dict(restorer._reading)
        fetcher.assign({})
        while self.shut is restorer:
            await fetcher.fetch(max_wait_ms=100)
        fetcher.assign(positions)


def restorer(harness: AppHarness) -> Restorer:
    """Return the actor that reads the changelogs of an instance."""
    instance = harness.app._instance
    assert instance is not None
    assert instance.parts is not None
    return instance.parts.restorer


def copies(harness: AppHarness) -> dict[Any, Any]:
    return {key: value for stores in keeper(harness).standby_stores().values() for key, value in contents(stores).items()}


def originals(harness: AppHarness) -> dict[Any, Any]:
    return {key: value for task in active(harness) for key, value in contents(stores_of(harness)[task]).items()}


# --- changelogs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_a_standby_whose_changelog_was_cut_off_starts_over_alone(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its next records have been deleted, its stores are wiped and filled from the rest; all other tasks stay as they are."""
    gate, heard = Gate(monkeypatch), Heard()
    async with AppHarness(
        counting(store), topics=TOPICS, num_standby_replicas=1, processing_guarantee=EOS, restore_listener=heard, standby_listener=heard
    ) as harness:
        load = Load(harness, Random(1), keys=60)
        async with other(harness) as second:
            await load.through(300)
            await settled(harness.kit)
            gate.shut = restorer(harness)
            await settled(harness.kit)
            before = {task: stores_of(harness)[task] for task in standing(harness)}
            mine = {task: stores_of(harness)[task] for task in active(harness)}
            await load.through(300)
            cut = min(before)
            changelog = TopicPartition("app-counts-changelog", int(cut[2:]))
            (end,) = (await harness.log.end_offsets([changelog], IsolationLevel.READ_UNCOMMITTED)).values()
            await harness.log.delete_records({changelog: end - 3})
            heard.told.clear()
            gate.shut = None
            await settled(harness.kit)
            assert [number for kind, number, _ in heard.told if kind == "follow"] == [int(cut[2:])]
            assert heard.take("follow") == {int(cut[2:]): None}
            after = {task: stores_of(harness)[task] for task in standing(harness)}
            assert after.keys() == before.keys()
            assert {task for task in after if after[task] is not before[task]} == {cut}
            assert {task: stores_of(harness)[task] for task in active(harness)} == mine
            assert set(contents(after[cut]).items()) <= set(contents(stores_of(second)[cut]).items())
            assert harness.app.state is InstanceState.RUNNING
            await load.send(20)
            await load.check(EOS)


@in_app(counting("rocksdb"), topics=TOPICS, num_standby_replicas=1, processing_guarantee=EOS)
async def test_a_store_that_its_changelog_begins_behind_starts_over(harness: AppHarness) -> None:
    """An instance that was away while records were deleted fills that task's stores anew, be it a standby or not, and no others."""
    heard = Heard()
    load = Load(harness, Random(2), keys=60)
    async with other(harness, heard) as second:
        await load.through(300)
        await settled(harness.kit)
        await second.close()
        await load.through(300)
        changelog = TopicPartition("app-counts-changelog", 0)
        (end,) = (await harness.log.end_offsets([changelog], IsolationLevel.READ_UNCOMMITTED)).values()
        # Compaction would have left the last record of each key, at least.
        state = contents(stores_of(harness)["0_0"])
        await harness.log.delete_records({changelog: end})
        producer = await harness.log.producer(client_id="compacted")
        rows = sorted(state.items())
        keys, values = [key.encode() for key, _ in rows], [value.to_bytes(8, "big") for _, value in rows]
        await producer.send([Outgoing(changelog, Batch(keys, values, [0] * len(rows)))])
        await producer.close()
        heard.told.clear()
        await second.restart()
        await all_caught_up(harness)
        starts = [(number, start) for kind, number, start in heard.told if kind in {"restore", "follow"}]
        assert (0, None) in starts
        assert all(start for number, start in starts if number != 0)
        await load.send(100)
        await load.check(EOS)


@in_virtual_time
async def test_a_task_that_still_restores_becomes_a_standby(guarantee: str) -> None:
    """Restoring is suspended where it is, and goes on as following; nothing of it is read again."""
    heard = Heard()
    async with AppHarness(
        counting("in_memory"), topics=TOPICS, num_standby_replicas=1, processing_guarantee=guarantee, restore_listener=heard, standby_listener=heard
    ) as harness:
        load = Load(harness, Random(8), keys=60)
        await load.through(300)
        await harness.close()
        harness.wipe_state()
        # Somebody has left a transaction open in each changelog: restoring has to wait for its end.
        former = await harness.log.transactional_producer("former", client_id="former", timeout_ms=60_000)
        row = Batch([b"k0"], [(99).to_bytes(8, "big")], [0])
        await former.send([Outgoing(TopicPartition("app-counts-changelog", number), row) for number in range(4)])
        heard.told.clear()
        starting = asyncio.ensure_future(harness.restart())
        await harness.kit.clock.advance(1)
        read = heard.count("restored")
        assert read > 50
        assert not starting.done()
        joining = other(harness, start=False)
        async with joining:
            also_starting = asyncio.ensure_future(joining.start())
            await harness.kit.clock.advance(2)
            suspended = heard.take("restore suspended")
            assert len(suspended) == 2
            assert set(heard.take("follow")) == set(suspended)
            assert all(heard.take("follow").values())
            await former.abort()
            await starting
            await also_starting
            await load.through(50)
            await settled(harness.kit)
            assert heard.count("restored") + heard.count("loaded") <= read + 50
            assert copies(harness) == originals(joining)
            check_places(harness, joining)
        await load.check(guarantee)
        await former.close()


@pytest.mark.parametrize("seed", range(4))
@in_app(
    lambda seed: counting("in_memory" if seed % 2 else "rocksdb"),
    topics=TOPICS,
    num_standby_replicas=1,
    commit_interval_ms=2000,
    uncaught_handler=replace,
)
async def test_the_commit_before_a_task_becomes_a_standby_may_fail(harness: AppHarness, seed: int, guarantee: str) -> None:
    """The app drops uncommitted changes, from open stores too, and makes them again where the task is now."""
    load = Load(harness, Random(seed), keys=30)
    await load.through(100)
    for _ in range(3):
        await load.send(40)
        await harness.turns(harness.kit.random.randrange(60))
        harness.fail("commit" if guarantee == EOS else "commit_offsets", LogError("not now"), harness.kit.random.randrange(1, 4))
        async with other(harness) as second:
            await load.through(20)
            await settled(harness.kit)
            check_places(harness, second)
            assert copies(harness) == originals(second)
    await load.check(guarantee)


@in_app(counting(), topics=TOPICS, num_standby_replicas=1, processing_guarantee=EOS)
async def test_a_listener_that_raises_ends_the_app(harness: AppHarness) -> None:
    """As one of restoring does: its error is the error of the app; the other instance goes on alone."""

    class Bad(Heard):
        def on_batch_loaded(self, *told: Any) -> None:
            raise ValueError("this listener is broken")

    load = Load(harness, Random(9))
    async with other(harness, Bad()) as second:
        await load.send(100)
        error = await second.ended(60_000)
        assert isinstance(error, ValueError)
        assert second.app.state is InstanceState.ERROR
    await load.check(EOS)


# --- disks ----------------------------------------------------------------------------------------------------------------------


@OWN
@in_app(counting("rocksdb"), topics=TOPICS, num_standby_replicas=1)
async def test_a_standby_that_is_damaged_on_disk_is_wiped_alone(harness: AppHarness) -> None:
    """The one task is filled from the beginning of its changelog, all others from where they are."""
    heard = Heard()
    load = Load(harness, Random(3), keys=60)
    async with other(harness, heard) as second:
        await load.through(300)
        await settled(harness.kit)
        damaged = min(standing(second))
        await second.close()
        for file in (second.state_dir / damaged / "rocksdb").glob("*.sst"):
            file.unlink()
        await harness.kit.clock.advance(1)
        heard.told.clear()
        await second.restart()
        await all_caught_up(harness)
        starts = {**heard.take("restore"), **heard.take("follow")}
        assert {number for number, start in starts.items() if not start} == {int(damaged[2:])}
        assert copies(second) == originals(harness)
        check_places(harness, second)


@in_virtual_time
async def test_a_standby_that_cannot_be_written_any_more_is_wiped_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """When its database turns out to be damaged while it is written, the standby begins anew; no handler is asked, and nothing else is disturbed."""
    asked = Asked(UncaughtResponse.SHUTDOWN_CLIENT)
    broken: set[TaskStores] = set()
    real = TaskStores.flush_steps

    def flush_steps(stores: TaskStores) -> Iterator[None]:
        if stores in broken:
            broken.discard(stores)
            raise TaskCorrupted(f"task {stores.task}: a block cannot be read")
        yield from real(stores)

    monkeypatch.setattr(TaskStores, "flush_steps", flush_steps)

    async with AppHarness(counting("rocksdb"), topics=TOPICS, num_standby_replicas=1, uncaught_handler=asked) as harness:
        load = Load(harness, Random(4), keys=60)
        async with other(harness) as second:
            await load.through(300)
            await settled(harness.kit)
            victim = min(standing(second))
            before = stores_of(second)
            broken.add(before[victim])
            await harness.kit.clock.advance(30)
            after = stores_of(second)
            assert not broken
            assert {task for task, stores in after.items() if stores is not before[task]} == {victim}
            assert standing(second) >= {victim}
            assert copies(second) == originals(harness)
            assert not asked
            check_places(harness, second)


@in_virtual_time
async def test_a_disk_that_is_full_is_for_the_handler(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby that there is no room for is as much an error as a task; told to go on, the instance has it again when there is."""
    left = 0
    asked = Asked()
    real = TaskStores.open

    def open_stores(stores: TaskStores) -> None:
        nonlocal left
        if left:
            left -= 1
            raise StateFull("there is no room")
        real(stores)

    monkeypatch.setattr(TaskStores, "open", open_stores)

    async with AppHarness(
        counting("rocksdb"), topics=TOPICS, num_standby_replicas=1, processing_guarantee=guarantee, uncaught_handler=asked
    ) as harness:
        load = Load(harness, Random(5))
        await load.through(100)
        left = 2
        async with other(harness) as second:
            await load.through(100)
            await harness.kit.clock.advance(10)
            assert any(isinstance(error, StateFull) for error in asked)
            assert left == 0
            assert len(active(second) | standing(second)) == 4
            assert second.app.state is InstanceState.RUNNING
            await load.send(20)
            await load.check(guarantee)


# --- the log --------------------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_log_that_fails_while_standing_by_is_asked_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Standbys rest, longer and longer, and go on; tasks are processed all the time, and nobody is asked."""
    gate = Gate(monkeypatch)
    asked = Asked(UncaughtResponse.SHUTDOWN_CLIENT)

    async with AppHarness(counting("in_memory"), topics=TOPICS, num_standby_replicas=1, uncaught_handler=asked) as harness:
        load = Load(harness, Random(6), keys=40)
        async with other(harness) as second:
            await load.through(100)
            await settled(harness.kit)
            gate.errors += [LogError("the log is away")] * 14
            await harness.kit.clock.advance(1)
            await load.through(100)
            assert gate.errors
            await harness.kit.clock.advance(60)
            assert not gate.errors
            assert copies(second) == originals(harness)
            assert copies(harness) == originals(second)
            assert not asked
            assert "standbys are not updated; retrying in 0.2 s: the log is away" in caplog.text
            assert {harness.app.state, second.app.state} == {InstanceState.RUNNING}


@in_virtual_time
async def test_a_standby_begins_when_its_changelog_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bounds are asked for again and again; tasks that are to be processed do not wait for that."""
    real = Restorer._offsets_of
    left = 5

    async def look(restorer: Restorer, orders: Sequence[m.Restore | m.Follow]) -> m.ChangelogEnds:
        nonlocal left
        if left and isinstance(orders[0], m.Follow):
            left -= 1
            raise LogError("the log is away")
        return await real(restorer, orders)

    monkeypatch.setattr(Restorer, "_offsets_of", look)
    async with AppHarness(counting("in_memory"), topics=TOPICS, num_standby_replicas=1) as harness:
        load = Load(harness, Random(7), keys=40)
        await load.through(100)
        async with other(harness) as second:
            await load.through(100)
            await harness.kit.clock.advance(30)
            assert left == 0
            assert copies(second) == originals(harness)
            assert copies(harness) == originals(second)


# --- the order of reading -------------------------------------------------------------------------------------------------------

ROW = Batch([b"k"], [b"v"], [0])
TASK, COPY, THIRD = (TopicPartition("changelog", number) for number in range(3))


def _no_group() -> Membership:
    raise AssertionError("nobody asks: there are no source topics")


class Silent:
    """A group with a coordinator that answers the first question, and others when the test says."""

    def __init__(self) -> None:
        self.asked: int = 0
        self.back = asyncio.Event()

    async def committed(self, _: object) -> dict[Any, Any]:
        self.asked += 1
        if self.asked > 1:
            await self.back.wait()
            raise LogError("there is no coordinator")
        return {}


class Reading:
    """A reader of changelogs alone, with a probe in the place of the stores' owner."""

    def __init__(self, harness: AppHarness) -> None:
        self.kit = harness.kit
        self.log = harness.log
        self.probe = self.kit.probe(object)
        self.taken: int = 0

    async def begin(self, group: Silent | None = None) -> None:
        await self.log.create_topics([NewTopic("changelog", 3)])
        fetcher = self.log.fetcher(client_id="r", isolation=IsolationLevel.READ_COMMITTED)
        limits = Limits((), _no_group, 100) if group is None else Limits(("changelog",), lambda: cast("Membership", group), 100)
        self.reader = await self.kit.spawn(Spec(lambda: Restorer(self.log, fetcher, self.probe, limits, poll_ms=10)), "reader")

    async def write(self, partition: TopicPartition, number: int, size: int = 1) -> None:
        producer = await self.log.producer(client_id="writer")
        for _ in range(number):
            await producer.send([Outgoing(partition, Batch([b"k"] * size, [b"v"] * size, [0] * size))])
        await producer.close()

    def given(self) -> list[m.RestoredRecords]:
        return [message for message in self.probe.received if isinstance(message, m.RestoredRecords)]

    async def told(self) -> list[tuple[int, int]]:
        """Take in all given records; return their partition and next offset."""
        await self.kit.quiesce()
        while self.taken < len(self.given()):
            self.taken += 1
            self.reader.tell(m.RecordsApplied())
            await self.kit.quiesce()
        return [(one.partition.partition, one.next_offset) for each in self.given() for one in each.fetched]


@in_app(echo(), topics=TOPICS, start=False)
async def test_tasks_that_are_to_run_are_read_first(harness: AppHarness) -> None:
    """While one is restored nothing is read for standbys; then these go on from where they were, and are followed."""
    here = Reading(harness)
    await here.begin()
    former = await here.log.transactional_producer("former", client_id="former", timeout_ms=60_000)
    await here.write(COPY, 5)
    here.reader.tell(m.Follow(TaskId(0, 1), {COPY: 2}, 1))
    assert await here.told() == [(1, 5)]
    # What the former owner of a task has written is not decided about yet.
    await former.send([Outgoing(TASK, ROW)])
    here.reader.tell(m.Restore(TaskId(0, 0), {TASK: None}, 2))
    assert await here.told() == [(1, 5)]
    await here.write(COPY, 4)
    await here.kit.clock.advance(1)
    assert await here.told() == [(1, 5)]
    await former.commit({}, GroupMetadata("nobody", -1, ""))
    assert await here.told() == [(1, 5), (0, 2), (1, 9)]
    assert m.TaskRestored(TaskId(0, 0), 2) in here.probe.received
    await former.close()


@in_app(echo(), topics=TOPICS, start=False)
async def test_a_standby_that_is_to_run_goes_on_from_its_position(harness: AppHarness) -> None:
    """In any order; and closed ones are not read any more."""
    here = Reading(harness)
    await here.begin()
    await here.write(COPY, 5)
    await here.write(THIRD, 1)
    here.reader.tell(m.Follow(TaskId(0, 1), {COPY: 2}, 1))
    here.reader.tell(m.Follow(TaskId(0, 2), {THIRD: None}, 2))
    assert sorted(await here.told()) == [(1, 5), (2, 1)]
    await here.reader.ask(m.StopRestoring, frozenset({TaskId(0, 2)}))
    await here.write(THIRD, 1)
    here.reader.tell(m.Restore(TaskId(0, 1), {COPY: 0}, 3))
    await here.kit.quiesce()
    assert here.probe.received[-1] == m.TaskRestored(TaskId(0, 1), 3)
    await here.write(COPY, 1)
    await here.kit.clock.advance(1)
    assert sorted(await here.told()) == [(1, 5), (2, 1)]


@in_app(echo(), topics=TOPICS, start=False)
async def test_no_more_is_read_than_is_taken_in(harness: AppHarness) -> None:
    """Stores that are slower than the log do not fill the memory: beyond a message or two nothing is fetched."""
    here = Reading(harness)
    await here.begin()
    await here.write(COPY, 20, size=1000)
    here.reader.tell(m.Follow(TaskId(0, 1), {COPY: None}, 1))
    await here.kit.clock.advance(1)
    assert 1 <= len(here.given()) <= 3
    assert all(len(one.batch) <= 1000 for each in here.given() for one in each.fetched)
    assert (await here.told())[-1] == (1, 20_000)
    await here.write(TASK, 20, size=10_000)
    before = len(here.given())
    here.reader.tell(m.Restore(TaskId(0, 0), {TASK: None}, 2))
    await here.kit.clock.advance(1)
    assert 1 <= len(here.given()) - before <= 3
    assert (0, 200_000) in await here.told()
    assert m.TaskRestored(TaskId(0, 0), 2) in here.probe.received


@in_app(echo(), topics=TOPICS, start=False)
async def test_limits_are_asked_for_one_at_a_time(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """While a coordinator does not answer nobody asks again, and it is said once; then it goes on."""
    group = Silent()
    here = Reading(harness)
    await here.begin(group)
    here.reader.tell(m.Follow(TaskId(0, 1), {COPY: 0}, 1))
    await here.kit.clock.advance(30)
    await here.kit.quiesce()
    assert group.asked == 2
    group.back.set()
    await here.kit.quiesce()
    assert caplog.text.count("could not find out how far standbys may be read") == 1
    await here.kit.clock.advance(1)
    assert group.asked > 5


@in_app(echo(), topics=TOPICS, start=False)
async def test_a_missing_changelog_of_a_task_that_has_gone_is_no_fault_of_others(harness: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of several changelogs are looked up together; the others are looked up again."""
    here, answered = Reading(harness), asyncio.Event()
    await here.begin()
    await here.write(TASK, 3)
    real = type(here.log).begin_offsets

    async def begin_offsets(*arguments: Any) -> Any:
        await answered.wait()
        return await real(*arguments)

    monkeypatch.setattr(type(here.log), "begin_offsets", begin_offsets)
    here.reader.tell(m.Restore(TaskId(0, 1), {TopicPartition("deleted", 1): None}, 1))
    here.reader.tell(m.Restore(TaskId(0, 0), {TASK: None}, 1))
    assert await here.told() == []
    await here.reader.ask(m.StopRestoring, frozenset({TaskId(0, 1)}))
    answered.set()
    assert await here.told() == [(0, 3)]
    assert m.TaskRestored(TaskId(0, 0), 1) in here.probe.received
    assert [message for message in here.probe.received if isinstance(message, m.RestoreFailed)] == []
