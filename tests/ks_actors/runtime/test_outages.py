"""The log is away for long, in the middle of commits, while members are thrown out, closed, killed and started again: exactly once all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random
from typing import Any

import pytest

from ks_actors import NotRunning
from ks_actors.runtime import InstanceState
from ks_actors.runtime.output import _collector
from ks_actors.runtime.stores import _state_manager
from ks_actors.testing import AppHarness, TestRecord, _harness, run_app
from tests.ks_actors.runtime.helpers import EOS, Load, check_counts, counting, in_virtual_time, replace
from tests.ks_actors.runtime.outages import ANSWER_LATER, LATER, Line, Weather, check_disk, check_memory

pytestmark = pytest.mark.unmeasured

PARTITIONS = 4
KEYS = [f"k{number}" for number in range(24)]
HAPPENINGS = ("nothing", "lost", "close", "close and lost", "close and lost", "kill", "kill and wipe")
# Until all transactions that nobody ends have timed out.
LONGEST = 120


class Storm:
    """Three members of one app, a log that goes away, and the fates of the members meanwhile: all of it by a seed."""

    def __init__(self, members: list[AppHarness], weather: Weather, random: Random) -> None:
        self.members = members
        self.weather = weather
        self.random = random
        self.sent: Counter[str] = Counter()
        self.told: list[str] = []
        self._over = False

    def note(self, what: str) -> None:
        """Remember an event, to be reported with an error."""
        self.told.append(f"{asyncio.get_running_loop().time():9.3f} {what}")

    async def run(self, rounds: int) -> None:
        """Feed, check the memory all the time, and have the log go away so many times; then let all be done."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed())
            group.create_task(self._watch())
            for _ in range(rounds):
                await self._round()
            self._over = True
        for member in self.members:
            if member._app is None or member._app.state is InstanceState.ERROR:
                await self._close(member)
                await self._start(member)
        await self.members[0].caught_up()
        await self._decided()
        for member in self.members:
            check_memory(member)
        for member in self.members:
            await self._close(member)
        check_counts(await self.members[0].read("out"), self.sent, EOS)

    async def _feed(self) -> None:
        while not self._over:
            while not self.weather.reads:
                await self.weather.back()
            keys = self.random.choices(KEYS, k=self.random.randrange(1, 40))
            self.sent.update(keys)
            await self.members[0].produce_all("in", [TestRecord(key, "v", 0) for key in keys])
            await asyncio.sleep(self.random.uniform(0.02, 0.2))

    async def _watch(self) -> None:
        while not self._over:
            for member in self.members:
                check_memory(member)
            await asyncio.sleep(self.random.choice((0.003, 0.1, 0.4)))
            await self.members[0].turns(self.random.randrange(20))

    async def _round(self) -> None:
        random = self.random
        await asyncio.sleep(random.uniform(0.2, 1.5))
        self.weather.down_at(random.choice(("commit", "commit", "commit", "send", "abort", "committed", "end_offsets", "")))
        await asyncio.sleep(random.choice((0.0, 0.3, 0.6)))
        if not self.weather.is_down:
            self.weather.down()
        away = random.choice((0.3, 4.0, 16.0, 16.0))
        self.note(f"the log is away, for {away} s")
        async with asyncio.TaskGroup() as group:
            for member in self.members:
                group.create_task(self._meanwhile(member, away))
            await asyncio.sleep(away)
            self.weather.up()
            self.note("the log is back")

    async def _meanwhile(self, member: AppHarness, away: float) -> None:
        """Let something happen to a member, before the log is back or soon after."""
        random = self.random
        what = random.choice(HAPPENINGS)
        first, second = sorted(random.choice((random.uniform(0, away), away, away + random.uniform(0, 0.3))) for _ in range(2))
        await asyncio.sleep(first)
        await member.turns(random.randrange(60))
        self.note(f"{member.config.client_id}: {what}")
        if what == "lost":
            member.lose_membership()
        elif what.startswith("close"):
            await self._end(member, second - first if "lost" in what else None)
        elif what.startswith("kill") and member._app is not None:
            await member.crash()
            await check_disk(member)
            if "wipe" in what:
                member.wipe_state()
            await self._start(member)

    async def _end(self, member: AppHarness, lost_after: float | None) -> None:
        """Close a member, which may be thrown out meanwhile, and start it again."""
        closing = asyncio.ensure_future(self._close(member))
        if lost_after is not None:
            await asyncio.sleep(lost_after)
            await member.turns(self.random.randrange(60))
            member.lose_membership()
        await closing
        await self._start(member)

    async def _close(self, member: AppHarness) -> None:
        try:
            await member.close()
        except Exception as error:  # noqa: BLE001 - what a member ends by is one thing, what it leaves another
            self.note(f"{member.config.client_id} was closed by {error!r}")
        await check_disk(member)

    async def _start(self, member: AppHarness) -> None:
        """Start a member, again when the log goes away meanwhile."""
        await asyncio.sleep(self.random.choice((0, 0.1, 2, 8)))
        async with asyncio.timeout(LONGEST):
            while True:
                await self.weather.back()
                try:
                    await member.start()
                except NotRunning:
                    return  # it runs
                except Exception as error:  # noqa: BLE001 - whatever the log's going away does to a start
                    self.note(f"{member.config.client_id} has not started: {error!r}")
                    await asyncio.sleep(0.5)
                else:
                    return

    async def _decided(self) -> None:
        """Wait until all transactions have ended: those that nobody ends, when their time is over."""
        partitions = self.members[0].log._broker.partitions
        async with asyncio.timeout(LONGEST):
            while any(partition.stable != partition.end for partition in partitions.values()):
                await asyncio.sleep(5)


def storm(seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Run a storm; return the outcomes of writes."""
    random = Random(seed)
    weather = Weather(random, random.choice((3.0, 8.0, 60.0)))
    monkeypatch.setattr(_harness, "Connection", partial(Line, weather))
    monkeypatch.setattr(_state_manager, "_IDLE_SECONDS", random.choice((0.3, 1.0, 10.0)))
    monkeypatch.setattr(_collector, "_MOST", random.choice((20, 5000)))  # records that are written before their commit

    async def test(harness: AppHarness) -> None:
        async with harness.another() as second, harness.another() as third:
            found = Storm([harness, second, third], weather, random)
            try:
                await found.run(4)
            except BaseException as error:
                error.add_note("\n".join((f"seed {seed}", *found.told)))
                raise

    run_app(
        test,
        counting("rocksdb"),
        seed=seed,
        topics={"in": PARTITIONS, "out": 1},
        processing_guarantee=EOS,
        num_workers=1 + seed % 2,
        commit_interval_ms=100,
        session_timeout_ms=6000,
        task_timeout_ms=random.choice((2000, 10_000, 300_000)),
        transaction_timeout_ms=random.choice((5000, 10_000, 60_000)),
        num_standby_replicas=random.choice((0, 0, 1)),
        statestore_memory_max_bytes=1 << 20,
        uncaught_handler=replace,
    )
    return weather.fates


@pytest.mark.parametrize("seed", range(6))
def test_outages_in_the_middle_of_commits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time stores hold as many counts as records are committed, on disk too; at the end each count is there once and in order."""
    storm(seed, monkeypatch)


class Steady(Random):
    """Has every write of one fate."""

    def __init__(self, fate: str) -> None:
        super().__init__(0)
        self._fate = fate

    def choice(self, seq: Any) -> Any:
        return self._fate if self._fate in seq else seq[0]


@pytest.mark.parametrize("fate", [LATER, ANSWER_LATER])
@in_virtual_time
async def test_a_commit_refused_while_the_app_closed_is_not_on_its_disk(fate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed while a commit waits for the log, written to disk when idle, thrown out, and refused: its state is that of the commit before."""
    weather = Weather(Steady(fate), 60.0)
    monkeypatch.setattr(_harness, "Connection", partial(Line, weather))
    async with AppHarness(
        counting("rocksdb"), topics={"in": PARTITIONS, "out": 1}, processing_guarantee=EOS, commit_interval_ms=100, transaction_timeout_ms=60_000
    ) as harness:
        load = Load(harness, Random(1), keys=40)
        await load.through(200)
        weather.down_at("send")
        await load.send(100)
        await asyncio.sleep(2)
        assert weather.is_down
        closing = asyncio.ensure_future(harness.close())
        await asyncio.sleep(24)  # stores that nothing has come to for 10 s are written
        harness.lose_membership()
        weather.up()
        await closing
        assert len(await harness.read("out")) == 200
        assert await check_disk(harness) == PARTITIONS
        await harness.restart()
        await harness.caught_up()
        check_memory(harness)
        check_counts(await harness.read("out"), load.sent, EOS)
