"""Stores of the user's own in an app: processed, committed, rolled back, crashed, restored."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from ks_actors import LogError, Processor, QueryFailed, Record, Topology, TransactionAborted, serdes, stores
from ks_actors.log import IsolationLevel
from ks_actors.query import FailureReason, KeyQuery, Position, PositionBound, Query, RangeQuery, StateQueryRequest
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import ALOS, EOS, Asked, Load, by_key, check_counts, feed, in_app, in_virtual_time, replace
from tests.ks_actors.state.custom.test_custom import KINDS, InMemory, OnDisk, Transactional
from tests.waiting import until

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED

DECODE, ENCODE = serdes.LONG.deserializer(""), serdes.LONG.serializer("")


class Counts(Processor[str, str, str, int]):
    """Count in a store of the user's own, which knows nothing but bytes, and in one of ours: they have to agree."""

    def init(self, context: Any) -> None:
        super().init(context)
        self._custom: InMemory = context.get_state_store("custom")
        self._ours = context.get_state_store("ours")

    def process(self, record: Record[str, str]) -> None:
        key = record.key.encode()
        count = int(self._custom.data.get(key, b"0")) + 1
        self._custom.put(key, str(count).encode())
        before = self._ours.get(record.key) or 0
        self._ours.put(record.key, before + 1)
        self.context.forward(record.with_value(count if before + 1 == count else -1))
        if record.value == "!":
            raise RuntimeError("boom")


def counting(kind: type[InMemory], processor: type[Counts] = Counts) -> Topology:
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("counts", processor, "source")
    topology.add_state_store(stores.custom("custom", kind), "counts")
    topology.add_state_store(stores.key_value("ours", serdes.STRING, serdes.LONG, type="rocksdb"), "counts")
    topology.add_sink("sink", "out", "counts", key=serdes.STRING, value=serdes.LONG)
    return topology


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_exactly_once_holds_for_stores_of_the_users_own(seed: int, kind: type[InMemory]) -> None:
    """After crashes and failing commits at random each count is there once and in order, and both stores agree all the time."""
    random = Random(seed)

    options: dict[str, Any] = {"topics": {"in": 2, "out": 1}, "processing_guarantee": EOS, "commit_interval_ms": 100, "num_workers": 2}
    async with AppHarness(counting(kind), seed=seed, uncaught_handler=replace, **options) as harness:
        load = Load(harness, random)
        for _ in range(8):
            await load.send(random.randrange(1, 60))
            await asyncio.sleep(random.choice([0.01, 0.1, 0.25]))
            if random.random() < 0.5:
                harness.fail("commit", random.choice([TransactionAborted("void"), LogError("the broker is away")]))
            await load.send(random.randrange(1, 30))
            await harness.turns(random.randrange(120))
            if random.random() < 0.4:
                await harness.crash()
                harness.log._faults._before.clear()
                await harness.restart()
        harness.log._faults._before.clear()
        await load.check(EOS)


@pytest.mark.parametrize("kind", KINDS)
@in_app(lambda kind: counting(kind), topics={"in": 2, "out": 1}, processing_guarantee=ALOS, commit_interval_ms=100)
async def test_at_least_once_nothing_is_lost(harness: AppHarness, kind: type[InMemory]) -> None:
    """After crashes each record that was sent has been counted, though a store that does not go back by itself counts some again."""
    random = Random(7)
    load = Load(harness, random)
    for _ in range(4):
        await load.send(40)
        await asyncio.sleep(0.12)
        await load.send(20)
        await harness.turns(random.randrange(120))
        await harness.crash()
        await harness.restart()
    await harness.caught_up()
    counted = Counter(record.key for record in await harness.read("out"))
    assert all(counted[key] >= count for key, count in load.sent.items())


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_failing_processor_rolls_its_store_back(guarantee: str, kind: type[InMemory]) -> None:
    """Changes of records that are processed again are gone from the store, whether it can roll back itself or is restored."""
    options: dict[str, Any] = {
        "topics": {"in": 1, "out": 1},
        "processing_guarantee": guarantee,
        "commit_interval_ms": 3_600_000,
        "transaction_timeout_ms": 3_600_000,
    }
    async with AppHarness(counting(kind), uncaught_handler=replace, **options) as harness:  # of the app's settings
        for value in "xyz":
            await harness.produce("in", "k", value)
        await harness.caught_up()
        await harness.app.commit()
        await harness.produce("in", "k", "v")
        await harness.produce("in", "k", "!")
        await asyncio.sleep(0.05)
        assert harness.app.metrics()["failed-workers"] >= 1
        values = [record.value for record in await harness.read("out")]
        assert -1 not in values
        assert set(values) <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_after_failures_the_app_goes_on_with_all_its_tasks(guarantee: str, kind: type[InMemory]) -> None:
    """Each task's processor fails once, in the middle of uncommitted work: all records are counted, and the stores agree."""
    failed: set[str] = set()

    class FailsOnce(Counts):
        def process(self, record: Record[str, str]) -> None:
            poison = record.value == "!" and record.key not in failed
            failed.update([record.key] if poison else [])
            super().process(record if poison else record.with_value("v"))

    options: dict[str, Any] = {"processing_guarantee": guarantee, "num_workers": 2, "commit_interval_ms": 100}
    async with AppHarness(counting(kind, FailsOnce), topics={"in": 4, "out": 1}, uncaught_handler=replace, **options) as harness:
        for value in "xyv!w":
            for key in "abcd":
                await harness.produce("in", key, value)
            await asyncio.sleep(0.05)
        await harness.caught_up()
        await harness.app.commit()
        assert failed == set("abcd")
        found = by_key(await harness.read("out"))
        assert all(-1 not in counts and max(counts) == 5 for counts in found.values())
        assert guarantee == ALOS or all(counts == [1, 2, 3, 4, 5] for counts in found.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("replacing", [True, False])
@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_a_commit_that_fails_while_records_come_is_done_again_soon(seed: int, kind: type[InMemory], replacing: bool) -> None:
    """Where a store cannot go back, its task is opened anew; no worker that stands still is waited for or asked."""
    asked = Asked()

    options: dict[str, Any] = {"topics": {"in": 4, "out": 1}, "num_workers": 2, "commit_interval_ms": 100}
    if replacing:
        options["uncaught_handler"] = asked
    async with AppHarness(counting(kind), seed=seed, processing_guarantee=EOS, **options) as harness:
        load = Load(harness, Random(seed))
        for _ in range(4):
            await load.send(50)
            harness.fail("commit", TransactionAborted("void"))
            for _ in range(20):
                await load.send(10)
                await asyncio.sleep(0.01)
            async with asyncio.timeout(10):
                await harness.caught_up()
        assert harness.app.state.name == "RUNNING"
        assert asked == []
        check_counts(await harness.read("out"), load.sent, EOS)


@in_virtual_time
async def test_only_changed_rows_are_restored() -> None:
    """A persistent store is read from its changelog from where it is, a transactional one also after a crash under exactly once."""
    restored: list[int] = []

    class Watched(Transactional):
        def take(self, batch: Any) -> None:
            restored.append(len(batch))
            super().take(batch)

    async with AppHarness(counting(Watched), topics={"in": 1, "out": 1}, processing_guarantee=EOS, commit_interval_ms=100) as harness:
        load = Load(harness, Random(1))
        await load.through(50)
        await harness.app.commit()
        await harness.crash()
        restored.clear()
        await harness.restart()
        await harness.caught_up()
        assert restored == []


class Count(Query[int]):
    """The number of keys."""


class Queried(Transactional):
    """It can be asked for a key by Kafka Streams' query, and for its size by one of its own."""

    def query(self, query: Any, *, committed: bool) -> Any:
        if committed:
            raise RuntimeError("what is committed is not known apart")
        match query:
            case KeyQuery(key):
                return self.data.get(key)
            case Count():
                return len(self.data)
        return NotImplemented


@in_app(counting(Queried), topics={"in": 1, "out": 1}, processing_guarantee=EOS, commit_interval_ms=3_600_000, transaction_timeout_ms=3_600_000)
async def test_a_store_answers_queries_of_its_own(harness: AppHarness) -> None:
    """With the position of its last commit, or that of the task when it has changed since; errors and unknown queries are typed results."""

    async def ask(harness: AppHarness, query: Query[Any], **options: Any) -> Any:
        request = StateQueryRequest(store="custom", query=query, partitions=frozenset({0}), **{"isolation": UNCOMMITTED, **options})
        return (await harness.app.query(request)).partition_results[0]

    def last(answer: Any) -> int | None:
        at: int | None = answer.position.partitions("in").get(0)
        return at

    await feed(harness, "in", "a", "v")
    await harness.app.commit()
    found = await ask(harness, KeyQuery(b"a"))
    at = last(found)
    assert found.value == b"1"
    assert at is not None
    assert (await ask(harness, RangeQuery())).failure is FailureReason.UNKNOWN_QUERY_TYPE
    told = await ask(harness, Count(), isolation=COMMITTED)
    assert told.failure is FailureReason.STORE_EXCEPTION
    assert "not known apart" in told.message
    assert last(told) == at
    await harness.produce("in", "b", "v")

    async def counted() -> bool:
        return bool((await ask(harness, Count())).value != 1)

    await until(counted)
    answer = await ask(harness, Count())
    assert answer.value == 2
    now = last(answer)
    assert now is not None
    assert now > at
    bound = PositionBound.at(Position.of({"in": {0: now}}))
    assert (await ask(harness, Count(), bound=bound)).value == 2
    late = await ask(harness, Count(), bound=bound, isolation=COMMITTED)
    assert late.failure is FailureReason.NOT_UP_TO_BOUND
    await harness.app.commit()
    await harness.crash()
    await harness.restart()
    await harness.caught_up()
    again = await ask(harness, Count(), bound=bound)
    assert (again.value, last(again)) == (2, now)


@in_app(counting(OnDisk), topics={"in": 1, "out": 1})
async def test_a_custom_store_cannot_be_queried(harness: AppHarness) -> None:
    """Queries say so, typed."""
    await feed(harness, "in", "k", "v")
    with pytest.raises(QueryFailed) as failed:
        await harness.app.store("custom").get("k")
    assert failed.value.reason is FailureReason.UNKNOWN_QUERY_TYPE
    request = StateQueryRequest(store="custom", query=KeyQuery("k"), partitions=frozenset({0}))
    results = (await harness.app.query(request)).partition_results
    assert {result.failure for result in results.values()} == {FailureReason.UNKNOWN_QUERY_TYPE}
