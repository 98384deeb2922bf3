"""Window stores."""

from ks_actors.state.window._by_key import WindowsByKey
from ks_actors.state.window._by_start import WindowsByStart
from ks_actors.state.window._reader import DuplicatesReader, WindowReader
from ks_actors.state.window._store import (
    ByStartTimestampedWindowStore,
    ByStartWindowStore,
    ByStartWindowStoreWithHeaders,
    DuplicatesTimestampedWindowStore,
    DuplicatesWindowStore,
    SingleTimestampedWindowStore,
    SingleWindowStore,
    SingleWindowStoreWithHeaders,
    TimestampedWindowStore,
    WindowStore,
    WindowStoreWithHeaders,
    window_class,
)

__all__ = [
    "ByStartTimestampedWindowStore",
    "ByStartWindowStore",
    "ByStartWindowStoreWithHeaders",
    "DuplicatesReader",
    "DuplicatesTimestampedWindowStore",
    "DuplicatesWindowStore",
    "SingleTimestampedWindowStore",
    "SingleWindowStore",
    "SingleWindowStoreWithHeaders",
    "TimestampedWindowStore",
    "WindowReader",
    "WindowStore",
    "WindowStoreWithHeaders",
    "WindowsByKey",
    "WindowsByStart",
    "window_class",
]
