"""Queries that go on while records are processed, and commits succeed and fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from ks_actors import Processor, ProcessorContext, QueryFailed, Record, Topology, TransactionAborted, UncaughtResponse, serdes, stores
from ks_actors.query import StateQueryRequest, _scan
from ks_actors.query._requests import RangeQuery
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import StoreType
from tests.ks_actors.query.helpers import COMMITTED, ENGINES, UNCOMMITTED
from tests.ks_actors.runtime.helpers import in_virtual_time
from tests.waiting import until

pytestmark = pytest.mark.unmeasured

ACCOUNTS = 8
EOS: dict[str, Any] = {"processing_guarantee": "exactly_once_v2", "commit_interval_ms": 40}


class Stamps(Processor[str, str, str, str]):
    """Keep, of each key, a number that no other attempt ever has, and move a coin from one account to another."""

    attempts: int = 0
    armed: int = 0

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._stamps = context.get_state_store("stamps")
        self._accounts = context.get_state_store("accounts")

    def process(self, record: Record[str, str]) -> None:
        if Stamps.armed:
            Stamps.armed -= 1
            raise RuntimeError("boom")
        Stamps.attempts += 1
        stamp = str(Stamps.attempts)
        self._stamps.put(record.key, stamp)
        if self._accounts.get("0") is None:
            for account in range(ACCOUNTS):
                self._accounts.put(str(account), 100)
        giver, taker = record.value.split()
        self._accounts.put(giver, self._accounts.get(giver) - 1)
        self._accounts.put(taker, self._accounts.get(taker) + 1)
        self._context.forward(record.with_value(stamp))


def stamping(engine: StoreType) -> Topology:
    text = serdes.STRING
    topology = Topology()
    topology.add_source("source", "in", key=text, value=text)
    topology.add_processor("stamp", Stamps, "source")
    topology.add_state_store(stores.key_value("stamps", text, text, type=engine), "stamp")
    topology.add_state_store(stores.key_value("accounts", text, serdes.LONG, type=engine), "stamp")
    topology.add_sink("sink", "out", "stamp", key=text, value=text)
    return topology


async def feed(harness: AppHarness, random: Random, number: int) -> None:
    """Write records, with faults in between: commits that fail, processors that raise, a group that is lost."""
    for _ in range(number):
        accounts = random.sample(range(ACCOUNTS), 2)
        batch = [TestRecord(f"k{random.randrange(6)}", f"{accounts[0]} {accounts[1]}", 0) for _ in range(random.randrange(1, 8))]
        await harness.produce_all("in", batch)
        fault = random.random()
        if fault < 0.06:
            harness.fail("commit", TransactionAborted("the broker has aborted it"))
        elif fault < 0.10:
            Stamps.armed = 1
        elif fault < 0.12:
            harness.lose_membership()
        await asyncio.sleep(random.random() * 0.03)


class Watch:
    """Read all rows, again and again, and keep them."""

    def __init__(self, random: Random) -> None:
        self.seen: dict[str, list[str]] = {}
        self.reads: int = 0
        self.scans: int = 0
        self._random = random

    async def run(self, harness: AppHarness) -> None:
        while True:
            with suppress(QueryFailed):  # the partitions are somebody else's, for a moment
                await self.look(harness)
            await asyncio.sleep(self._random.random() * 0.02)

    async def look(self, harness: AppHarness) -> None:
        stamps = harness.app.store("stamps", isolation=COMMITTED)
        for number in range(6):
            stamp = await stamps.get(f"k{number}")
            known = self.seen.setdefault(f"k{number}", [])
            if stamp is not None and known[-1:] != [stamp]:
                known.append(stamp)
            self.reads += 1
        for level in (COMMITTED, UNCOMMITTED):
            for partition in range(2):
                coins = [coins async for _, coins in harness.app.store("accounts", isolation=level, partition=partition).all()]
                assert sum(coins) in {0, 100 * ACCOUNTS}, level
                self.scans += 1

    def check(self, out: list[TestRecord[Any, Any]]) -> None:
        committed: dict[str, list[str]] = {}
        for record in out:
            committed.setdefault(str(record.key), []).append(str(record.value))
        for key, stamps in self.seen.items():
            places = [committed[key].index(stamp) for stamp in stamps]  # each is there
            assert places == sorted(set(places))
            assert stamps[-1] == committed[key][-1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_committed_reads_are_never_taken_back(engine: StoreType, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While transactions abort, every value that a READ_COMMITTED query has seen is in the committed output, and none comes back that was replaced.

    A scan sees one moment of each partition: no coin is ever missing, though others run between any two rows.
    """
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(_scan, "GLANCES", 1)
    monkeypatch.setattr(Stamps, "armed", 0)
    random = Random(seed)
    watch = Watch(random)

    def replace(error: Exception) -> UncaughtResponse:
        return UncaughtResponse.REPLACE_WORKER

    async with AppHarness(stamping(engine), seed=seed, topics={"in": 2, "out": 1}, uncaught_handler=replace, **EOS) as harness:
        watchers = [asyncio.ensure_future(watch.run(harness)) for _ in range(3)]
        await feed(harness, random, 120)
        await harness.caught_up()
        for watcher in watchers:
            assert not watcher.done() or watcher.exception() is None
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        await watch.look(harness)
        watch.check(await harness.read("out"))
        assert harness.app.metrics()["rolled-back-total"] > 0
        assert (watch.reads > 100, watch.scans > 50) == (True, True)


@pytest.mark.parametrize("engine", ENGINES)
@in_virtual_time
async def test_all_partitions_are_seen_at_one_moment(engine: StoreType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan over all partitions sees the state of one commit in all of them, with any number of commits while it is read."""
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(_scan, "GLANCES", 1)
    monkeypatch.setattr(Stamps, "armed", 0)
    async with AppHarness(stamping(engine), topics={"in": 2, "out": 1}, **EOS) as harness:
        store = harness.app.store("stamps", isolation=COMMITTED)
        for number in range(6):
            await harness.produce("in", f"k{number}", "0 1")
        await harness.caught_up()
        before = dict(await store.all())
        assert len(before) == 6
        found = {}
        async for key, value in store.all():
            found[key] = value
            for number in range(6):
                await harness.produce("in", f"k{number}", "0 1")
            await harness.caught_up()
        assert found == before
        assert dict(await store.all()).keys() == before.keys()
        assert set(dict(await store.all()).values()).isdisjoint(before.values())


@pytest.mark.parametrize("engine", ENGINES)
@in_virtual_time
async def test_queries_go_on_while_a_commit_does(engine: StoreType, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a transaction is being ended committed values are the old ones, and uncommitted ones the new ones; after it both are new."""
    monkeypatch.setattr(Stamps, "armed", 0)
    async with AppHarness(stamping(engine), topics={"in": 2, "out": 1}, **{**EOS, "commit_interval_ms": 10_000}) as harness:
        app = harness.app
        await harness.produce("in", "k0", "0 1")
        await harness.caught_up()
        old = await app.store("stamps", isolation=COMMITTED).get("k0")
        await harness.produce("in", "k0", "0 1")
        while await app.store("stamps", isolation=UNCOMMITTED).get("k0") == old:
            await asyncio.sleep(0.001)
        new = await app.store("stamps", isolation=UNCOMMITTED).get("k0")
        commit = asyncio.ensure_future(app.commit())
        levels: list[tuple[Any, Any]] = []

        async def look() -> bool:
            levels.append((await app.store("stamps", isolation=COMMITTED).get("k0"), await app.store("stamps").get("k0")))
            result = await app.query(StateQueryRequest(store="stamps", query=RangeQuery(), isolation=UNCOMMITTED))
            assert any(result.value == [("k0", new)] for result in result.partition_results.values())
            return commit.done()

        await until(look)
        await commit
        assert len(levels) > 5
        assert (old, old) in levels
        assert set(levels) <= {(old, old), (new, new)}
        assert await app.store("stamps", isolation=COMMITTED).get("k0") == new


@pytest.mark.parametrize("engine", ENGINES)
@in_virtual_time
async def test_a_rollback_takes_back_uncommitted_changes(engine: StoreType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put is read as uncommitted at once; when it is rolled back nothing of it is left."""
    monkeypatch.setattr(Stamps, "armed", 0)
    async with AppHarness(stamping(engine), topics={"in": 2, "out": 1}, **{**EOS, "commit_interval_ms": 10_000}) as harness:

        def read(level: Any) -> Callable[[], Any]:
            return lambda: harness.app.store("stamps", isolation=level).get("k0")

        await harness.produce("in", "k0", "0 1")
        await harness.caught_up()
        old = await read(COMMITTED)()
        await harness.produce("in", "k0", "0 1")
        while await read(UNCOMMITTED)() == old:
            await asyncio.sleep(0.001)
        new = await read(UNCOMMITTED)()
        assert await read(COMMITTED)() == old
        harness.fail("commit", TransactionAborted("the broker has aborted it"))
        with pytest.raises(TransactionAborted):
            await harness.app.commit()
        assert await read(COMMITTED)() == old
        assert await read(UNCOMMITTED)() in {old, str(int(new) + 1)}
        await harness.caught_up()
        assert await read(COMMITTED)() == str(int(new) + 1)
