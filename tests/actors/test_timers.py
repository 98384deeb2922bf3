"""Messages to oneself, later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Mailbox, Restart, Resume
from actors.testing import TestKit
from tests.actors.helpers import Call, Do, boom, do

pytestmark = pytest.mark.actors(runs=5)


async def test_once_comes_once_and_in_time(actor_kit: TestKit) -> None:
    """A timer fires after its delay, not before, and never twice."""
    ref, log = await do(actor_kit)
    ref.tell(lambda me: me.ctx.timers.once("k", 3, "due"))
    await actor_kit.clock.advance(2.9)
    assert log == []
    await actor_kit.clock.advance(0.1)
    assert log == ["due"]
    await actor_kit.clock.advance(100)
    assert log == ["due"]


async def test_every_comes_again_and_again_without_a_burst(actor_kit: TestKit) -> None:
    """The period counts from when the message was handled: a late one does not bring two."""
    times: list[float] = []
    ref, log = await do(actor_kit)
    ref.tell(lambda me: me.ctx.timers.every("k", 10, lambda me: times.append(me.ctx.time())))
    await actor_kit.clock.advance(25)
    assert times == [10, 20]
    gate: Any = None

    async def block(me: Do) -> None:
        nonlocal gate
        gate = asyncio.get_running_loop().create_future()
        await gate

    ref.tell(block)
    await actor_kit.clock.advance(30)
    gate.set_result(None)
    await actor_kit.clock.advance(9)
    assert times == [10, 20, 55]
    await actor_kit.clock.advance(1)
    assert times == [10, 20, 55, 65]
    assert log == []


async def test_a_replaced_timer_is_never_delivered_not_even_when_it_had_fired(actor_kit: TestKit) -> None:
    """The last message under a key is the only one."""
    ref, log = await do(actor_kit)

    async def replace_after_firing(me: Do) -> None:
        me.ctx.timers.once("k", 1, "old")
        me.ctx.timers.once("other", 1, "other")
        await other.ask(Call, _advance)
        me.ctx.timers.once("k", 1, "new")
        me.ctx.timers.cancel("other")

    async def _advance(_: Do) -> None:
        actor_kit.clock.jump()
        actor_kit.clock.jump()

    other, _ = await do(actor_kit, "other")
    ref.tell(replace_after_firing)
    await actor_kit.quiesce()
    assert log == []
    await actor_kit.clock.advance(1)
    assert log == ["new"]


async def test_a_cancelled_timer_is_not_delivered(actor_kit: TestKit) -> None:
    """Cancelling twice, or an unknown timer, does nothing."""
    ref, log = await do(actor_kit)

    def set_and_cancel(me: Do) -> None:
        me.ctx.timers.once("k", 1, "due")
        me.log.append("k" in me.ctx.timers)
        for _ in range(2):
            me.ctx.timers.cancel("k")
        me.log.append("k" in me.ctx.timers)

    ref.tell(set_and_cancel)
    await actor_kit.clock.advance(5)
    assert log == [True, False]


async def test_a_due_message_passes_a_full_mailbox(actor_kit: TestKit) -> None:
    """A timer neither waits for room nor is lost for lack of it."""
    ref, log = await do(actor_kit, mailbox=Mailbox(capacity=1))

    def set_and_fill(me: Do) -> None:
        me.ctx.timers.once("k", 0, "due")
        ref.tell("data")

    ref.tell(set_and_fill)
    await actor_kit.clock.advance(0)
    assert sorted(log) == ["data", "due"]
    assert actor_kit.undelivered == []


async def test_a_stop_ends_all_timers(actor_kit: TestKit) -> None:
    """Nothing is due for the dead."""
    ref, log = await do(actor_kit)
    ref.tell(lambda me: me.ctx.timers.every("a", 1, "due"))
    ref.tell(lambda me: me.ctx.timers.once("b", 1, "due"))
    await actor_kit.quiesce()
    await actor_kit.stop(ref)
    await actor_kit.clock.advance(10)
    assert actor_kit.clock.next_due() is None
    assert log == []
    assert actor_kit.undelivered == []


async def test_a_periodic_message_that_fails_comes_again_after_resume(actor_kit: TestKit) -> None:
    """A failure at one tick does not end the ticking."""
    ref, log = await do(actor_kit, supervise=lambda _: Resume())

    def tick(me: Do) -> None:
        me.log.append(me.ctx.time())
        boom()

    ref.tell(lambda me: me.ctx.timers.every("k", 1, tick))
    await actor_kit.clock.advance(3)
    assert log == [1, 2, 3]


async def test_impossible_delays_are_refused_at_once(actor_kit: TestKit) -> None:
    """Negative delays, not-a-number and a period of nothing are ValueErrors."""
    ref, log = await do(actor_kit)

    def set_impossible(me: Do) -> None:
        for verb, delay in (("once", -1), ("once", float("nan")), ("every", 0), ("every", -1)):
            try:
                getattr(me.ctx.timers, verb)("k", delay, "due")
            except ValueError as error:
                me.log.append("timer 'k'" in str(error))

    ref.tell(set_impossible)
    await actor_kit.quiesce()
    assert log == [True] * 4


async def test_a_timer_that_piped_work_sets_at_its_end_ends_with_it(actor_kit: TestKit) -> None:
    """A restart cancels piped work, whose clean-up may set a timer: the next incarnation does not get it."""

    async def work(me: Do) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            me.ctx.timers.once("late", 1, "of the former incarnation")

    ref, log = await do(actor_kit, supervise=lambda _: Restart(backoff=(0, 0)))
    ref.tell(lambda me: me.ctx.pipe(work(me), str, str))
    await actor_kit.quiesce()
    ref.tell(lambda _: boom())
    await actor_kit.clock.advance(5)
    assert log == []
