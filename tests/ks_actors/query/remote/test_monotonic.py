"""Answers across instances never go back in time, while instances are killed, frozen and restarted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from ks_actors import Consumed, Grouped, Materialized, QueryFailed, StreamsBuilder, Topology
from ks_actors.log import IsolationLevel
from ks_actors.query import FailureReason
from ks_actors.query.remote import _server
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.query.remote.network import Network

KEYS = tuple(f"k{number}" for number in range(6))
COMMITTED = IsolationLevel.READ_COMMITTED


def counting() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    words.count(Materialized("counts", STRING, LONG))
    return builder.build()


class Frozen:
    """Keep the events of a group member from its app: as of a process that stands still, and then goes on."""

    def __init__(self, harness: AppHarness) -> None:
        self._harness = harness
        connection = harness._connection
        assert connection is not None
        self._membership: Any = connection.memberships[-1]
        self._event = self._membership.event
        self._over = asyncio.Event()

    async def _later(self) -> Any:
        await self._over.wait()
        return await self._event()

    async def stand_still(self, seconds: float) -> None:
        app, membership, lease = self._harness.app, self._membership, self._membership._lease
        lost = lease.lost
        await app.pause()
        membership.event = self._later
        # The app waits for an event already: it sees none before the end.
        membership._wake = lease.lost = lambda: None
        self._harness.lose_membership()
        await asyncio.sleep(seconds)
        del membership._wake
        self._over.set()
        membership._wake()
        lost()
        await app.resume()


class Checker:
    """The highest answer for each key: no later question may get a lower one."""

    def __init__(self) -> None:
        self.highest = dict.fromkeys(KEYS, 0)
        self.answers = 0
        self.failures = 0

    async def ask(self, harness: AppHarness, key: str) -> None:
        least = self.highest[key]
        try:
            found = await harness.app.store("counts", everywhere=True, isolation=COMMITTED, timeout_ms=3_000).get(key)
        except Exception:  # noqa: BLE001 - no answer is no wrong one
            self.failures += 1
            await asyncio.sleep(0.05)
            return
        count = 0 if found is None else found
        assert count >= least, f"{key}: {count} after {least}"
        self.highest[key] = max(self.highest[key], count)
        self.answers += 1


async def storm(first: AppHarness, seed: int, rounds: int) -> Checker:
    """Ask for counters from three instances, which are killed and frozen in turn."""
    checker, random = Checker(), Random(seed)
    sent = dict.fromkeys(KEYS, 0)
    async with AsyncExitStack() as stack:
        harnesses = [first, *[await stack.enter_async_context(first.another()) for _ in range(2)]]
        down: set[AppHarness] = set()

        async def produce() -> None:
            while True:
                key = random.choice(KEYS)
                await first.produce("words", key, "word")
                sent[key] += 1
                await asyncio.sleep(random.random() * 0.3)

        async def read(number: int) -> None:
            asked = Random(seed * 100 + number)
            while True:
                up = [each for each in harnesses if each not in down]
                await checker.ask(asked.choice(up), asked.choice(KEYS))
                await asyncio.sleep(asked.random() * 0.15)

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(produce()), *(group.create_task(read(number)) for number in range(3))]
            for number in range(rounds):
                await asyncio.sleep(1 + random.random())
                one = harnesses[number % 3]
                if random.random() < 0.5:
                    down.add(one)
                    await one.crash()
                    await asyncio.sleep(random.random() * 3)
                    await one.restart()
                    down.discard(one)
                else:
                    await Frozen(one).stand_still(1 + random.random() * 3)
            await asyncio.sleep(5)
            for task in running:
                task.cancel()
        await first.caught_up()
        for key in KEYS:
            await checker.ask(random.choice(harnesses), key)
            assert checker.highest[key] >= sent[key]
    return checker


OPTIONS: dict[str, Any] = {
    "topics": {"words": 4},
    "application_server": "127.0.0.1:0",
    "commit_interval_ms": 100,
    "session_timeout_ms": 2_000,
}


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(1, 6))])
def test_no_active_task_answers_older_than_an_answer_before(seed: int, guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed counts only grow, whoever is asked, and each question has its answer in the end."""
    Network(monkeypatch)
    checker = run_app(lambda harness: storm(harness, seed, 3), counting(), seed=seed, processing_guarantee=guarantee, **OPTIONS)
    assert checker.answers > 100
    assert checker.answers > 5 * checker.failures


def test_the_lease_is_what_keeps_a_frozen_instance_from_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its session is over it refuses, before it knows of the loss; without the lease it would answer with old counts."""

    async def frozen(first: AppHarness) -> list[Any]:
        await first.produce("words", "k0", "word")
        async with first.another() as second:
            await first.caught_up()
            await asyncio.sleep(1)  # a rebalance may be under way
            owner, other = (first, second) if first.app.owner("counts", "k0").here else (second, first)
            await owner.app.commit()
            still = asyncio.create_task(Frozen(owner).stand_still(5))
            await asyncio.sleep(0.5)
            await first.produce("words", "k0", "word")
            found: list[Any] = [await other.app.store("counts", everywhere=True, isolation=COMMITTED).get("k0")]
            while found[-1] != 2:
                await asyncio.sleep(0.1)
                found.append(await other.app.store("counts", everywhere=True, isolation=COMMITTED).get("k0"))
            partition = other.app.owner("counts", "k0").partition
            local = owner.app.store("counts", everywhere=True, isolation=COMMITTED, partition=partition, timeout_ms=100)
            with_lease: Any
            try:
                with_lease = await local.get("k0")
            except QueryFailed as failed:
                with_lease = failed.reason
            await still
            return [found[-1], with_lease, await owner.app.store("counts", everywhere=True, isolation=COMMITTED).get("k0")]

    Network(monkeypatch)
    assert run_app(frozen, counting(), **OPTIONS) == [2, FailureReason.NOT_ACTIVE, 2]
    monkeypatch.setattr(_server.Leased, "__call__", lambda self, reader: self._call(reader))
    assert run_app(frozen, counting(), **OPTIONS)[:2] == [2, 1]
