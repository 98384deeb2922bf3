"""The calls that are safe from other threads."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from actors import Mailbox, Message, Pressure, Spec, System, Terminated, Undelivered
from actors.loop._doorbell import Doorbell
from actors.mailbox import _inbox
from tests.actors.helpers import Call, Do, Silent, note
from tests.waiting import until


class Urgent(Message, frozen=True):
    n: int


async def in_thread(*jobs: Any) -> None:
    """Run each job in a thread of its own, all at once, and wait for their ends."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)


async def test_tell_from_many_threads_loses_nothing_and_keeps_each_ones_order() -> None:
    """FIFO per sender, a thread being one; the loop is woken from its sleep."""
    log: list[tuple[int, int]] = []
    async with System("s", stall_after=None) as system:
        ref: Any = await system.spawn(Spec(lambda: Do(log), mailbox=Mailbox(capacity=1 << 20)), "a")

        def teller(thread: int) -> None:
            for n in range(2000):
                ref.tell((thread, n))

        await in_thread(*(lambda thread=thread: teller(thread) for thread in range(4)))
        assert await ref.ask(Call, lambda me: len(me.log)) == 8000
    for thread in range(4):
        assert [n for who, n in log if who == thread] == list(range(2000))


async def test_a_thread_wakes_a_sleeping_actor() -> None:
    """A single tell from outside is enough."""
    got = asyncio.Event()
    async with System("s", stall_after=None) as system:
        ref: Any = await system.spawn(Spec(Silent), "a")
        await asyncio.sleep(0)
        await in_thread(lambda: ref.tell(lambda me: got.set()))
        await got.wait()


async def test_urgent_messages_offers_and_pressure_work_from_threads() -> None:
    """All that a tell may lead to is carried to the loop's thread."""
    gate = asyncio.get_running_loop().create_future()
    watcher_log: list[Any] = []
    log: list[Any] = []

    async def wait(_: Do) -> None:
        await gate

    async with System("s", stall_after=None) as system:
        ref: Any = await system.spawn(Spec(lambda: Do(log), mailbox=Mailbox(capacity=4, watermarks=(0, 3), urgent=(Urgent,))), "a")
        watcher: Any = await system.spawn(Spec(lambda: Do(watcher_log, note(Pressure, Terminated))), "watcher")
        await watcher.ask(Call, lambda me: me.ctx.watch(ref))
        ref.tell(wait)
        await until(lambda: system.tree()[0].current is not None)
        offers: list[bool] = []

        def from_thread() -> None:
            offers.extend(ref.offer(n) for n in range(5))
            ref.tell(Urgent(1))

        await in_thread(from_thread)
        assert offers == [True] * 4 + [False]
        await watcher.ask(Call, lambda me: None)
        assert watcher_log == [Pressure(ref, high=True)]
        gate.set_result(None)
        await until(lambda: len(log) >= 5)
        assert log == [Urgent(1), 0, 1, 2, 3]


async def test_undelivered_messages_from_threads_are_published_on_the_loops_thread() -> None:
    """Event handlers need not be thread-safe."""
    seen: list[tuple[Undelivered, bool]] = []
    here = threading.get_ident()
    async with System("s", stall_after=None) as system:
        system.subscribe(Undelivered, lambda event: seen.append((event, threading.get_ident() == here)))
        ref: Any = await system.spawn(Spec(Silent), "a")
        await system.stop(ref)
        await in_thread(lambda: ref.tell("late"))
        await until(lambda: seen)
    assert seen == [(Undelivered("/s/a", "late", "stopped"), True)]


def test_telling_after_the_loop_is_closed_neither_raises_nor_blocks() -> None:
    """A ref may outlive the loop: tell is silent, offer says no."""
    refs: list[Any] = []

    async def main() -> None:
        async with System("s", stall_after=None) as system:
            refs.append(await system.spawn(Spec(Silent), "a"))

    asyncio.run(main())
    done: list[object] = []

    def from_thread() -> None:
        refs[0].tell("late")
        done.append(refs[0].offer("later"))

    thread = threading.Thread(target=from_thread)
    thread.start()
    thread.join(10)
    assert done == [False]


def test_a_doorbell_is_rung_once_for_many_calls() -> None:
    """One wake-up of the loop serves all calls that came before it; a closed loop is no error."""
    loop = asyncio.new_event_loop()
    wakes: list[Any] = []
    bell = Doorbell(loop)
    loop.call_soon_threadsafe = lambda call, *_, **__: wakes.append(call)  # type: ignore[method-assign, assignment]
    made: list[int] = []
    for n in range(3):
        bell.ring(partial(made.append, n))
    assert len(wakes) == 1
    wakes[0]()
    assert made == [0, 1, 2]
    bell.ring(lambda: made.append(3))
    assert len(wakes) == 2
    bell.answer()
    loop.close()
    del loop.call_soon_threadsafe
    for _ in range(100):
        bell.ring(lambda: made.append(4))
    assert not bell._calls
    bell.answer()
    assert made == [0, 1, 2, 3]


def test_calls_that_come_while_a_doorbell_is_answered_wait_for_the_next_turn() -> None:
    """Threads that never stop telling do not keep the loop from everything else."""
    loop = asyncio.new_event_loop()
    bell = Doorbell(loop)
    made: list[int] = []

    def again() -> None:
        made.append(len(made))
        if len(made) < 3:
            bell.ring(again)

    bell.ring(again)
    turns: list[int] = []
    while len(made) < 3:
        loop.call_soon(loop.stop)
        loop.run_forever()
        turns.append(len(made))
    loop.close()
    assert turns == [1, 2, 3]


async def test_a_message_that_comes_while_an_actor_falls_asleep_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its last look and its sleep another thread may tell: the look after that sees it."""
    async with System("s", stall_after=None) as system:
        ref: Any = await system.spawn(Spec(Silent), "a")
        await asyncio.sleep(0)
        inbox = ref._inbox
        inbox.waiter = None

        def slip_in(loop: asyncio.AbstractEventLoop) -> Any:
            inbox.user.append("slipped in")
            return loop.create_future()

        monkeypatch.setattr(_inbox, "Future", slip_in)
        assert inbox.park() is None
        assert inbox.waiter is None
        monkeypatch.undo()
        inbox.user.clear()
        await system.kill(ref)
