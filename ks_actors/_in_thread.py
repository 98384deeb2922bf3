"""Work in a thread that is not left behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_thread(function: Callable[[], T], give_up: Callable[[], None] | None = None) -> T:
    """Run a function in a thread; when this is cancelled, it is told to `give_up` and waited for all the same: what it works on ends after that."""
    job = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        if give_up is not None:
            give_up()
        with suppress(Exception):
            await job
        raise
