"""Watches: the news of an actor's end."""

from __future__ import annotations

from typing import Any

import pytest

from actors import Actor, ActorFailed, Signal, SignalHook, Spec, Started, StartFailed, Stopping, Terminated
from actors.messages._ref import cell_of
from actors.testing import TestKit
from tests.actors.helpers import Boom, Call, Do, Silent, boom, do, ends, note

pytestmark = pytest.mark.actors(runs=5)


async def test_watchers_hear_of_a_normal_end_once(actor_kit: TestKit) -> None:
    """Terminated comes once per watch, without a cause after a stop; watching twice is watching once."""
    ref, _ = await do(actor_kit, "watched")
    watcher, log = await do(actor_kit, "watcher", on=note(Terminated))
    watcher.tell(lambda me: [me.ctx.watch(ref) for _ in range(2)].clear())
    await actor_kit.quiesce()
    await actor_kit.stop(ref)
    await actor_kit.quiesce()
    assert log == [Terminated(ref, None)]


async def test_watching_the_dead_gives_terminated_at_once(actor_kit: TestKit) -> None:
    """With the cause of death, however long ago that was."""
    ref, _ = await do(actor_kit, "watched")
    ref.tell(boom)
    await actor_kit.quiesce()
    watcher, log = await do(actor_kit, "watcher", on=note(Terminated))
    watcher.tell(lambda me: me.ctx.watch(ref))
    await actor_kit.quiesce()
    assert [type(end.cause) for end in ends(log)] == [Boom]
    actor_kit.failures.clear()


async def test_an_ended_watch_may_begin_again(actor_kit: TestKit) -> None:
    """Each watch has its own Terminated."""
    ref, _ = await do(actor_kit, "watched")
    await actor_kit.stop(ref)
    watcher, log = await do(actor_kit, "watcher", on=note(Terminated))
    for _ in range(2):
        watcher.tell(lambda me: me.ctx.watch(ref))
        await actor_kit.quiesce()
    assert log == [Terminated(ref, None)] * 2


async def test_unwatch_takes_back_even_a_message_on_its_way(actor_kit: TestKit) -> None:
    """After unwatch nothing comes, though the end is in the mailbox already."""
    dead, _ = await do(actor_kit, "dead")
    await actor_kit.stop(dead)
    alive, _ = await do(actor_kit, "alive")
    watcher, log = await do(actor_kit, "watcher", on=note(Terminated))

    def watch_and_unwatch(me: Do) -> None:
        me.ctx.unwatch(alive)
        for ref in (dead, alive):
            me.ctx.watch(ref)
            me.ctx.unwatch(ref)

    watcher.tell(watch_and_unwatch)
    await actor_kit.quiesce()
    await actor_kit.stop(alive)
    await actor_kit.quiesce()
    assert log == []


async def test_an_unhandled_end_by_failure_fails_the_watcher(actor_kit: TestKit) -> None:
    """Failures are passed on until somebody deals with them, even by watchers that hear no signals."""
    for make in (lambda: Do(), lambda: Silent()):
        ref, _ = await do(actor_kit, "watched")
        watcher: Any = await actor_kit.spawn(Spec(make), "watcher")
        probe = actor_kit.probe(object)
        watcher.tell(lambda me, ref=ref: me.ctx.watch(ref))
        await actor_kit.quiesce()
        ref.tell(boom)
        cause = (await probe.terminated(watcher)).cause
        assert isinstance(cause, ActorFailed)
        assert (cause.path, type(cause.exceptions[0])) == ("/test/watched", Boom)
        assert isinstance((await probe.terminated(ref)).cause, Boom)


async def test_an_unhandled_normal_end_harms_nobody(actor_kit: TestKit) -> None:
    """Only a cause must be handled."""
    ref, _ = await do(actor_kit, "watched")
    watcher, log = await do(actor_kit, "watcher")
    watcher.tell(lambda me: me.ctx.watch(ref))
    await actor_kit.quiesce()
    await actor_kit.stop(ref)
    watcher.tell("alive")
    await actor_kit.quiesce()
    assert log == ["alive"]


async def test_a_parent_that_watches_hears_once_and_of_normal_ends_too(actor_kit: TestKit) -> None:
    """Watching a child adds its normal ends, and does not double its failures."""
    for end in (boom, lambda me: me.ctx.stop()):
        parent, log = await do(actor_kit, f"parent-{end is boom}", on=note(Terminated))

        async def spawn(me: Do) -> None:
            me.ctx.watch(await me.ctx.spawn(Spec(Silent), "child"))

        parent.tell(spawn)
        (child,) = await parent.ask(Call, lambda me: me.ctx.children)
        child.tell(end)
        await actor_kit.quiesce()
        assert [type(signal.cause) for signal in ends(log)] == [Boom if end is boom else type(None)]


async def test_a_parent_does_not_hear_of_normal_ends_unasked(actor_kit: TestKit) -> None:
    """A child that stops is no news, unless the parent watches it."""
    parent, log = await do(actor_kit, "parent", on=note(Terminated))
    parent.tell(lambda me: me.ctx.spawn(Spec(Silent), "child"))
    (child,) = await parent.ask(Call, lambda me: me.ctx.children)
    await actor_kit.stop(child)
    assert await parent.ask(Call, lambda me: me.ctx.children) == ()
    assert log == []


async def test_a_dead_watcher_is_forgotten(actor_kit: TestKit) -> None:
    """The watched keeps nothing of a watcher that has ended."""
    ref, _ = await do(actor_kit, "watched")
    watcher, _ = await do(actor_kit, "watcher")
    watcher.tell(lambda me: me.ctx.watch(ref))
    await actor_kit.quiesce()
    await actor_kit.stop(watcher)
    assert cell_of(ref).forget_watchers() == ()


async def test_messages_sent_before_the_end_do_not_follow_it(actor_kit: TestKit) -> None:
    """Terminated is the last message about an actor: all that it told before its end arrives before."""
    watcher, log = await do(actor_kit, "watcher", on=note(Terminated))
    ref, _ = await do(actor_kit, "watched", on={Stopping: lambda *_: watcher.tell("last words")})
    watcher.tell(lambda me: me.ctx.watch(ref))
    await actor_kit.quiesce()
    await actor_kit.stop(ref)
    await actor_kit.quiesce()
    assert set(log) == {"last words", Terminated(ref, None)}


async def test_from_outside_an_end_is_waited_for(actor_kit: TestKit) -> None:
    """System.terminated returns how an actor ended, now or long ago, and a failed start is a cause."""
    ref, _ = await do(actor_kit)
    ref.tell(boom)
    for _ in range(2):
        assert isinstance((await actor_kit.terminated(ref)).cause, Boom)
    actor_kit.failures.clear()
    seen: list[Any] = []

    def hand_out(me: Do, _: object) -> None:
        seen.append(me.ctx.self_ref)
        boom()

    with pytest.raises(StartFailed):
        await do(actor_kit, "broken", on={Started: hand_out})
    watcher, log = await do(actor_kit, "watcher", on=note(Terminated))
    watcher.tell(lambda me: me.ctx.watch(seen[0]))
    await actor_kit.quiesce()
    assert isinstance((await actor_kit.terminated(seen[0])).cause, Boom)
    assert isinstance(log[0].cause, Boom)


async def test_an_actor_may_leave_signals_to_its_base_class(actor_kit: TestKit) -> None:
    """The base class handles nothing."""

    class Polite(Actor[Any]):
        def receive(self, message: Any, /) -> None:
            self.ctx.watch(message)

        def signal(self, signal: Signal, /) -> SignalHook:
            return super().signal(signal)

    ref, _ = await do(actor_kit, "watched")
    polite = await actor_kit.spawn(Spec(Polite), "polite")
    polite.tell(ref)
    await actor_kit.quiesce()
    ref.tell(boom)
    assert isinstance((await actor_kit.probe(object).terminated(polite)).cause, ActorFailed)
    actor_kit.failures.clear()


async def test_all_watchers_hear_of_an_end(actor_kit: TestKit) -> None:
    """Each once."""
    ref, _ = await do(actor_kit, "watched")
    probes = [actor_kit.probe(object) for _ in range(3)]
    for probe in probes:
        probe.watch(ref)
    await actor_kit.stop(ref)
    for probe in probes:
        assert await probe.terminated(ref) == Terminated(ref, None)
