"""Window stores."""

from ks_actors.state.window._by_key import WindowsByKey
from ks_actors.state.window._by_start import WindowsByStart
from ks_actors.state.window._reader import DuplicatesReader, WindowReader
from ks_actors.state.window._store import (
    ByStartTimestampedWindowStore,
    ByStartWindowStore,
    DuplicatesTimestampedWindowStore,
    DuplicatesWindowStore,
    SingleTimestampedWindowStore,
    SingleWindowStore,
    TimestampedWindowStore,
    WindowStore,
    window_class,
)

__all__ = [
    "ByStartTimestampedWindowStore",
    "ByStartWindowStore",
    "DuplicatesReader",
    "DuplicatesTimestampedWindowStore",
    "DuplicatesWindowStore",
    "SingleTimestampedWindowStore",
    "SingleWindowStore",
    "TimestampedWindowStore",
    "WindowReader",
    "WindowStore",
    "WindowsByKey",
    "WindowsByStart",
    "window_class",
]
