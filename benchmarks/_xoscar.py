"""xoscar: an actor is an object with a lock in a pool; a call is a coroutine, a tell is a task.

All actors are in one main pool of this process, and messages use the fastest ref, for actors of the
same pool. `actor_ref` returns that; the ref from `create_actor` packs every call into a message
with an id.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import xoscar  # type: ignore[import-untyped]  # it has no annotations that are meant for others

from benchmarks._load import BEHIND, IN_FLIGHT, ITEMS, Finish, Player, Stopwatch, micros, nothing, produce, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Sink(xoscar.Actor):  # type: ignore[misc]  # its base is Any
    """Handle calls, one at a time."""

    def handle(self, message: object) -> int:
        """Handle a message with a plain method; the result is for calls only."""
        return 1

    async def handle_async(self, message: object) -> None:
        """Handle a message with a coroutine method that does not suspend."""

    @xoscar.extensible  # type: ignore[untyped-decorator]
    def handle_each(self, item: int) -> None:
        """Handle an item of many in one message."""
        nothing(item)


class Caller(xoscar.Actor):  # type: ignore[misc]  # its base is Any
    """Pass messages to a function."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self._function = function

    def handle(self, message: object) -> None:
        """Handle a message."""
        self._function(message)


class Gated(Caller):
    """Do not start before the gate opens."""

    async def wait(self, gate: asyncio.Event) -> None:
        """Block the actor."""
        await gate.wait()


@asynccontextmanager
async def pool() -> AsyncIterator[str]:
    """Run a main pool; yield its address."""
    main = await xoscar.create_actor_pool("127.0.0.1:0", n_process=0)
    async with main:
        yield main.external_address


async def make(address: str, kind: type, uid: str, *arguments: object) -> Any:
    """Create an actor; return its fastest ref."""
    await xoscar.create_actor(kind, *arguments, address=address, uid=uid)
    return await xoscar.actor_ref(address=address, uid=uid)


def _sender(method: Any) -> Callable[[object], object]:
    def send(message: object) -> None:
        # The task exists by now. Awaiting the result would only yield, as a burst does.
        method.tell(message).close()

    return send


async def tell(messages: int, *, burst: int, method: str = "handle") -> float:
    """Send one way, with a task each.

    The call at the end waits for the lock, and gets it when all are handled.
    """
    async with pool() as address:
        ref = await make(address, Sink, "sink")
        handle = getattr(ref, method)
        began = perf_counter()
        await produce(_sender(handle), messages, burst)
        await handle(None)
        return micros(began, messages)


async def call(messages: int, *, method: str = "handle") -> float:
    """Call and wait; this is also the equivalent of an ask.

    It is cheaper than a tell, since the sender's own task runs the handler.
    """
    async with pool() as address:
        ref = await make(address, Sink, "sink")
        handle = getattr(ref, method)
        began = perf_counter()
        for number in range(messages):
            await handle(number)
        return micros(began, messages)


async def call_many(messages: int) -> float:
    """Run many calls concurrently."""
    async with pool() as address:
        ref = await make(address, Sink, "sink")
        began = perf_counter()
        for _ in range(messages // IN_FLIGHT):
            await asyncio.gather(*[ref.handle(number) for number in range(IN_FLIGHT)])
        return micros(began, messages)


async def lots(items: int) -> float:
    """Send many calls as one, by xoscar's `batch`."""
    async with pool() as address:
        ref = await make(address, Sink, "sink")
        began = perf_counter()
        for _ in range(items // ITEMS):
            await ref.handle_each.batch(*[ref.handle_each.delay(number) for number in range(ITEMS)])
        return micros(began, items)


async def hop(hops: int, *, pairs: int) -> float:
    """Play ping-pong in `pairs` pairs at once."""
    finish = Finish(pairs)
    serve = []
    async with pool() as address:
        for number in range(pairs):
            left, right = Player(finish), Player(finish)
            near = await make(address, Caller, f"near-{number}", left.play)
            far = await make(address, Caller, f"far-{number}", right.play)
            left.tell, right.tell = _sender(far.handle), _sender(near.handle)
            serve.append(right.tell)
        began = perf_counter()
        for send in serve:
            send(hops // pairs)
        await finish.reached
        return micros(began, hops)


async def spawn(actors: int) -> float:
    """Create actors."""
    async with pool() as address:
        began = perf_counter()
        for number in range(actors):
            await xoscar.create_actor(Sink, address=address, uid=f"sink-{number}")
        return micros(began, actors)


async def stop(actors: int) -> float:
    """Destroy actors, one after the other."""
    async with pool() as address:
        refs = [await xoscar.create_actor(Sink, address=address, uid=f"sink-{number}") for number in range(actors)]
        began = perf_counter()
        for ref in refs:
            await xoscar.destroy_actor(ref)
        return micros(began, actors)


async def behind(_times: int) -> float:
    """Handle one message behind all that wait for the lock."""
    gate, watch = asyncio.Event(), Stopwatch()
    async with pool() as address:
        ref = await make(address, Gated, "gated", lambda message: message() if callable(message) else None)
        _sender(ref.wait)(gate)
        send = _sender(ref.handle)
        for number in range(BEHIND):
            send(number)
        await asyncio.sleep(0)
        watch.start()
        send(watch.stop)
        gate.set()
        await until(watch.stopped)
    return watch.took
