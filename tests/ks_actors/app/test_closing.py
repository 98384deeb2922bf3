"""Apps that are closed in the middle of something."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

import pytest

from ks_actors import TaskId
from ks_actors.log import (
    MemberAssignment,
    MemberInfo,
    Membership,
    NewMember,
    Revoked,
)
from ks_actors.runtime import InstanceState
from ks_actors.runtime import messages as m
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.ks_actors.runtime.helpers import EOS, Load, counting, in_app, in_virtual_time
from tests.ks_actors.runtime.membership.alone import Alone

pytestmark = pytest.mark.unmeasured
T = TypeVar("T")


class Leader:
    """The first member of a group: it has no tasks, deals them out as the app would, and fails to when it is its turn for the `turns`th time."""

    def __init__(self, harness: AppHarness, turns: int) -> None:
        self._harness = harness
        self._group: str = harness.config.application_id
        self._left: int = turns
        self._member: Membership
        self._following: asyncio.Future[None]

    async def enter(self) -> None:
        new = NewMember(
            client_id="leader", topics=("in",), user_data=b"", assignor=self._assign, session_timeout_ms=60_000, rebalance_timeout_ms=60_000
        )  # fmt: skip
        self._member = await self._harness.log.join(self._group, new)
        self._following = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        while self._left:
            if isinstance(await self._member.event(), Revoked):
                self._member.revoked()

    def _assign(self, members: Sequence[MemberInfo], counts: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        self._left -= 1
        if not self._left:
            raise RuntimeError("the leader has died")
        there = self._harness.log._groups.get(self._group)._members
        theirs = [info for info in members if there[info.member_id].client_id != "leader"]
        return there[theirs[0].member_id].assignor(theirs, counts) if theirs else {}

    def go_on(self) -> None:
        """Have the group assign again."""
        self._member.rejoin(b"")

    async def leave(self) -> None:
        await self._member.leave()
        with pytest.raises(RuntimeError, match="has died"):
            await self._following


@pytest.mark.parametrize("seed", range(10))
def test_an_app_may_be_closed_at_any_moment(seed: int, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a rebalance, a commit or a restore: without an error, without a message to ended actors, and results are exact."""
    random = Random(seed)

    async def test(harness: AppHarness) -> None:
        load = Load(harness, random)
        for _ in range(4):
            await load.send(random.randrange(100))
            async with harness.another(client_id=f"other-{random.random()}") as second:
                await load.send(random.randrange(100))
                await asyncio.sleep(random.choice([0.0, 0.01, 0.05, 0.1, 0.1005]))
                await harness.turns(random.randrange(100))
                if random.random() < 0.2:
                    second.lose_membership()
                    await harness.turns(random.randrange(20))
            assert second.app.state is InstanceState.NOT_RUNNING if second._app is not None else True
        await load.check(guarantee)

    run_app(test, counting("rocksdb"), seed=seed, topics={"in": 4, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100)
    # What has been restored may be told too late: nothing comes of it.
    assert [line for line in caplog.text.splitlines() if "undelivered:" in line and "undelivered: TaskRestored" not in line] == []
    assert "has stopped" not in caplog.text


@in_virtual_time
async def test_a_closing_app_does_not_wait_for_a_group_that_waits_for_others(guarantee: str) -> None:
    """A group in a new generation, with a leader that died before it assigned anything, takes no commits: the app leaves it at once all the same."""
    topics = {"in": 4, "out": 1}
    async with AppHarness(counting("in_memory"), topics=topics, processing_guarantee=guarantee, commit_interval_ms=100, start=False) as harness:
        leader = Leader(harness, turns=3)
        await leader.enter()
        await harness.start()
        load = Load(harness, Random(1))
        await load.through(100)
        leader.go_on()
        await load.send(100)
        await harness.kit.clock.advance(5)
        began = harness.kit.clock.time()
        await harness.close()
        assert harness.kit.clock.time() - began <= 2.0
        await leader.leave()
        await harness.restart()
        await load.check(guarantee)


# --- the member of an app that closes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closing", [False, True])
@in_app(counting("in_memory"), topics={"in": 2, "out": 1}, start=False)
async def test_a_closing_app_begins_no_tasks(harness: AppHarness, closing: bool) -> None:
    """An assignment that comes in the middle of it is followed, as the last commit needs its generation; its stores are opened for nobody."""
    here = Alone()
    await here.begin(harness)
    if closing:
        here.ref.tell(m.AppCloses())
        await here.kit.quiesce()
    here.membership.gate.set()
    await here.kit.quiesce()
    assert [message.task for message in here.told(m.OpenTask)] == ([] if closing else [TaskId(0, 0), TaskId(0, 1)])
    assert (await here.ref.ask(m.AskGroup)).generation == 1
    await here.end()


@in_app(counting("in_memory"), topics={"in": 2, "out": 1}, start=False)
async def test_a_closing_app_fetches_nothing_more(harness: AppHarness) -> None:
    """No task will process records read then, and others may need the machine."""
    here = Alone()
    await here.begin(harness)
    here.membership.gate.set()
    await here.kit.quiesce()
    here.begin_tasks()
    await harness.produce_all("in", [TestRecord("k", "v", 0)] * 3)
    await here.kit.clock.advance(1)
    assert sum(len(one.batch) for message in here.told(m.Records) for one in message.fetched) == 3
    here.ref.tell(m.AppCloses())
    await here.kit.clock.advance(1)
    await harness.produce_all("in", [TestRecord("k", "v", 0)] * 3)
    await here.kit.clock.advance(1)
    assert sum(len(one.batch) for message in here.told(m.Records) for one in message.fetched) == 3
    await here.end()


@in_app(counting(), topics={"in": 1, "out": 1}, processing_guarantee=EOS, commit_interval_ms=1_000)
async def test_a_close_too_late_for_its_transaction_raises_no_error(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """A broker was away for longer than the transaction could wait: its content is reported, and processed again by the next owner."""
    load = Load(harness, Random(1))
    await load.send(6_000)  # fewer would not be written before the commit
    await harness.kit.clock.advance(0.01)
    (transaction,) = harness.log._broker.transactions.values()
    assert transaction.partitions
    harness.log._broker._expire(transaction)  # as if its time were over
    await harness.close()
    assert "commit failed; all work since the last commit is rolled back" in caplog.text
    assert await harness.read("out") == []
    await harness.start()
    await load.check(EOS)
