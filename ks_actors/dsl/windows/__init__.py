"""Definitions of windows, and the partitioner of windowed keys."""

from ks_actors.dsl.windows._windowed_partitioner import default_partitioner
from ks_actors.dsl.windows._windows import (
    AT_EVERY_CHANGE,
    Emit,
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
    check_windows,
    checked_emit,
)

__all__ = [
    "AT_EVERY_CHANGE",
    "Emit",
    "EmitStrategy",
    "JoinWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Windows",
    "check_windows",
    "checked_emit",
    "default_partitioner",
]
