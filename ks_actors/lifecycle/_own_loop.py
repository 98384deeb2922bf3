"""The event loop on which an object was started."""

from __future__ import annotations

import asyncio


def check_loop(loop: asyncio.AbstractEventLoop, of: str) -> None:
    """Raise RuntimeError unless `loop` runs in this thread: others must not use its objects."""
    try:
        found = asyncio.get_running_loop()
    except RuntimeError:
        found = None
    if found is not loop:
        raise RuntimeError(
            f"{of} runs on another event loop: call it there, from another thread by "
            "asyncio.run_coroutine_threadsafe(…, loop).result()"
        )
