"""The steps of a start that a member process takes when its supervisor says so."""

from __future__ import annotations

import asyncio
from typing import Any

from ks_actors.system import current_member


async def admitted(step: str, **facts: Any) -> None:
    """Wait until the supervisor lets this process take a step; without one, return at once.

    `facts` are for the supervisor. When the supervisor dies, this process gets SIGTERM.
    """
    if (member := current_member()) is None:
        return
    loop = asyncio.get_running_loop()
    go = asyncio.Event()
    member.ask(step, lambda: loop.call_soon_threadsafe(go.set), **facts)
    await go.wait()
