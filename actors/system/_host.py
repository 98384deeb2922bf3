"""The task that runs a system's block, and its interruption."""

from __future__ import annotations

import asyncio


class Host:
    """Cancel the block's body when the system fails, as asyncio.timeout does.

    A cancellation from elsewhere is not mistaken for the host's own cancellation.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0
        self._interrupted = False
        self.leaving: bool = False

    def interrupt(self) -> None:
        """Cancel the body, once, unless it is over."""
        if not self._interrupted and not self.leaving and self._task is not None:
            self._interrupted = True
            self._task.cancel()

    def leave(self, error: BaseException | None) -> bool:
        """Mark the body as over; return whether `error` is only this object's own cancellation."""
        self.leaving = True
        if not self._interrupted or self._task is None:
            return False
        return self._task.uncancel() <= self._before and isinstance(error, asyncio.CancelledError)
