"""Blocking calls of another thread's event loop, which can be given up."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar, final

from ks_actors._errors import LogClosed

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

T = TypeVar("T")


@final
class LoopCalls:
    """Run coroutines on a loop from other threads.

    A thread that waits for a loop which has stopped would wait for ever. So end the calls before
    you stop the loop: those under way are cancelled, and they and all later ones raise LogClosed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._ended = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result. Raises LogClosed when the calls have been ended."""
        with self._lock:
            if self._ended:
                work.close()
                raise LogClosed("the read was given up")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._under_way.add(future)
        try:
            return future.result()
        except CancelledError:
            raise LogClosed("the read was given up meanwhile") from None
        finally:
            self._under_way.discard(future)

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Run the coroutine; when the calls have been ended, start it and do not wait for it."""
        with self._lock:
            ended = self._ended
            if ended and self._loop.is_running():
                asyncio.run_coroutine_threadsafe(work, self._loop)
                return
        if ended:
            work.close()
        else:
            self.run(work)

    def end(self) -> None:
        """Cancel the calls under way, and refuse later ones."""
        with self._lock:
            self._ended = True
            under_way = tuple(self._under_way)
        for future in under_way:
            future.cancel()
