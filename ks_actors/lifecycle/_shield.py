"""Work that is not left behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def shielded(work: Awaitable[T], give_up: Callable[[], None] | None = None) -> T:
    """Wait for work to its end also when cancelled, which is raised behind it; it is told to `give_up` then. Cancelled twice, it is cancelled."""
    job = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        if give_up is not None:
            give_up()
        with suppress(Exception):
            await job
        raise


async def run_in_thread(function: Callable[[], T], give_up: Callable[[], None] | None = None) -> T:
    """Run a function in a thread; when this is cancelled, it is told to `give_up` and waited for all the same: what it works on ends after that."""
    return await shielded(asyncio.to_thread(function), give_up)
