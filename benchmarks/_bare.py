"""The lower bound: a deque, at most one waiter, and a loop that drains; and asyncio.Queue.

The deque has no limit, no lanes, no counters and no supervision.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

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
    nothing_async,
    nothing_each,
    produce,
    produce_lots,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


Handler: TypeAlias = Callable[[Any], object]
AsyncHandler: TypeAlias = Callable[[Any], Coroutine[Any, Any, None]]


class Box:
    """Queue for one consumer."""

    __slots__ = ("_loop", "queue", "waiter")

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    def put(self, message: object) -> None:
        """Append, and wake the consumer if it sleeps."""
        self.queue.append(message)
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            waiter.set_result(None)

    def park(self) -> asyncio.Future[None]:
        """Return a future to await when the queue is empty."""
        self.waiter = waiter = self._loop.create_future()
        return waiter

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return not self.queue


async def drain(box: Box, handle: Handler) -> None:
    """Handle messages forever."""
    queue = box.queue
    while True:
        if not queue:
            await box.park()
        while queue:
            handle(queue.popleft())


async def drain_async(box: Box, handle: AsyncHandler) -> None:
    """Handle messages forever, with a coroutine for each."""
    queue = box.queue
    while True:
        if not queue:
            await box.park()
        while queue:
            await handle(queue.popleft())


class Channel(asyncio.Queue[Any]):
    """An asyncio.Queue with the method names of a Box."""

    put = asyncio.Queue.put_nowait  # type: ignore[assignment]  # it must be the queue's own method, not one more call around it


async def take(channel: Channel, handle: Handler) -> None:
    """Handle messages forever."""
    while True:
        handle(await channel.get())


async def take_async(channel: Channel, handle: AsyncHandler) -> None:
    """Handle messages forever, with a coroutine for each."""
    while True:
        await handle(await channel.get())


class Bare:
    """The cases, for a box or a channel.

    `make` creates one; `consume` and `consume_async` are its loops.
    """

    def __init__(self, make: Callable[[], Any], consume: Callable[..., Any], consume_async: Callable[..., Any]) -> None:
        self._make = make
        self._consume = consume
        self._consume_async = consume_async

    @asynccontextmanager
    async def _running(self, handle: Callable[[Any], Any], consume: Callable[..., Any] | None = None) -> AsyncIterator[Any]:
        box = self._make()
        task = asyncio.create_task((consume or self._consume)(box, handle))
        await asyncio.sleep(0)
        try:
            yield box
        finally:
            task.cancel()

    async def tell(self, messages: int, *, burst: int) -> float:
        """Send to a plain function."""
        async with self._running(nothing) as box:
            return await self._tell(box, messages, burst)

    async def tell_async(self, messages: int, *, burst: int) -> float:
        """Send to a coroutine function."""
        async with self._running(nothing_async, self._consume_async) as box:
            return await self._tell(box, messages, burst)

    async def _tell(self, box: Any, messages: int, burst: int) -> float:
        began = perf_counter()
        await produce(box.put, messages, burst)
        await until(box.empty)
        return micros(began, messages)

    async def lots(self, items: int) -> float:
        """Send messages of many items."""
        async with self._running(nothing_each) as box:
            began = perf_counter()
            await produce_lots(box.put, items)
            await until(box.empty)
            return micros(began, items)

    async def hop(self, hops: int, *, pairs: int) -> float:
        """Play ping-pong in `pairs` pairs at once."""
        finish = Finish(pairs)
        boxes, tasks = [], []
        for _ in range(pairs):
            left, right = Player(finish), Player(finish)
            near, far = self._make(), self._make()
            left.tell, right.tell = far.put, near.put
            tasks += [asyncio.create_task(self._consume(near, left.play)), asyncio.create_task(self._consume(far, right.play))]
            boxes.append(near)
        await asyncio.sleep(0)
        began = perf_counter()
        for box in boxes:
            box.put(hops // pairs)
        await finish.reached
        took = micros(began, hops)
        for task in tasks:
            task.cancel()
        return took

    async def ask(self, questions: int) -> float:
        """Send a future and await it, one after the other. There is no timeout."""
        loop = asyncio.get_running_loop()
        async with self._running(_answer) as box:
            began = perf_counter()
            for _ in range(questions):
                future = loop.create_future()
                box.put(future)
                await future
            return micros(began, questions)

    async def ask_many(self, questions: int) -> float:
        """Send many futures, then await them."""
        loop = asyncio.get_running_loop()
        async with self._running(_answer) as box:
            began = perf_counter()
            for _ in range(questions // IN_FLIGHT):
                futures = [loop.create_future() for _ in range(IN_FLIGHT)]
                for future in futures:
                    box.put(future)
                for future in futures:
                    await future
            return micros(began, questions)

    async def spawn(self, tasks: int) -> float:
        """Start consumers, in bursts as messages are sent."""
        kept: list[asyncio.Task[None]] = []
        began = perf_counter()
        await produce(lambda _: kept.append(asyncio.create_task(self._consume(self._make(), nothing))), tasks, 64)
        took = micros(began, tasks)
        for task in kept:
            task.cancel()
        return took

    async def stop(self, tasks: int) -> float:
        """Cancel consumers and wait for their end, one after the other."""
        kept = [asyncio.create_task(self._consume(self._make(), nothing)) for _ in range(tasks)]
        await asyncio.sleep(0)
        began = perf_counter()
        for task in kept:
            task.cancel()
            await asyncio.wait((task,))
        return micros(began, tasks)

    async def behind(self, _times: int) -> float:
        """Handle one message behind all that are queued: the last one sent."""
        watch = Stopwatch()
        async with self._running(lambda message: message() if callable(message) else None) as box:
            for number in range(BEHIND):
                box.put(number)
            watch.start()
            box.put(watch.stop)
            await until(watch.stopped)
        return watch.took


def _answer(future: asyncio.Future[int]) -> None:
    future.set_result(1)


BOX = Bare(Box, drain, drain_async)
QUEUE = Bare(Channel, take, take_async)


async def executor(jobs: int) -> float:
    """Run jobs in a thread of a standard pool, one at a time."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        began = perf_counter()
        for _ in range(jobs):
            await loop.run_in_executor(pool, nothing, None)
        return micros(began, jobs)


async def executor_batch(operations: int) -> float:
    """Run the same operations in few jobs."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        began = perf_counter()
        for _ in range(operations // JOB):
            await loop.run_in_executor(pool, nothing_each, tuple(range(JOB)))
        return micros(began, operations)


async def ingress_each(messages: int) -> float:
    """Send from another thread by `call_soon_threadsafe` per message, as asyncio's docs advise."""
    channel = Channel()
    finish = Finish(messages)
    task = asyncio.create_task(take(channel, finish))
    loop = asyncio.get_running_loop()

    def put(message: int) -> None:
        loop.call_soon_threadsafe(channel.put, message)

    took = await from_thread(put, messages, finish)
    task.cancel()
    return took


async def ingress(messages: int) -> float:
    """Send from another thread into a deque, and ring once for many messages."""
    loop = asyncio.get_running_loop()
    finish = Finish(messages)
    queue: deque[int] = deque()
    rung = False

    def answer() -> None:
        nonlocal rung
        rung = False
        while queue:
            finish(queue.popleft())

    def put(message: int) -> None:
        nonlocal rung
        queue.append(message)
        if not rung:
            rung = True
            loop.call_soon_threadsafe(answer)

    return await from_thread(put, messages, finish)
