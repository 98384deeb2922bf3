"""Programs that a signal ends."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_log = component_log(__name__)


async def until_signal(work: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """Run the work to its end, or until a signal.

    The first SIGINT or SIGTERM cancels it, a second one calls `hurry`, a third one has its default
    effect. Raises errors of the work, except for the cancellation.
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
        _log.warning("second %s: the program ends at once, without a clean close", number.name)
        _remove_handlers(loop)
        hurry()

    for number in _NUMBERS:
        loop.add_signal_handler(number, count, number)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
    finally:
        _remove_handlers(loop)


def _remove_handlers(loop: asyncio.AbstractEventLoop) -> None:
    for number in _NUMBERS:
        loop.remove_signal_handler(number)
