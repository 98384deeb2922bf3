"""The load of every contender: the same senders, the same handlers, the same clock."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BEHIND = 10_000
"""Messages queued before a stop or an urgent message."""

ITEMS = 64
"""Items per message, in cases with many."""

JOB = 100
"""Operations per blocking job, in cases with many."""

IN_FLIGHT = 1_000
"""Concurrent asks, in cases that are not sequential."""


def micros(began: float, operations: int) -> float:
    """Return the microseconds per operation since `began`."""
    return (perf_counter() - began) / operations * 1e6


def nothing(_message: object) -> None:
    """Handle a message."""


async def nothing_async(_message: object) -> None:
    """Handle a message without suspending."""


def nothing_each(items: tuple[int, ...]) -> None:
    """Handle a message of many items."""
    for item in items:
        nothing(item)


async def produce(tell: Callable[[int], object], messages: int, burst: int) -> None:
    """Send bursts, and yield after each."""
    for _ in range(messages // burst):
        for number in range(burst):
            tell(number)
        await asyncio.sleep(0)


async def produce_lots(tell: Callable[[tuple[int, ...]], object], items: int) -> None:
    """Send the same number of items as `produce` in few messages."""
    for _ in range(items // ITEMS):
        tell(tuple(range(ITEMS)))
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Yield until `condition` holds.

    Polling costs one turn of the loop at the end; an event would cost something per message.
    """
    while not condition():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0)


class Finish:
    """Set a future after a number of calls.

    It costs something per call, so use it only where the end is not visible from outside.
    """

    def __init__(self, calls: int) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = calls

    def __call__(self, _message: object = None) -> None:
        self._left -= 1
        if not self._left:
            self.reached.set_result(None)


class Player:
    """One end of a ping-pong: send the remaining hops to the other end."""

    def __init__(self, done: Callable[[], object]) -> None:
        self.tell: Callable[[int], object] = nothing
        self._done = done

    def play(self, left: int) -> None:
        """Return the ball."""
        if left:
            self.tell(left - 1)
        else:
            self._done()


@dataclass
class Stopwatch:
    """Measure from one place in the code to another."""

    began: float = 0.0
    took: float = 0.0

    def start(self) -> None:
        """Start the measurement."""
        self.began = perf_counter()

    def stopped(self) -> bool:
        """Return whether it has been stopped."""
        return self.took > 0

    def stop(self) -> None:
        """Store the microseconds since the start."""
        self.took = micros(self.began, 1)


async def from_thread(tell: Callable[[int], object], messages: int, finish: Finish) -> float:
    """Send messages from another thread, and wait until all are handled."""

    def send() -> None:
        for number in range(messages):
            tell(number)

    thread = threading.Thread(target=send)
    began = perf_counter()
    thread.start()
    await finish.reached
    took = micros(began, messages)
    thread.join()
    return took
