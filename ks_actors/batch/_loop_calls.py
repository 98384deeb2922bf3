"""Blocking calls into another thread's event loop, which can be cancelled."""

from __future__ import annotations

import asyncio
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    InvalidStateError,
    wait,
)
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from ks_actors._errors import LogClosed

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
_LOOK_S: Final = 1.0
# A loop that has just been started may not run yet at the first check.
_LOOKS: Final = 2


@final
class GivenUp(LogClosed):
    """The caller has ended the calls."""


@final
class LoopCalls:
    """Run coroutines on a loop from other threads.

    A thread that waits for a stopped loop would wait for ever. So call `end` before you stop the
    loop: running calls are cancelled, and running and later calls raise GivenUp. Without `end`, the
    calls notice a stopped loop after a second or two.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended: Future[None] = Future()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result. Raises GivenUp when the calls have been ended."""
        if self._ended.done():
            work.close()
            raise GivenUp("the read was cancelled")
        future = self._start(work)
        self._wait(future)
        if not future.done():
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            raise GivenUp("the read was cancelled while it waited") from None

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Run the coroutine and wait for its end, but stop waiting once `end` has been called.

        The coroutine begins after those of all earlier calls, and is not cancelled by `end`. On a
        stopped loop it does not run.
        """
        try:
            future = self._start(work)
        except GivenUp:
            return
        self._wait(future)
        if future.done():
            future.result()

    def end(self) -> None:
        """Cancel the running calls, and refuse later calls."""
        with suppress(InvalidStateError):
            self._ended.set_result(None)

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # The loop is closed.
            work.close()
            raise GivenUp("the read was cancelled: its event loop has ended") from None

    def _wait(self, future: Future[Any]) -> None:
        """Wait until the future is done, the calls are ended, or the loop has stopped."""
        stopped = 0
        while stopped < _LOOKS:
            done, _ = wait((future, self._ended), timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if done:
                return
            stopped = 0 if self._loop.is_running() else stopped + 1
