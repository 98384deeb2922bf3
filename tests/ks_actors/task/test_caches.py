"""Caches in an app that commits, fails, moves and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from ks_actors import UncaughtResponse, blocking, serdes
from ks_actors.dsl import Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import EOS, GUARANTEES, STRINGS, STRINGS_OUT, Bomb, by_key, counting, in_app, in_virtual_time

TOPICS = {"in": 2, "out": 1}
SIZE = 1 << 20


def check_last(found: Mapping[str, list[int]], sent: Mapping[str, int], *, exactly: bool) -> None:
    """Check counts: the last of each key is right; exactly once they rise, at least once none is sent by fewer records than there were."""
    assert {key: values[-1] for key, values in found.items()} == sent
    for values in found.values() if exactly else ():
        assert values == sorted(set(values))


async def send(harness: AppHarness, sent: dict[str, int], random: Random, count: int) -> None:
    records = []
    for _ in range(count):
        key = f"k{random.randrange(8)}"
        sent[key] = sent.get(key, 0) + 1
        records.append(TestRecord(key, "v", sum(sent.values())))
    await harness.produce_all("in", records)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_app(counting(), topics=TOPICS, commit_interval_ms=10_000, statestore_cache_max_bytes=SIZE)
async def test_a_commit_sends_the_last_update_of_each_row(harness: AppHarness, guarantee: str) -> None:
    """With the timestamp of that, before the offsets are committed; between commits nothing goes downstream while there is room."""
    await harness.produce_all("in", [TestRecord(key, "v", time) for time, key in enumerate("abaacb")], partition=0)
    await asyncio.sleep(1.0)
    assert harness.app.metrics()["process-total"] == 6
    assert await harness.read("out") == []
    await harness.app.commit()
    assert [(row.key, row.value, row.timestamp) for row in await harness.read("out")] == [("a", 3, 3), ("b", 2, 5), ("c", 1, 4)]
    await harness.produce("in", "a", "v", 10, partition=0)
    await asyncio.sleep(1.0)
    await harness.close()
    assert [(row.key, row.value) for row in await harness.read("out")][3:] == [("a", 4)]
    await harness.start()
    await harness.caught_up()
    assert len(await harness.read("out")) == 4


@pytest.mark.parametrize(("guarantee", "repartition"), [(GUARANTEES[0], False), (EOS, False), (EOS, True)])
@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_failures_roll_back_cached_updates_too(seed: int, guarantee: str, repartition: bool) -> None:
    """Processors that raise and crashes at random moments: in the end every count is right, and exactly once none was sent twice."""
    random, bomb, sent = Random(seed), Bomb(), dict[str, int]()
    async with AppHarness(
        counting(bomb=bomb, repartition=repartition),
        seed=seed,
        topics=TOPICS,
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        statestore_cache_max_bytes=random.choice([1, 700, SIZE]),
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        for _ in range(8):
            await send(harness, sent, random, random.randrange(1, 60))
            bomb.armed = random.choice([0, 0, 1])
            await asyncio.sleep(random.choice([0.01, 0.07, 0.1001, 0.35]))
            await harness.turns(random.randrange(100))
            if random.random() < 0.4:
                await harness.crash()
                await harness.restart()
        bomb.armed = 0
        await harness.caught_up()
        found = by_key(await harness.read("out"))
        total = {"v": sum(sent.values())} if repartition else sent
        check_last(found, total, exactly=guarantee == EOS)


def asking(calls: list[tuple[str, int]], fail: list[int]) -> Topology:
    """Ask about each count, slowly, count the answers, and ask about those."""
    builder = StreamsBuilder()
    material: Materialized[Any, Any] = Materialized("counts", serdes.STRING, serdes.LONG)

    async def ask(key: str, count: Any) -> str:
        calls.append((key, count))
        await asyncio.sleep(0.01)
        if fail:
            fail.pop()
            raise RuntimeError("no answer")
        return f"{count}"

    counts = builder.stream("in", STRINGS).group_by_key().count(material).to_stream()
    answers = counts.map_values(ask, max_in_flight=5, order="key")
    answers.to("out", STRINGS_OUT)
    last = answers.group_by_key(Grouped(serdes.STRING, serdes.STRING)).reduce(lambda _, new: new)
    last.to_stream().map_values(ask, max_in_flight=3).to("last", STRINGS_OUT)
    return builder.build()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_a_commit_waits_for_calls_about_cached_updates(seed: int, guarantee: str) -> None:
    """Updates go through async processors, into other caches, and through the nodes behind these, all in the commit of their input."""
    calls: list[tuple[str, int]] = []
    fail: list[int] = []
    random, sent = Random(seed), dict[str, int]()
    async with AppHarness(
        asking(calls, fail),
        seed=seed,
        topics={**TOPICS, "last": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=200,
        statestore_cache_max_bytes=SIZE,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        for _ in range(3):
            await send(harness, sent, random, 200)
            await harness.caught_up()
            found = by_key(await harness.read("out"))
            assert {key: int(values[-1]) for key, values in found.items()} == sent
            assert by_key(await harness.read("last")).keys() == found.keys()
            assert {key: int(values[-1]) for key, values in by_key(await harness.read("last")).items()} == sent
        fail.append(1)
        await send(harness, sent, random, 100)
        await harness.caught_up()
        assert {key: int(values[-1]) for key, values in by_key(await harness.read("last")).items()} == sent
        assert len(calls) < 700


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_app(counting(), topics=TOPICS, commit_interval_ms=9_000, statestore_cache_max_bytes=SIZE)
async def test_a_task_that_moves_has_sent_its_cached_updates(harness: AppHarness, guarantee: str) -> None:
    """A second member takes over half of the tasks: their cached updates were sent and committed before."""
    random, sent = Random(1), dict[str, int]()
    await send(harness, sent, random, 300)
    await asyncio.sleep(1.0)
    assert await harness.read("out") == []
    async with harness.another() as second:
        await asyncio.sleep(20.0)
        await send(harness, sent, random, 100)
        await asyncio.sleep(20.0)
        await second.caught_up()
    await harness.caught_up()
    check_last(by_key(await harness.read("out")), sent, exactly=True)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_app(counting(), topics=TOPICS, commit_interval_ms=9_000, statestore_cache_max_bytes=SIZE)
async def test_the_last_worker_sends_cached_updates_before_it_goes(harness: AppHarness, guarantee: str) -> None:
    """The worker's end needs no commit, and an app without workers goes on committing."""
    random, sent = Random(1), dict[str, int]()
    await send(harness, sent, random, 3_000)
    await asyncio.sleep(1.0)
    await harness.remove_worker()
    await harness.app.commit()
    check_last(by_key(await harness.read("out")), sent, exactly=True)
    await harness.add_worker()
    await send(harness, sent, random, 100)
    await harness.caught_up()
    check_last(by_key(await harness.read("out")), sent, exactly=True)


@in_virtual_time
async def test_functions_that_block_get_cached_updates_in_a_thread() -> None:
    """A flush runs the same code as processing does, and so where that runs."""
    builder = StreamsBuilder()
    loops: list[bool] = []

    @blocking
    def slowly(count: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        else:
            loops.append(True)
        return count

    table = builder.stream("in", STRINGS).group_by_key().count()
    table.to_stream().map_values(slowly).to("out", Produced(serdes.STRING, serdes.LONG))
    random, sent = Random(1), dict[str, int]()
    async with AppHarness(builder.build(), topics=TOPICS, commit_interval_ms=200, statestore_cache_max_bytes=SIZE) as harness:
        await send(harness, sent, random, 300)
        await harness.caught_up()
        check_last(by_key(await harness.read("out")), sent, exactly=True)
        assert loops
        assert not any(loops)
