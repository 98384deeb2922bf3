"""Definitions of windows."""

from ks_actors.dsl.windows._calendar import CalendarWindows
from ks_actors.dsl.windows._custom import CheckedWindows, KnownWindows, Windows, checked_windows
from ks_actors.dsl.windows._emit import AT_EVERY_CHANGE, Emit, EmitStrategy, checked_emit
from ks_actors.dsl.windows._windows import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)

__all__ = [
    "AT_EVERY_CHANGE",
    "CalendarWindows",
    "CheckedWindows",
    "Emit",
    "EmitStrategy",
    "JoinWindows",
    "KnownWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Windows",
    "checked_emit",
    "checked_windows",
]
