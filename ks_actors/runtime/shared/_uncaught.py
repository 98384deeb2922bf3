"""What an app is to do about an error that nothing else has dealt with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias


class UncaughtResponse(Enum):
    """The decision of an uncaught exception handler.

    REPLACE_WORKER starts another worker; the work since the last commit is done again. LOSE_WORKER goes on with the workers that are left; the app
    ends
    in ERROR when there is none. SHUTDOWN_CLIENT, the default, closes the app, which ends in ERROR.
    """

    REPLACE_WORKER = "REPLACE_WORKER"
    LOSE_WORKER = "LOSE_WORKER"
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"


UncaughtHandler: TypeAlias = Callable[[Exception], "UncaughtResponse | Awaitable[UncaughtResponse]"]


def shut_down(error: Exception, /) -> UncaughtResponse:  # noqa: ARG001 - what a handler is given
    """Close the app: what happens unless the user says otherwise."""
    return UncaughtResponse.SHUTDOWN_CLIENT
