"""Programs that a signal ends."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.lifecycle import component_log
from ks_actors.system import current_member

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_log = component_log(__name__)


async def until_signal(work: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """Run the work to its end, or until a signal.

    The first SIGINT or SIGTERM cancels it, a second one calls `hurry`, a third one ends the process
    at once. Raises errors of the work, except for the cancellation. The handlers stay until the
    event loop is closed. A second signal after the end of the work interrupts the closing.

    A member that its supervisor closes ignores the second SIGTERM: systemd sends SIGTERM to all
    processes of a unit, supervisor and members alike. A member whose work ends without a signal
    tells its supervisor, which starts it no more.
    """
    loop = asyncio.get_running_loop()
    signals = _Signals(loop, asyncio.ensure_future(work), hurry)
    for number in _NUMBERS:
        signals.heed(number)
    try:
        await signals.task
        if not signals.received and (member := current_member()) is not None:
            member.say("ended")
    except asyncio.CancelledError:
        if not signals.task.cancelled():
            raise
    finally:
        signals.received = 0


@final
class _Signals:
    """The signals that a program gets while it works, and then while its event loop is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        task: asyncio.Future[None],
        hurry: Callable[[], None],
    ) -> None:
        self.task: asyncio.Future[None] = task
        self.received: int = 0
        self._ignored = False
        self._loop = loop
        self._hurry = hurry

    def heed(self, number: signal.Signals) -> None:
        try:
            self._loop.add_signal_handler(number, self.count, number)
        except NotImplementedError:  # on Windows
            call = self._loop.call_soon_threadsafe
            signal.signal(number, lambda *_: call(self.count, number))

    def count(self, number: signal.Signals) -> None:
        member = current_member()
        asked = member is not None and member.asked
        if self.received and asked and not self._ignored and number is signal.SIGTERM:
            self._ignored = True
            return
        self.received += 1
        if self.received == 1:
            # No effect after the end of the work: the app is closed, and only the loop is still
            # open. An interrupt would leave its threads behind.
            self.task.cancel()
            return
        if member is not None:
            # A request of the supervisor that comes later must not end this process as a third
            # signal does.
            member.asked = True
        for each in _NUMBERS:
            with suppress(NotImplementedError):
                self._loop.remove_signal_handler(each)
            # Not a KeyboardInterrupt, whose traceback would show the loop.
            signal.signal(each, signal.SIG_DFL)
        if not self.task.done():
            _log.warning("second %s: the program ends at once, without a clean close", number.name)
            self._hurry()


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Restore the earlier signal handlers at the end."""
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            # A handler that was not set from Python cannot be restored.
            with suppress(TypeError):
                signal.signal(number, handler)
