"""The clocks of an app."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors import System


def wall_time(system: System) -> Callable[[], int]:
    """Return the wall clock, in ms since the epoch; in virtual time the actor system's own."""
    clock: Callable[[], int] | None = getattr(system, "wall_time_ms", None)
    return clock if clock is not None else lambda: time.time_ns() // 1_000_000


def work_time(system: System) -> Callable[[], float]:
    """Return the clock that measures work, in seconds; in virtual time the actor system's own."""
    found: Callable[[], float] = getattr(system, "work_time", time.perf_counter)
    return found


# On Linux CLOCK_MONOTONIC stops in sleep; on macOS it goes on, and there is no CLOCK_BOOTTIME.
# Windows has neither clock; its only monotonic clock goes on in sleep.
_ELAPSED: Final[int | None] = getattr(
    time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None)
)


def elapsed_time() -> float:
    """Return seconds of a monotonic clock that runs while the machine sleeps.

    Event loops use another clock. This clock tells whether processes on other machines, which did
    not sleep, may consider this process dead by now. If the system has no such clock, the returned
    time stands still during sleep.
    """
    return time.monotonic() if _ELAPSED is None else time.clock_gettime(_ELAPSED)


def steady_time(system: System) -> Callable[[], float]:
    """Return a monotonic clock in ms; in virtual time the actor system's own."""
    found: Callable[[], float] | None = getattr(system, "steady_time_ms", None)
    return found if found is not None else lambda: time.monotonic() * 1000
