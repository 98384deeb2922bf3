"""Our actors, in systems with default settings, the stall detector included.

Some cases change a setting, and say so.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actors import Actor, Mailbox, Message, Ref, Reply, Signal, Spec, Started, Stopping, System
from benchmarks._load import (
    BEHIND,
    IN_FLIGHT,
    JOB,
    Finish,
    Player,
    Stopwatch,
    from_thread,
    micros,
    nothing,
    nothing_each,
    produce,
    produce_lots,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

AMPLE = Mailbox(capacity=1 << 20)
"""A mailbox for senders that run ahead: the default takes only 1,024 messages."""


class Sink(Actor[Any]):
    """Handle messages with a plain method."""

    def receive(self, message: object) -> None:
        """Handle a message."""


class AsyncSink(Actor[Any]):
    """Handle messages with a coroutine method that does not suspend."""

    async def receive(self, message: object) -> None:
        """Handle a message."""


class LotSink(Actor[tuple[int, ...]]):
    """Handle messages of many items."""

    receive = staticmethod(nothing_each)


class Caller(Actor[Any]):
    """Pass messages to a function."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self.receive = function  # type: ignore[method-assign]  # the framework looks the handler up on the instance


class Question(Message, frozen=True):
    """The request of the ask cases."""

    reply: Reply[int]


class Answerer(Actor[Question]):
    """Answer at once."""

    def receive(self, message: Question) -> None:
        """Handle a question."""
        message.reply.tell(1)


async def settled(system: System) -> None:
    """Wait until all messages of the first actor are handled."""
    await until(lambda: not system.tree()[0].depth)


async def tell(messages: int, *, burst: int, sink: type[Actor[Any]] = Sink) -> float:
    """Send to one actor."""
    # Bursts of 1,024 outrun an actor that yields after 64 messages.
    spec = Spec(sink, mailbox=AMPLE) if burst > Mailbox().batch else Spec(sink)
    async with System("bench") as system:
        ref = await system.spawn(spec, "sink")
        await asyncio.sleep(0)
        began = perf_counter()
        await produce(ref.tell, messages, burst)
        await settled(system)
        took = micros(began, messages)
        _check(system, messages // burst * burst)
        return took


async def lots(items: int) -> float:
    """Send messages of many items."""
    async with System("bench") as system:
        ref = await system.spawn(Spec(LotSink), "sink")
        await asyncio.sleep(0)
        began = perf_counter()
        await produce_lots(ref.tell, items)
        await settled(system)
        return micros(began, items)


def _check(system: System, messages: int) -> None:
    handled = system.tree()[0].processed
    if handled != messages:
        raise RuntimeError(f"{handled} of {messages} messages were handled: the figure would be wrong")


async def hop(hops: int, *, pairs: int) -> float:
    """Play ping-pong in `pairs` pairs at once."""
    finish = Finish(pairs)
    async with System("bench") as system:
        serve: list[Ref[int]] = []
        for number in range(pairs):
            left, right = Player(finish), Player(finish)
            near: Ref[int] = await system.spawn(Spec(partial(Caller, left.play)), f"near-{number}")
            far: Ref[int] = await system.spawn(Spec(partial(Caller, right.play)), f"far-{number}")
            left.tell, right.tell = far.tell, near.tell
            serve.append(near)
        await asyncio.sleep(0)
        began = perf_counter()
        for ref in serve:
            ref.tell(hops // pairs)
        await finish.reached
        return micros(began, hops)


async def ask(questions: int) -> float:
    """Ask and await the answer, one after the other, with the default timeout."""
    async with System("bench") as system:
        ref = await system.spawn(Spec(Answerer), "answerer")
        await asyncio.sleep(0)
        began = perf_counter()
        for _ in range(questions):
            await ref.ask(Question)
        return micros(began, questions)


async def ask_many(questions: int) -> float:
    """Ask many questions, then await the answers."""
    async with System("bench") as system:
        ref = await system.spawn(Spec(Answerer), "answerer")
        await asyncio.sleep(0)
        began = perf_counter()
        for _ in range(questions // IN_FLIGHT):
            for answer in [ref.ask(Question) for _ in range(IN_FLIGHT)]:
                await answer
        return micros(began, questions)


async def spawn(actors: int) -> float:
    """Start actors, and yield after each 64, as `produce` does."""
    async with System("bench") as system:
        began = perf_counter()
        for number in range(actors):
            await system.spawn(Spec(Sink), f"sink-{number}")
            if not number % 64:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        return micros(began, actors)


async def stop(actors: int) -> float:
    """Stop actors and wait for their end, one after the other."""
    async with System("bench") as system:
        refs = [await system.spawn(Spec(Sink), f"sink-{number}") for number in range(actors)]
        await asyncio.sleep(0)
        began = perf_counter()
        for ref in refs:
            await system.stop(ref)
        return micros(began, actors)


class _Blocker(Actor[int]):
    def __init__(self, done: Callable[[], None], job: Callable[[Any], None], argument: object) -> None:
        self._done = done
        self._job = job
        self._argument = argument

    async def receive(self, jobs: int) -> None:
        for _ in range(jobs):
            await self.ctx.blocking(self._job, self._argument)
        self._done()


async def executor(jobs: int) -> float:
    """Run blocking jobs in the system's threads, one at a time."""
    return await _blocking(nothing, None, jobs) / jobs


async def executor_batch(operations: int) -> float:
    """Run the same operations in few jobs."""
    return await _blocking(nothing_each, tuple(range(JOB)), operations // JOB) / operations


async def _blocking(job: Callable[[Any], None], argument: object, jobs: int) -> float:
    finish = Finish(1)
    async with System("bench") as system:
        ref = await system.spawn(Spec(lambda: _Blocker(finish, job, argument)), "blocker")
        began = perf_counter()
        ref.tell(jobs)
        await finish.reached
        return micros(began, 1)


async def ingress(messages: int) -> float:
    """Tell from another thread."""
    finish = Finish(messages)
    async with System("bench") as system:
        ref = await system.spawn(Spec(lambda: Caller(finish), mailbox=AMPLE), "sink")
        await asyncio.sleep(0)
        return await from_thread(ref.tell, messages, finish)


class _Hurry(Message, frozen=True):
    pass


class _Stoppable(Actor[int | _Hurry]):
    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch

    def receive(self, message: int | _Hurry) -> None:
        if isinstance(message, _Hurry):
            self._watch.stop()

    def signal(self, signal: Signal) -> None:
        if isinstance(signal, Stopping) and not self._watch.took:
            self._watch.stop()


async def stop_behind(_times: int) -> float:
    """Deliver Stopping while the actor is amid many queued messages."""
    watch = Stopwatch()
    async with System("bench") as system:
        ref = await system.spawn(Spec(lambda: _Stoppable(watch), mailbox=Mailbox(capacity=BEHIND)), "busy")
        await _pile_up(ref)
        watch.start()
        await system.stop(ref)
    return watch.took


async def urgent_behind(_times: int) -> float:
    """Handle an urgent message while the actor is amid many queued ones."""
    watch = Stopwatch()
    async with System("bench") as system:
        ref = await system.spawn(Spec(lambda: _Stoppable(watch), mailbox=Mailbox(capacity=BEHIND, urgent=(_Hurry,))), "busy")
        await _pile_up(ref)
        watch.start()
        ref.tell(_Hurry())
        await until(watch.stopped)
    return watch.took


async def _pile_up(ref: Ref[int | _Hurry]) -> None:
    for number in range(BEHIND):
        ref.tell(number)
    await asyncio.sleep(0)


class _Node(Actor[int]):
    """Skynet: start ten nodes, report the sum of their reports; a leaf reports its number."""

    def __init__(self, number: int, leaves: int, parent: Ref[int]) -> None:
        self._number = number
        self._leaves = leaves
        self._parent = parent
        self._sum = 0
        self._missing = 10

    def receive(self, message: int) -> None:
        self._sum += message
        self._missing -= 1
        if not self._missing:
            self._finish(self._sum)

    def _finish(self, result: int) -> None:
        self._parent.tell(result)
        self.ctx.stop()

    def _spec(self, branch: int, kind: type[_Node]) -> Spec[int]:
        step = self._leaves // 10
        return Spec(partial(kind, self._number + branch * step, step, self.ctx.self_ref))


class _Starting(_Node):
    """A node that spawns its children when it starts, as a goroutine does.

    Spawn returns when everything below has started, so the tree grows depth first.
    """

    async def signal(self, signal: Signal) -> None:
        if not isinstance(signal, Started):
            return
        if self._leaves == 1:
            self._finish(self._number)
            return
        for branch in range(10):
            await self.ctx.spawn(self._spec(branch, _Starting), str(branch))


class _Begin(Message, frozen=True):
    pass


class _Told(_Node):
    """A node that spawns its children on a message.

    The tree grows breadth first, and all of its actors are alive at once.
    """

    async def receive(self, message: int | _Begin) -> None:  # type: ignore[override]  # one class for both kinds of skynet
        if isinstance(message, int):
            super().receive(message)
        elif self._leaves == 1:
            self._finish(self._number)
        else:
            for branch in range(10):
                node: Ref[Any] = await self.ctx.spawn(self._spec(branch, _Told), str(branch))
                node.tell(_Begin())


async def skynet(leaves: int) -> float:
    """Start a tree of actors depth first, and wait for the sum; return seconds.

    The number of leaves is a power of ten.
    """
    return await _skynet(leaves, _Starting)


async def skynet_told(leaves: int) -> float:
    """Do the same breadth first."""
    return await _skynet(leaves, _Told)


async def _skynet(leaves: int, kind: type[_Node]) -> float:
    finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with System("bench") as system:
        began = perf_counter()
        top = await system.spawn(Spec(lambda: Caller(finished.set_result)), "top")
        root: Ref[Any] = await system.spawn(Spec(partial(kind, 0, leaves, top)), "root")
        if kind is _Told:
            root.tell(_Begin())
        total = await finished
        took = perf_counter() - began
    if total != leaves * (leaves - 1) // 2:
        raise RuntimeError(f"the sum is {total}: the figure would be wrong")
    return took
