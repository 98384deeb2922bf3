"""The event loop of a program that is one app, or of a test."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory, where it is installed; None for Python's own."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


def refuse_running_loop(*, of: str, remedy: str) -> None:
    """Raise RuntimeError if an event loop runs in this thread, before another loop is made."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{of} makes an event loop of its own, but one runs here already, as in a notebook or in "
        f"an asynchronous test: {remedy}"
    )


def refuse_other_threads(*, of: str, remedy: str) -> None:
    """Raise RuntimeError outside of the main thread: only that thread may handle signals."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            f"{of} handles signals, which only the main thread may: in a thread, use {remedy}"
        )
