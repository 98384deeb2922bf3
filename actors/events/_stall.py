"""Detection of a blocked event loop."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import traceback
from time import perf_counter
from typing import TYPE_CHECKING, Final

from actors.events._events import Stalled
from actors.events._place import place_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from actors.actor import Cell
    from actors.system import SystemCore

# Under uvloop a callback without a frame, such as `time.sleep`, looks like waiting.
_LOOKS_PER_PING: Final = 20


class StallDetector:
    """Ping the loop periodically from a thread; if it is late, find the running actor.

    Unlike a measurement afterwards, this finds a handler that never returns, its current line, and
    its actor. It costs nothing per message, and one wake-up of the loop per period; a loop that
    waits for events at that moment is not woken, except in each 20th period.
    """

    def __init__(self, core: SystemCore, cells: Callable[[], list[Cell]], seconds: float) -> None:
        self._core = core
        self._cells = cells
        self._seconds = seconds
        self._signs: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="actors-stall-detector", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, whatever it waits for."""
        self._closed.set()
        self._signs.put(False)
        self._thread.join()

    def _run(self) -> None:
        alive, looks = True, 0
        while alive and not self._closed.wait(self._seconds):
            looks += 1
            if looks % _LOOKS_PER_PING and _waits(self._frame()):
                continue
            began = perf_counter()
            self._core.doorbell.ring(lambda: self._signs.put(True))
            try:
                alive = self._signs.get(timeout=self._seconds)
            except queue.Empty:
                path, message, stack, place = self._look()
                alive = self._sign()
                if alive:
                    seconds = perf_counter() - began
                    self._core.publish(Stalled(path, message, seconds, stack, place))

    def _sign(self) -> bool:
        """Wait for the loop without a limit; return False when it is closed."""
        while not self._core.loop.is_closed():
            try:
                return self._signs.get(timeout=self._seconds)
            except queue.Empty:
                continue
        return False

    def _frame(self) -> FrameType | None:
        """Return the current frame of the loop's thread; None when it has ended."""
        return sys._current_frames().get(self._core.thread)  # noqa: SLF001 - no public way

    def _look(self) -> tuple[str, object, str, str]:
        frame = self._frame()
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        place = place_in(frame)
        # Read without a lock: the loop is in the same handler as long as it is blocked.
        task = asyncio.current_task(self._core.loop)
        for cell in self._cells() if task is not None else ():
            if getattr(cell, "task", None) is task:
                return cell.path, cell.current, stack, place
        return "", None, stack, place


def _waits(frame: FrameType | None) -> bool:
    """Return whether a loop's thread waits for events there.

    uvloop's own functions have no frames, so the caller's frame is the last frame. Other code, such
    as `subprocess`, also waits in selectors.
    """
    if frame is None:
        return False
    if (_module(frame), frame.f_code.co_name) == ("selectors", "select"):
        return frame.f_back is not None and _module(frame.f_back) == "asyncio.base_events"
    return (_module(frame), frame.f_code.co_name) == ("asyncio.runners", "run")


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
