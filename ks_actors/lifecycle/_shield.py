"""Awaits that run to completion even when cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ks_actors.lifecycle._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def shielded(work: Awaitable[T], give_up: Callable[[], None] | None = None) -> T:
    """Await work to completion even when cancelled, then raise the cancellation.

    The first cancellation calls `give_up`, a second cancellation cancels the work.
    """
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
    """Run a function in a thread; when cancelled, call `give_up` and still wait for it.

    So the resources that the function uses are closed only after its end.
    """
    return await shielded(in_thread(function), give_up)
