"""Window stores."""

from ks_actors.state.window._reader import DuplicatesReader, WindowReader
from ks_actors.state.window._store import (
    TimestampedWindowStore,
    WindowStore,
    WindowStoreWithHeaders,
    window_store,
)

__all__ = [
    "DuplicatesReader",
    "TimestampedWindowStore",
    "WindowReader",
    "WindowStore",
    "WindowStoreWithHeaders",
    "window_store",
]
