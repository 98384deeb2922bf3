"""Commits, crashes and rollbacks while asynchronous code has records in its hands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ks_actors import FixedKeyProcessorContext, FixedKeyRecord, Processor, ProcessorContext, Record, TaskTimeout, UncaughtResponse, serdes, stores
from ks_actors.dsl import Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.processors import FixedKeyProcessor
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import ALOS, EOS, STRINGS, STRINGS_OUT, Asked, Load, by_key, check_counts, feed_all, in_virtual_time

pytestmark = pytest.mark.unmeasured


class Watch:
    """The monitor of a test's calls: it fails when an offset is committed while the call of the record in front of it has not ended."""

    def __init__(self, seed: int, longest: float = 0.05) -> None:
        self.harness: AppHarness | None = None
        self.random: Random = Random(seed)
        self.in_flight: int = 0
        self.most: int = 0
        self.cancelled: int = 0
        self.wrong: list[str] = []
        self._longest = longest

    async def call(self, topic: str, partition: int, offset: int) -> None:
        """Take some time, and see to it that nothing of this is committed meanwhile."""
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(self.random.random() * self._longest)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1
            committed = self.committed(topic, partition)
            if committed > offset:
                self.wrong.append(f"{topic}-{partition}: {committed} is committed, and the call for {offset} ends only now")

    def committed(self, topic: str, partition: int) -> int:
        """Return the committed records of the log right now."""
        assert self.harness is not None
        found = self.harness.log._groups.get("app").committed().get(TopicPartition(topic, partition))
        return 0 if found is None else found.offset


class Slow(FixedKeyProcessor[str, str, str]):
    """Takes its time, and forwards its record."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def init(self, context: FixedKeyProcessorContext[str, str]) -> None:
        self._context = context

    async def process(self, record: FixedKeyRecord[str, str]) -> None:
        at = self._context.record_metadata()
        assert at is not None
        await self._watch.call(*at)
        self._context.forward(record)


class SlowCount(Processor[str, str, str, int]):
    """Counts in a store of its own, with time going by between reading and writing; on the way out of a cancelled call it writes nonsense."""

    stores = (stores.key_value("mine", serdes.STRING, serdes.LONG),)

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def init(self, context: ProcessorContext[str, int]) -> None:
        self._context = context
        self._store = context.get_state_store("mine")

    async def process(self, record: Record[str, str]) -> None:
        at = self._context.record_metadata()
        assert at is not None
        key = record.key or ""
        count = (self._store.get(key) or 0) + 1
        self._store.put(key, count - 1)
        try:
            await self._watch.call(*at)
        except asyncio.CancelledError:
            self._store.put(key, 1_000_000)
            await asyncio.sleep(0.01)
            self._store.put(key, 2_000_000)
            raise
        self._store.put(key, count)
        self._context.forward(record.with_value(count))


def supplied(make: Callable[[], Any], needs: tuple[Any, ...]) -> Any:
    """Return a supplier with the stores that its processors need."""

    def supplier() -> Any:
        return make()

    supplier.stores = needs  # type: ignore[attr-defined]  # where a supplier has them
    return supplier


def counting_behind(watch: Watch, *, order: str = "key", max_in_flight: int = 20, repartition: bool = False) -> Topology:
    """Count by key, or by value, behind a slow processor."""
    builder = StreamsBuilder()
    slow = builder.stream("in", STRINGS).process_values(lambda: Slow(watch), order=order, max_in_flight=max_in_flight)  # type: ignore[arg-type]
    grouped = slow.group_by(lambda _, value: value, Grouped(serdes.STRING, serdes.STRING, name="by")) if repartition else slow.group_by_key()
    grouped.count(Materialized("counts", serdes.STRING, serdes.LONG)).to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


def counting_inside(watch: Watch) -> Topology:
    """Count by key in the store of a slow processor."""
    builder = StreamsBuilder()
    supplier = supplied(lambda: SlowCount(watch), SlowCount.stores)
    builder.stream("in", STRINGS).process(supplier, max_in_flight=20).to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


async def crash_now_and_then(harness: AppHarness, load: Load, random: Random, *, crashes: int) -> None:
    """Write, let some work be done, crash in the middle of it, start again; at the end wait until all is done."""
    for _ in range(crashes):
        await load.send(random.randrange(1, 80))
        if random.random() < 0.8:
            await asyncio.sleep(random.choice([0.01, 0.07, 0.1, 0.1001, 0.35]))
        await harness.turns(random.randrange(120))
        await harness.crash()
        await harness.restart()
    await harness.caught_up()


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_commit_never_passes_a_record_in_flight(seed: int, guarantee: str) -> None:
    """However calls overlap, and through crashes at random moments: no offset is committed before its call has ended, and counts are as promised."""
    random, watch = Random(seed), Watch(seed)
    order = ("key", "partition", "none")[seed % 3]
    async with AppHarness(
        counting_behind(watch, order=order, repartition=seed % 2 == 1),
        seed=seed,
        topics={"in": 3, "out": 1},
        processing_guarantee=guarantee,
        num_workers=1 + seed % 2,
        commit_interval_ms=100,
    ) as harness:
        watch.harness = harness
        load = Load(harness, random, by_value=seed % 2 == 1)
        await crash_now_and_then(harness, load, random, crashes=5)
        assert watch.wrong == []
        assert watch.most > 10
        assert watch.cancelled > 0
        assert watch.in_flight == 0
        check_counts(await harness.read("out"), load.sent, guarantee)


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_store_used_by_calls_survives_crashes(seed: int, guarantee: str) -> None:
    """A store that async calls read and write is exact after crashes; calls cancelled then write to nothing that lives."""
    random, watch = Random(seed), Watch(seed)
    async with AppHarness(
        counting_inside(watch), seed=seed, topics={"in": 2, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100
    ) as harness:
        watch.harness = harness
        load = Load(harness, random)
        await crash_now_and_then(harness, load, random, crashes=5)
        assert watch.wrong == []
        assert watch.cancelled > 0
        check_counts(await harness.read("out"), load.sent, guarantee)


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_rollback_redoes_records_in_flight(seed: int, guarantee: str) -> None:
    """Commits that the log refuses cancel records in flight and do them again; late writes of cancelled calls to a store are void."""
    random, watch = Random(seed), Watch(seed)
    async with AppHarness(
        counting_inside(watch),
        seed=seed,
        topics={"in": 2, "out": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=50,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        watch.harness = harness
        load = Load(harness, random)
        for _ in range(8):
            await load.send(random.randrange(1, 60))
            # The commit fails while the calls of the records behind it are in flight.
            harness.fail("commit" if guarantee == EOS else "commit_offsets", ValueError("refused"), after=False)
            await asyncio.sleep(random.choice([0.03, 0.11, 0.2]))
        harness.log._faults._before.clear()
        await harness.caught_up()
        assert watch.wrong == []
        assert watch.cancelled > 0
        assert harness.app.metrics()["rolled-back-total"] > 0
        check_counts(await harness.read("out"), load.sent, guarantee)


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_a_worker_that_dies_takes_its_calls_in_flight_with_it(seed: int, guarantee: str) -> None:
    """A record that fails while others are in flight: these are cancelled and done again."""
    watch, failures = Watch(seed), {"v3", "v40", "v41", "v77"}

    def bomb(_: Any, value: Any) -> None:
        if value in failures:
            failures.remove(value)
            raise RuntimeError("boom")

    builder = StreamsBuilder()
    slow = builder.stream("in", STRINGS).process_values(lambda: Slow(watch))
    counts = slow.peek(bomb).group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(
        builder.build(),
        seed=seed,
        topics={"in": 2, "out": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        watch.harness = harness
        for index in range(100):
            await harness.produce("in", f"k{index % 10}", f"v{index}", index)
        await harness.caught_up()
        assert (failures, watch.wrong) == (set(), [])
        assert watch.cancelled > 0
        check_counts(await harness.read("out"), {f"k{key}": 10 for key in range(10)}, guarantee)


@in_virtual_time
async def test_the_end_of_the_app_waits_for_calls_in_flight(guarantee: str) -> None:
    """Closing lets calls end, hands their results on and commits them; nothing is done again by the next app."""
    watch = Watch(0, longest=1.0)
    async with AppHarness(counting_behind(watch), topics={"in": 2, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=10_000) as harness:
        watch.harness = harness
        load = Load(harness, Random(0))
        await load.send(50)
        await asyncio.sleep(0.05)
        assert watch.in_flight > 5
        taken = watch.in_flight
        await harness.close()
        assert (watch.in_flight, watch.cancelled, watch.wrong) == (0, 0, [])
        assert taken <= len(await harness.read("out")) < 50
        await harness.start()
        await load.check(EOS)


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_calls_that_do_not_end_fail_the_commit(seed: int, guarantee: str) -> None:
    """A commit waits max_drain_ms for calls to end; then it is a TaskTimeout that names task and processor, and the next try does them again."""
    loop_times: list[float] = []
    errors = Asked()

    async def hang_once(value: str) -> str:
        loop_times.append(asyncio.get_running_loop().time())
        if len(loop_times) <= 3:
            await asyncio.get_running_loop().create_future()
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(hang_once, name="stuck").to("out", STRINGS_OUT)
    async with AppHarness(
        builder.build(),
        seed=seed,
        topics={"in": 1, "out": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        max_drain_ms=700,
        uncaught_handler=errors,
    ) as harness:
        await feed_all(harness, "in", [TestRecord(f"k{index}", f"v{index}", index) for index in range(5)])
        assert {key: values[-1:] for key, values in by_key(await harness.read("out")).items()} == {f"k{i}": [f"v{i}"] for i in range(5)}
        assert len(errors) == 1
        assert isinstance(errors[0], TaskTimeout)
        for told in ("has ended for 0.7 s", "task 0_0", "stuck"):
            assert told in str(errors[0])
        assert 0.7 <= loop_times[-1] - loop_times[0] < 1.0


def stubborn_calls() -> tuple[Topology, asyncio.Event]:
    """Return a topology with calls that go on although they are cancelled, until the event is set."""
    let_go = asyncio.Event()

    async def stubborn(value: str) -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(stubborn, name="stubborn").to("out", STRINGS_OUT)
    return builder.build(), let_go


@in_virtual_time
async def test_calls_that_do_not_let_go_end_the_app(guarantee: str) -> None:
    """A call that goes on although it was cancelled could write to a store that was rolled back: the app ends, by an error that names it."""
    topology, let_go = stubborn_calls()
    async with AppHarness(topology, topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100, max_drain_ms=300) as harness:
        await harness.produce("in", "k", "v", 0)
        error = await harness.ended()
        let_go.set()
        await harness.turns(3)
        assert isinstance(error, TaskTimeout)
        assert "did not end when they were cancelled: task 0_0 at stubborn" in str(error)
        assert await harness.read("out") == []


@in_virtual_time
async def test_an_app_may_go_on_beside_calls_that_do_not_let_go(guarantee: str) -> None:
    """When the handler decides to go on the tasks begin anew with new stores, after longer and longer rests; results of earlier calls are void."""
    topology, let_go = stubborn_calls()
    asked = Asked()

    async with AppHarness(
        topology, topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100, max_drain_ms=300, uncaught_handler=asked
    ) as harness:
        await harness.produce("in", "k", "v", 0)
        await harness.kit.clock.advance(60)
        assert 5 < len(asked) < 30
        let_go.set()
        await harness.caught_up()
        assert by_key(await harness.read("out")) == {"k": ["v"]}


@in_virtual_time
async def test_a_task_that_moves_takes_nothing_in_flight_with_it() -> None:
    """When a second instance takes over a task, the first one's records in flight are done and committed before."""
    watch = Watch(3)
    async with AppHarness(counting_behind(watch), topics={"in": 4, "out": 1}, processing_guarantee=ALOS, commit_interval_ms=100) as harness:
        watch.harness = harness
        load = Load(harness, Random(3), keys=40)
        await load.send(300)
        async with harness.another(client_id="other") as other:
            await load.through(100)
            assert other.app.metrics()["process-total"] > 0
        await harness.caught_up()
        assert (watch.wrong, watch.cancelled) == ([], 0)
        check_counts(await harness.read("out"), load.sent, EOS)
