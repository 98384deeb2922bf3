"""Waits of tests, with one patience for all of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, TypeVar

from actors.testing import VirtualLoop

T = TypeVar("T")

# Generous: only a test that fails waits for so long, also on a machine that is many times slower.
PATIENCE_S: Final = 120
# Longer than a busy machine keeps heartbeats from the processor, for tests that wait for the end of a session.
SESSION_MS: Final = 3_000
# Waits begin with looks that are close together, as most are over soon; looks that go on for long would take the CPU from what they wait for.
REST_S: Final = 0.002
_MOST_REST_S: Final = 0.01
_GROWTH: Final = 1.05


async def until(condition: Callable[[], object], what: str = "", *, within: float = PATIENCE_S) -> float:
    """Wait until a condition holds, whose answer may be an awaitable; after all patience fail with `what`, or with the condition's source.

    Return the seconds of its rests: a real loop rests between its looks, so that brokers, threads and the app have the processor. A virtual one takes
    turns: a rest would move time.
    """
    rest, rested = 0.0 if isinstance(asyncio.get_running_loop(), VirtualLoop) else REST_S, 0.0
    end = monotonic() + within
    try:
        async with asyncio.timeout(within):
            while not (await found if inspect.isawaitable(found := condition()) else found):
                if monotonic() > end:  # virtual time stands still
                    raise TimeoutError
                await asyncio.sleep(rest)
                rested += rest
                rest = min(rest * _GROWTH, _MOST_REST_S)
    except TimeoutError as error:
        raise AssertionError(f"not within {within:g} s: {what or inspect.getsource(condition).strip()}") from error
    return rested


async def soon(awaitable: Awaitable[T]) -> T:
    """Wait for a result, but not for ever."""
    return await asyncio.wait_for(awaitable, PATIENCE_S)
