"""Programs that end by a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_log = logging.getLogger("ks_actors")


async def until_signal(work: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """Do the work until it is done. The first SIGINT or SIGTERM cancels it, a second one calls `hurry`, a third one does what it does to any program.

    Raises what the work raises, unless that is the cancellation.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    signals = 0

    def count(number: signal.Signals) -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            task.cancel()
            return
        _log.warning("%s has come again: the program ends at once, without waiting for anything", number.name)
        _let_go(loop)
        hurry()

    for number in _NUMBERS:
        loop.add_signal_handler(number, count, number)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
    finally:
        _let_go(loop)


def _let_go(loop: asyncio.AbstractEventLoop) -> None:
    for number in _NUMBERS:
        loop.remove_signal_handler(number)
