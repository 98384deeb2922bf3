"""Decisions about uncaught errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias


class UncaughtResponse(Enum):
    """The decision of an uncaught exception handler.

    REPLACE_WORKER starts another worker and redoes the work since the last commit. LOSE_WORKER
    continues with the remaining workers; the app ends in ERROR without any. SHUTDOWN_CLIENT, the
    default, closes the app, which ends in ERROR.
    """

    REPLACE_WORKER = "REPLACE_WORKER"
    LOSE_WORKER = "LOSE_WORKER"
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"


UncaughtHandler: TypeAlias = Callable[[Exception], "UncaughtResponse | Awaitable[UncaughtResponse]"]


def shut_down(error: Exception, /) -> UncaughtResponse:  # noqa: ARG001 - what a handler is given
    """Close the app: the default."""
    return UncaughtResponse.SHUTDOWN_CLIENT
