"""What is waited for is told when it takes long."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")
_SECONDS: Final = 10.0
_log = logging.getLogger("ks_actors")


async def patiently(who: str, what: str, work: Awaitable[T]) -> T:
    """Await something that has a deadline, or none; after ten seconds say in the log who waits for what."""
    told = asyncio.get_running_loop().call_later(_SECONDS, _log.warning, "%s waits for %s, for %g s by now", who, what, _SECONDS)
    try:
        return await work
    finally:
        told.cancel()
