"""Entering the group anew, when that does not help."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from actors.testing import TestKit
from ks_actors import LogError, StreamsError, TaskTimeout
from ks_actors.history import Done, History
from ks_actors.lifecycle._backoff import RetryBackoff
from ks_actors.log import Assigned, MembershipEvent
from ks_actors.runtime import UncaughtResponse
from ks_actors.runtime import messages as m
from ks_actors.runtime.instance import _wiring
from ks_actors.runtime.membership._handover import Handover
from ks_actors.runtime.membership._member import Member
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import EOS, Asked, Load, check_counts, counting, echo, feed, in_app, in_virtual_time
from tests.waiting import until

TOPICS = {"in": 2, "out": 1}


def test_rests_become_longer() -> None:
    """The first time there is none; then they double up to a bound, and begin anew when something has come of it."""
    rests, now = RetryBackoff(), 0.0
    found: list[float] = []
    for _ in range(9):
        found.append(rests.next(now))
        now += found[-1]
    assert found == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    rests.succeeded()
    assert [rests.next(now), rests.next(now), rests.next(now + 61)] == [0.0, 0.1, 0.0]


@in_virtual_time
async def test_the_timeout_after_a_loss_does_not_quote_the_cause() -> None:
    """The history shows its text, and an error of users' code may quote a record."""
    async with TestKit() as kit:
        poller, silent = kit.probe(object), kit.probe(object)
        handover = Handover(poller=poller, manager=silent, state=silent, committer=silent, collector=silent, seconds=5)
        losing = asyncio.ensure_future(handover.lose_all(ValueError("a value")))
        (await poller.expect(m.ForgetTasks)).reply.tell(None)
        with pytest.raises(TaskTimeout, match=r"has not returned 5 s after its task was lost \(ValueError\)\. Find") as raised:
            await losing
        history = History()
        history.exceptions.note(raised.value, kind="app", done=Done.ENDED)
        assert history.exceptions.latest()[0].text == str(raised.value)


@in_virtual_time
async def test_a_commit_before_a_rebalance_that_hangs_leaves_time_to_join() -> None:
    """The group waits for the limit, and counts from before this member hears of it: one that used all of it would miss the generation."""
    async with TestKit() as kit:
        silent, state = kit.probe(object), kit.probe(object)
        handover = Handover(poller=silent, manager=silent, state=state, committer=silent, collector=silent, seconds=10)
        began = kit.clock.time()
        before = asyncio.ensure_future(handover.before_rebalance())
        (await state.expect(m.AskOffsets, within=10)).reply.tell({})
        await before
        assert kit.clock.time() - began <= 5.1


@in_app(counting("in_memory"), topics=TOPICS, start=False)
async def test_a_failure_that_stays_does_not_spin(harness: AppHarness, guarantee: str) -> None:
    """When rejoining the group fails again and again the handler is asked a few times, not without end; when the cause is gone all is done."""
    asked: list[float] = []

    def handler(error: Exception) -> UncaughtResponse:
        asked.append(harness.kit.clock.time())
        return UncaughtResponse.REPLACE_WORKER

    harness._options["uncaught_handler"] = handler
    await harness.start()
    load = Load(harness, Random(1))
    await load.through(50)
    harness.fail("committed", LogError("away"), 100_000)
    harness.lose_membership()
    await load.send(50)
    await harness.kit.clock.advance(60)
    assert 5 < len(asked) < 25
    assert asked[1] - asked[0] < 0.2
    harness.log._faults._before.clear()
    await load.check(guarantee)


@pytest.mark.parametrize("operation", ["send", "commit"])
@in_virtual_time
async def test_a_transaction_that_is_refused_again_and_again_does_not_spin(operation: str) -> None:
    """A log that cannot end transactions has the tasks begun anew at longer and longer intervals."""
    asked = Asked()

    async with AppHarness(counting("in_memory"), topics=TOPICS, processing_guarantee=EOS, uncaught_handler=asked) as harness:
        load = Load(harness, Random(1))
        harness.fail(operation, LogError("away"), 100_000)  # type: ignore[arg-type]  # one of two
        await load.send(50)
        await harness.kit.clock.advance(30)
        assert 3 < len(asked) < 25
        harness.log._faults._before.clear()
        await load.check(EOS)


@in_app(echo(), topics=TOPICS)
async def test_the_first_time_is_at_once(harness: AppHarness) -> None:
    """A member that is thrown out once is back without any rest."""
    await feed(harness, "in", "a", "1")
    before = harness.kit.clock.time()
    harness.lose_membership()
    await feed(harness, "in", "a", "2")
    assert harness.kit.clock.time() - before < 0.3


@in_app(counting("in_memory"), topics=TOPICS, processing_guarantee=EOS, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
async def test_a_rest_ends_when_the_group_assigns_anyway(harness: AppHarness) -> None:
    """Another member that joins makes the group assign: a resting one takes its part of it at once."""
    load = Load(harness, Random(1))
    harness.fail("committed", LogError("away"), 8)
    harness.lose_membership()
    await harness.kit.clock.advance(5)
    async with harness.another(client_id="other"):
        await load.through(50)
        await load.through(50)
    check_counts(await harness.read("out"), load.sent, EOS)


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_an_assignment_that_comes_as_all_is_given_up_is_followed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks begin behind that: the tasks given up are those assigned before, not those of a later assignment."""
    made: list[Member] = []

    class Known(Member):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            made.append(self)

    monkeypatch.setattr(_wiring, "Member", Known)
    async with AppHarness(counting("in_memory"), topics={"in": 8, "out": 1}, processing_guarantee=EOS, seed=seed) as harness:
        member = made[0]
        load = Load(harness, Random(seed))
        await load.through(50)
        connection: Any = harness._connection
        membership = connection.memberships[-1]
        instance: Any = harness.app._instance
        wait = membership.event
        met: list[MembershipEvent] = []

        async def event() -> MembershipEvent:
            # An assignment is there, and has not been read yet, when somebody else is found to have the tasks.
            while not membership._events:
                membership._waiter = asyncio.get_running_loop().create_future()
                await membership._waiter
            membership._waiter = None
            if isinstance(membership._events[0], Assigned) and not met:
                met.append(membership._events[0])
                instance._wiring._member.tell(m.Rejoin(StreamsError("fenced")))
                await until(lambda: member._following)
            found: MembershipEvent = await wait()
            return found

        membership.event = event
        async with harness.another(client_id="third") as third, harness.another(client_id="other") as other:
            await load.send(50)
            await harness.caught_up(timeout_ms=60_000)
            assert [each.app.state.name for each in (harness, third, other)] == ["RUNNING"] * 3
        assert met
        check_counts(await harness.read("out"), load.sent, EOS)


@in_virtual_time
async def test_a_member_that_gets_the_same_generation_again_gets_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a static one does that was thrown out and comes back in time: its generation does not tell assignments apart."""

    class Same(Member):
        def _follow(self, event: MembershipEvent) -> None:
            super()._follow(replace(event, group=replace(event.group, generation=5)) if isinstance(event, Assigned) else event)

    monkeypatch.setattr(_wiring, "Member", Same)
    async with AppHarness(counting("in_memory"), topics=TOPICS, processing_guarantee=EOS) as harness:
        load = Load(harness, Random(1))
        for _ in range(3):
            await load.through(50)
            harness.lose_membership()
        await load.through(50)
        assert harness.app.state.name == "RUNNING"
        check_counts(await harness.read("out"), load.sent, EOS)


@in_app(echo(), topics=TOPICS, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
async def test_a_resting_member_may_be_closed(harness: AppHarness) -> None:
    """An app that rests before it enters the group anew is closed at once, and the next one does all that is left."""
    harness.fail("committed", LogError("away"), 100)
    harness.lose_membership()
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(10)
    await harness.close()
    harness.log._faults._before.clear()
    await harness.restart()
    await harness.caught_up()
    assert len(await harness.read("out")) == 1
