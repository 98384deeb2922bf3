"""Full mailboxes: overflow, and waits for room."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import ActorStopped, Mailbox, MailboxFull, Message, Pressure, Ref, SelfDeadlock, Spec, System, Undelivered
from actors.testing import TestKit
from tests.actors.helpers import Do, Keep, Silent, do, note

pytestmark = pytest.mark.actors(runs=5)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"capacity": 0}, "capacity"),
        ({"batch": 0}, "batch"),
        ({"stash": -1}, "stash"),
        ({"overflow": "explode"}, "explode"),
        ({"watermarks": (5, 5)}, "low < high"),
        ({"watermarks": (1, 2000)}, "capacity"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], what: str) -> None:
    """A mailbox that cannot be is a ValueError that names the setting."""
    with pytest.raises(ValueError, match=what):
        Mailbox(**settings)


async def fill(kit: TestKit, **settings: Any) -> tuple[Any, list[Any]]:
    """Return an actor that is busy until it is told "go" by probe, with a full mailbox of 1 and 2."""
    gate = asyncio.get_running_loop().create_future()

    async def wait(me: Do) -> None:
        await gate
        me.log.append("go")

    ref, log = await do(kit, "full", mailbox=Mailbox(capacity=2, **settings))
    ref.tell(wait)
    await kit.quiesce()
    ref.tell(1)
    ref.tell(2)
    return (ref, gate), log


async def test_a_full_mailbox_leaves_further_messages_undelivered_and_counts_them(actor_kit: TestKit) -> None:
    """The default policy keeps the queued messages."""
    (ref, gate), log = await fill(actor_kit)
    ref.tell(3)
    assert ref.offer(4) is False
    assert actor_kit.undelivered == [Undelivered("/test/full", 3, "full")]
    assert [info.refused for info in actor_kit.tree() if info.path == ref.path] == [2]
    gate.set_result(None)
    await actor_kit.quiesce()
    assert log == ["go", 1, 2]


async def test_drop_oldest_makes_room_and_counts_it(actor_kit: TestKit) -> None:
    """The oldest message is undelivered, its ask fails."""
    (ref, gate), log = await fill(actor_kit, overflow="drop_oldest")
    ref.tell(3)
    assert actor_kit.undelivered == [Undelivered("/test/full", 1, "dropped")]
    gate.set_result(None)
    await actor_kit.quiesce()
    assert log == ["go", 2, 3]


async def test_fail_system_ends_the_system_with_the_overflow() -> None:
    """Overflow that must not happen is an error of the whole block, never of the sender."""
    with pytest.raises(ExceptionGroup) as caught:
        async with System("s") as system:
            ref = await system.spawn(Spec(Silent, mailbox=Mailbox(capacity=1, overflow="fail_system")), "a")
            ref.tell(1)
            ref.tell(2)
            await asyncio.Event().wait()
    assert caught.group_contains(MailboxFull, match="/s/a is full .1 messages.")


async def test_an_ask_to_a_full_mailbox_fails_at_once(actor_kit: TestKit) -> None:
    """An asker must not wait for a message that was refused."""
    (ref, gate), _ = await fill(actor_kit)
    with pytest.raises(MailboxFull, match="use put to wait for room"):
        await ref.ask(Keep)
    gate.set_result(None)


async def test_put_waits_for_room_first_come_first_served(actor_kit: TestKit) -> None:
    """Backpressure keeps the order of waiting senders, and loses nothing."""
    (ref, gate), log = await fill(actor_kit)
    puts = [asyncio.create_task(ref.put(n)) for n in range(3, 9)]
    await actor_kit.quiesce()
    assert not any(put.done() for put in puts)
    gate.set_result(None)
    await asyncio.gather(*puts)
    await actor_kit.quiesce()
    assert log == ["go", *range(1, 9)]


async def test_put_does_not_wait_when_there_is_room(actor_kit: TestKit) -> None:
    """A put into a mailbox with room is a tell."""
    ref, log = await do(actor_kit)
    await ref.put(1)
    await actor_kit.quiesce()
    assert log == [1]


async def test_a_cancelled_put_leaves_nothing_behind(actor_kit: TestKit) -> None:
    """Cancelling while waiting for room neither sends the message nor takes the place of another."""
    (ref, gate), log = await fill(actor_kit)
    puts = [asyncio.create_task(ref.put(n)) for n in (3, 4)]
    await actor_kit.quiesce()
    puts[0].cancel()
    gate.set_result(None)
    await puts[1]
    await actor_kit.quiesce()
    assert puts[0].cancelled()
    assert log == ["go", 1, 2, 4]


async def test_a_put_that_waits_fails_when_the_actor_stops(actor_kit: TestKit) -> None:
    """Nobody waits for room in a mailbox that will never have any."""
    (ref, gate), _ = await fill(actor_kit)
    put = asyncio.create_task(ref.put(3))
    await actor_kit.quiesce()
    stop = asyncio.create_task(actor_kit.stop(ref))
    gate.set_result(None)
    with pytest.raises(ActorStopped, match="/test/full"):
        await put
    await stop
    with pytest.raises(ActorStopped):
        await ref.put(4)


async def test_put_to_its_own_full_mailbox_raises_instead_of_deadlocking(actor_kit: TestKit) -> None:
    """An actor cannot wait for room that only itself could make."""
    caught: list[Exception] = []

    async def put_to_itself(me: Do) -> None:
        me.ctx.self_ref.tell(1)
        await me.ctx.self_ref.put(2)
        try:
            await me.ctx.self_ref.put(3)
        except SelfDeadlock as error:
            caught.append(error)

    ref, log = await do(actor_kit, mailbox=Mailbox(capacity=2))
    ref.tell(put_to_itself)
    await actor_kit.quiesce()
    assert log == [1, 2]
    assert "would wait for itself in put" in str(caught[0])


async def test_an_urgent_put_does_not_wait(actor_kit: TestKit) -> None:
    """The urgent lane has no capacity to wait for."""

    class Urgent(Message, frozen=True):
        pass

    (ref, gate), log = await fill(actor_kit, urgent=(Urgent,))
    await ref.put(Urgent())
    gate.set_result(None)
    await actor_kit.quiesce()
    assert log == ["go", Urgent(), 1, 2]


async def test_watchers_hear_of_pressure_at_the_high_and_at_the_low_watermark(actor_kit: TestKit) -> None:
    """Pressure comes once on the way up and once on the way down."""
    gate = asyncio.get_running_loop().create_future()

    async def wait(_: Do) -> None:
        await gate

    ref, log = await do(actor_kit, "pressed", mailbox=Mailbox(capacity=8, watermarks=(2, 5)))
    watcher, heard = await do(actor_kit, "watcher", on=note(Pressure))
    watcher.tell(lambda me: me.ctx.watch(ref))
    ref.tell(wait)
    await actor_kit.quiesce()
    for n in range(4):
        ref.tell(n)
    await actor_kit.quiesce()
    assert heard == []
    for n in range(4, 8):
        ref.tell(n)
    await actor_kit.quiesce()
    assert heard == [Pressure(ref, high=True)]
    gate.set_result(None)
    await actor_kit.quiesce()
    assert heard == [Pressure(ref, high=True), Pressure(ref, high=False)]
    assert log == list(range(8))
    assert actor_kit.undelivered == []


async def test_pressure_is_not_heard_after_unwatch(actor_kit: TestKit) -> None:
    """After an unwatch nothing more arrives, not even a message that was on its way."""
    ref, _ = await do(actor_kit, "pressed", mailbox=Mailbox(watermarks=(0, 2)))
    watcher, heard = await do(actor_kit, "watcher", on=note(Pressure))

    def watch_press_unwatch(me: Do) -> None:
        me.ctx.watch(ref)
        ref.tell(1)
        ref.tell(2)
        me.ctx.unwatch(ref)

    watcher.tell(watch_press_unwatch)
    await actor_kit.quiesce()
    assert heard == []


async def test_an_adapted_ref_translates_and_equals_the_ref_behind_it(actor_kit: TestKit) -> None:
    """`narrow` changes the types of messages, not their receiver."""
    ref, log = await do(actor_kit)
    doubled: Ref[int] = ref.narrow(lambda n: n * 2)
    doubled.tell(1)
    assert doubled.offer(2) is True
    await doubled.put(3)
    await actor_kit.quiesce()
    assert log == [2, 4, 6]
    assert doubled == ref
    assert doubled.narrow(len) == ref
    assert hash(doubled) == hash(ref)
    assert ref != "ref"
    assert repr(doubled) == "<Ref /test/a>"


async def test_an_adapter_that_raises_leaves_the_message_undelivered_and_fails_the_ask(actor_kit: TestKit) -> None:
    """`tell` and `offer` never raise; `put` and `ask` report a wait for oneself."""
    ref, log = await do(actor_kit)
    broken: Any = ref.narrow(lambda message: 1 / 0)
    broken.tell("x")
    assert broken.offer("y") is False
    with pytest.raises(ZeroDivisionError):
        await broken.put("z")
    with pytest.raises(ZeroDivisionError):
        await broken.ask(Keep)
    assert [(letter.message, letter.reason) for letter in actor_kit.undelivered][:2] == [("x", "adapter"), ("y", "adapter")]
    assert isinstance(actor_kit.undelivered[0].error, ZeroDivisionError)
    assert log == []


async def test_tell_to_a_stopped_actor_is_undelivered_and_offer_says_no(actor_kit: TestKit) -> None:
    """A ref outlives its actor, and telling it never raises."""
    ref, _ = await do(actor_kit)
    await actor_kit.stop(ref)
    ref.tell("late")
    assert ref.offer("later") is False
    assert actor_kit.undelivered == [Undelivered("/test/a", "late", "stopped")]


async def test_put_does_not_overtake_waiting_senders(actor_kit: TestKit) -> None:
    """A later sender is served later, even if there is room at that moment."""
    (ref, gate), log = await fill(actor_kit)
    early = asyncio.create_task(ref.put("early"))
    await actor_kit.quiesce()
    late: list[asyncio.Task[None]] = []
    ref._inbox.user.popleft()  # room, in the moment before those who wait get it
    late.append(asyncio.create_task(ref.put("late")))
    gate.set_result(None)
    await asyncio.gather(early, *late)
    await actor_kit.quiesce()
    assert log == ["go", 2, "early", "late"]


async def test_a_put_cancelled_in_the_moment_of_its_room_takes_its_message_back(actor_kit: TestKit) -> None:
    """Unless it is being handled already, a cancelled put has sent nothing."""
    (ref, gate), log = await fill(actor_kit)
    put = asyncio.create_task(ref.put("taken back"))
    await actor_kit.quiesce()
    ref._inbox.user.clear()
    ref._inbox.relieve()
    assert list(ref._inbox.user) == ["taken back"]
    ref.tell("behind")
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    gate.set_result(None)
    await actor_kit.quiesce()
    assert log == ["go", "behind"]
    assert actor_kit.undelivered == []


async def test_a_put_cancelled_after_its_message_was_handled_stays_cancelled(actor_kit: TestKit) -> None:
    """A handled message cannot be taken back."""
    (ref, gate), _ = await fill(actor_kit)
    put = asyncio.create_task(ref.put("handled"))
    await actor_kit.quiesce()
    ref._inbox.user.clear()
    ref._inbox.relieve()
    ref._inbox.user.popleft()
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    gate.set_result(None)


async def test_an_overflowing_system_fails_once_per_mailbox() -> None:
    """A thousand refused messages are one failure, with the actor's path."""
    with pytest.raises(ExceptionGroup) as caught:
        async with System("s") as system:
            ref = await system.spawn(Spec(Silent, mailbox=Mailbox(capacity=1, overflow="fail_system")), "a")
            for n in range(1000):
                ref.tell(n)
            await asyncio.Event().wait()
    assert [getattr(error, "path", None) for error in caught.value.exceptions] == ["/s/a"]


async def test_a_late_watcher_hears_of_present_pressure(actor_kit: TestKit) -> None:
    """A watcher does not have to be first to know that a mailbox is full."""
    gate = asyncio.get_running_loop().create_future()

    async def wait(_: Do) -> None:
        await gate

    ref, _ = await do(actor_kit, "pressed", mailbox=Mailbox(watermarks=(0, 2)))
    ref.tell(wait)
    await actor_kit.quiesce()
    for n in range(2):
        ref.tell(n)
    watcher, heard = await do(actor_kit, "watcher", on=note(Pressure))
    watcher.tell(lambda me: me.ctx.watch(ref))
    await actor_kit.quiesce()
    assert heard == [Pressure(ref, high=True)]
    gate.set_result(None)


async def test_unstashing_past_the_high_watermark_is_pressure_too(actor_kit: TestKit) -> None:
    """However the messages came there."""
    ref, _ = await do(actor_kit, "pressed", mailbox=Mailbox(watermarks=(0, 2)))
    watcher, heard = await do(actor_kit, "watcher", on=note(Pressure))
    watcher.tell(lambda me: me.ctx.watch(ref))
    await actor_kit.quiesce()

    def stash_and_unstash(me: Do) -> None:
        for n in range(3):
            me.ctx.stash(n)
        me.ctx.unstash()

    ref.tell(stash_and_unstash)
    await actor_kit.quiesce()
    assert heard == [Pressure(ref, high=True), Pressure(ref, high=False)]


async def test_none_is_a_message_like_any_other(actor_kit: TestKit) -> None:
    """In the user lane as in the urgent one."""
    for n, settings in enumerate((Mailbox(), Mailbox(urgent=(type(None),)))):
        ref, log = await do(actor_kit, f"a{n}", mailbox=settings)
        ref.tell(None)
        await actor_kit.quiesce()
        assert log == [None]


def test_dropping_the_oldest_message_that_another_thread_has_taken_does_nothing() -> None:
    """Between the look at the depth and the drop the consumer may have been faster."""

    async def main() -> None:
        async with System("s", stall_after=None) as system:
            ref = await system.spawn(Spec(Silent, mailbox=Mailbox(capacity=1, overflow="drop_oldest")), "a")
            ref._inbox._drop_oldest()
            assert system.tree()[0].refused == 0

    asyncio.run(main())


async def test_room_that_was_given_back_goes_to_the_next_waiting_sender(actor_kit: TestKit) -> None:
    """A sender that is cancelled in the moment of its room does not take it along."""
    (ref, gate), log = await fill(actor_kit)
    first, second = (asyncio.create_task(ref.put(name)) for name in ("first", "second"))
    await actor_kit.quiesce()
    ref._inbox.user.popleft()
    ref._inbox.relieve()
    first.cancel()
    await second
    gate.set_result(None)
    await actor_kit.quiesce()
    assert first.cancelled()
    assert log == ["go", 2, "second"]
