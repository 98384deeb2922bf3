"""In which order messages are handled."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from actors import Actor, Mailbox, Message, Ref, Spec, System
from actors.actor import _cell
from actors.testing import TestKit
from tests.actors.helpers import do
from tests.waiting import until

pytestmark = pytest.mark.actors(runs=10)


class Urgent(Message, frozen=True):
    n: int


async def test_messages_of_one_sender_to_one_receiver_stay_in_order(actor_kit: TestKit) -> None:
    """FIFO per sender-receiver pair, with any schedule."""

    class Sender(Actor[int]):
        def __init__(self, to: Ref[Any]) -> None:
            self.to = to

        def receive(self, message: int, /) -> None:
            for n in range(message):
                self.to.tell((self.ctx.path, n))

    receiver, received = await do(actor_kit, "receiver")
    senders = [await actor_kit.spawn(Spec(lambda: Sender(receiver)), f"s{n}") for n in range(5)]
    for sender in senders:
        sender.tell(7)
    await actor_kit.quiesce()
    for sender in senders:
        assert [n for path, n in received if path == sender.path] == list(range(7))


async def test_one_message_at_a_time_even_while_a_handler_waits(actor_kit: TestKit) -> None:
    """A handler that awaits keeps the next message waiting."""
    at_work = 0
    most = 0

    async def work(me: Any) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await other.ask(lambda reply: lambda _: reply.tell(None))
        at_work -= 1
        me.log.append("done")

    other, _ = await do(actor_kit, "other")
    ref, log = await do(actor_kit)
    for _ in range(10):
        ref.tell(work)
    await actor_kit.quiesce()
    assert (most, at_work, log) == (1, 0, ["done"] * 10)


async def test_urgent_messages_overtake_others_and_are_fifo_among_themselves(actor_kit: TestKit) -> None:
    """Control overtakes data, never the other way."""
    ref, log = await do(actor_kit, mailbox=Mailbox(urgent=(Urgent,)))

    def all_at_once(_: Any) -> None:
        for n in range(3):
            ref.tell(n)
            ref.tell(Urgent(n))

    ref.tell(all_at_once)
    await actor_kit.quiesce()
    assert log == [Urgent(0), Urgent(1), Urgent(2), 0, 1, 2]


async def test_a_stop_overtakes_urgent_messages_and_data(actor_kit: TestKit) -> None:
    """The system lane comes first."""
    ref, log = await do(actor_kit, mailbox=Mailbox(urgent=(Urgent,)))

    def all_at_once(me: Any) -> None:
        ref.tell(0)
        ref.tell(Urgent(0))
        me.ctx.stop()

    ref.tell(all_at_once)
    await actor_kit.quiesce()
    assert log == []
    assert [letter.message for letter in actor_kit.undelivered] == [Urgent(0), 0]


async def test_urgent_messages_pass_a_full_user_lane(actor_kit: TestKit) -> None:
    """Capacity is the user lane's alone."""
    ref, log = await do(actor_kit, mailbox=Mailbox(urgent=(Urgent,), capacity=1))

    def all_at_once(_: Any) -> None:
        ref.tell("data")
        ref.tell("too much")
        for n in range(3):
            ref.tell(Urgent(n))

    ref.tell(all_at_once)
    await actor_kit.quiesce()
    assert log == [Urgent(0), Urgent(1), Urgent(2), "data"]


async def test_the_seed_changes_the_order_and_repeats_it() -> None:
    """Different seeds give different orders of ready actors; the same seed gives the same."""

    async def order(seed: int) -> list[str]:
        async with TestKit(seed=seed) as kit:
            log: list[str] = []
            refs = [(await do(kit, name))[0] for name in "abcdef"]
            for ref in refs:
                ref.tell(lambda me: log.append(me.ctx.path))
            await kit.quiesce()
            return log

    orders = [tuple(await order(seed)) for seed in range(8)]
    assert len(set(orders)) > 4
    assert orders == [tuple(await order(seed)) for seed in range(8)]


async def test_an_actor_that_never_suspends_does_not_starve_the_rest() -> None:
    """After its quota an actor lets others run, though it has messages left and awaits nothing."""
    turns: list[str] = []

    class Greedy(Actor[int]):
        def receive(self, message: int, /) -> None:
            turns.append(self.ctx.path)
            if len(turns) < 5000:
                self.ctx.self_ref.tell(message)

    async with System("s", stall_after=None) as system:
        greedy = await system.spawn(Spec(Greedy, mailbox=Mailbox(batch=16)), "greedy")
        modest = await system.spawn(Spec(Greedy), "modest")
        greedy.tell(0)
        await asyncio.sleep(0)
        modest.tell(0)
        await until(lambda: len(turns) >= 5000)
        longest = run = 0
        for before, after in pairwise(turns):
            run = run + 1 if before == after == "/s/greedy" else 0
            longest = max(longest, run)
        assert "/s/modest" in turns
        assert longest <= 16
        await system.kill(greedy)
        await system.kill(modest)


async def test_a_slow_actor_yields_after_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quota follows the time that messages take: down when a turn lasts over 1 ms, up again when it is short."""
    now = 0.0
    monkeypatch.setattr(_cell, "perf_counter", lambda: now)

    class Slow(Actor[float]):
        def receive(self, message: float, /) -> None:
            nonlocal now
            now += message

    async with System("s", stall_after=None) as system:
        slow = await system.spawn(Spec(Slow), "slow")
        cell: Any = slow._inbox.owner

        async def handle(seconds: float, count: int) -> int:
            for _ in range(count):
                slow.tell(seconds)
            await until(lambda: not system.tree()[0].depth)
            await asyncio.sleep(0)
            return int(cell._quota)

        assert await handle(0.0, 200) == 64
        assert await handle(0.01, 300) == 1
        assert await handle(0.0, 200) == 64
