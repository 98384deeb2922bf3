"""A task in the background of a block."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run `work` beside the body of the `async with`; the end waits for it and raises its error.

    When the body fails, or is cancelled, the work is cancelled, and its error is dropped: one error
    is enough.
    """
    task = asyncio.create_task(work, name=name)
    try:
        yield
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
