"""What an app tells time by."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors import System


def wall_time(system: System) -> Callable[[], int]:
    """Return the clock, in ms since the epoch: the system's own where that is virtual."""
    clock: Callable[[], int] | None = getattr(system, "wall_time_ms", None)
    return clock if clock is not None else lambda: time.time_ns() // 1_000_000


def work_time(system: System) -> Callable[[], float]:
    """Return what slices of work are measured by, in seconds: the system's own where time is virtual."""
    found: Callable[[], float] = getattr(system, "work_time", time.perf_counter)
    return found
