"""Programs that end by a signal."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until it is done; SIGINT and SIGTERM cancel it. Raises what it raises, unless that is the cancellation."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
