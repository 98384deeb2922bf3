"""The serdes of keys of windowed aggregates."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar, final

from ks_actors._errors import SerializationError, TopologyError
from ks_actors.records import Window, Windowed, window_at
from ks_actors.serdes._defaults import with_default
from ks_actors.serdes._of_type import inner_serde
from ks_actors.serdes._serde import Serde

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import CustomWindows
    from ks_actors.serdes._of_type import SerdeOrType

K = TypeVar("K")
START = struct.Struct(">q")
ENDS = struct.Struct(">qq")
LAST_INSTANT = (1 << 63) - 1
_FEW = 1_000
"""The most windows to remember before they are cleared."""


def windowed(inner: SerdeOrType[K], windows: int | CustomWindows) -> Serde[Windowed[K]]:
    """Return the serde of windowed keys.

    It writes the key with `inner`, then the window's start in ms (8 bytes, big-endian). The
    window's end is not written: it is computed by `windows`. `windows` is the size of all windows
    in ms, or CalendarWindows or CustomWindows. The end is at most the last possible instant.
    """
    given: Any = windows
    checked = inner_serde(inner, "windowed")
    if hasattr(given, "windows_for") and not isinstance(given, type):
        return CustomWindowedSerde(checked, given)
    if not isinstance(given, int) or isinstance(given, bool):
        raise TopologyError(
            f"windows of windowed is {given!r}: give the windows' size in ms as an int, or "
            "CalendarWindows or CustomWindows"
        )
    return WindowedSerde(checked, given)


def session_windowed(inner: SerdeOrType[K]) -> Serde[Windowed[K]]:
    """Return the serde of keys with sessions.

    It writes the key with `inner`, then the session's end and its start in ms (8 bytes each,
    big-endian).
    """
    return SessionWindowedSerde(inner_serde(inner, "session_windowed"))


class WindowedKeySerde(Serde[Windowed[K]]):
    """A serde that writes `window_bytes` after the key: records are partitioned by the key alone.

    `inner` None is set later, by `or_default`.
    """

    window_bytes: int
    inner: Serde[K] | None

    def _known_serde(self) -> Serde[K]:
        if self.inner is None:
            raise SerializationError(
                "the keys of windows have no serde: give it where the stream is grouped, or set "
                "the app's default serdes"
            )
        return self.inner


@final
class WindowedSerde(WindowedKeySerde[K]):
    """The serde of keys in windows of one size."""

    # Never faithful: windows of one start and different ends have the same bytes.

    window_bytes: int = START.size

    def __init__(self, inner: Serde[K] | None, window_size_ms: int) -> None:
        if window_size_ms <= 0:
            raise ValueError(f"a window lasts at least 1 ms, window_size_ms is {window_size_ms}")
        self.immutable: bool = inner is not None and inner.immutable
        self.inner: Serde[K] | None = inner
        self._size: int = window_size_ms

    def or_default(self, default: Serde[Any] | None) -> Serde[Any]:
        """Return this serde, or one with the app's default if the serde of keys is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else WindowedSerde(inner, self._size)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[Windowed[K]], bytes]:
        """Return the function for `topic`, which calls that of the inner serde."""
        return _with_start(self._known_serde(), topic, is_key=is_key)

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], Windowed[K]]:
        """Return the function for `topic`, which calls that of the inner serde."""
        key, size, unpack = (
            self._known_serde().deserializer(topic, is_key=is_key),
            self._size,
            START.unpack,
        )
        # Make named tuples by tuple's constructor: their own takes as long as everything else here.
        new = tuple.__new__

        def deserialize(data: bytes) -> Windowed[K]:
            try:
                (start,) = unpack(data[-8:])
            except struct.error:
                raise _too_short(data) from None
            end = start + size
            return new(Windowed, (key(data[:-8]), new(Window, (start, min(end, LAST_INSTANT)))))

        return deserialize

    def __repr__(self) -> str:
        return f"<Serde windowed({self.inner!r}, {self._size})>"


@final
class CustomWindowedSerde(WindowedKeySerde[K]):
    """The serde of keys in windows that compute their ends from their starts."""

    window_bytes: int = START.size

    def __init__(self, inner: Serde[K] | None, windows: CustomWindows) -> None:
        self.immutable: bool = inner is not None and inner.immutable
        self.inner: Serde[K] | None = inner
        self._windows: CustomWindows = windows

    def or_default(self, default: Serde[Any] | None) -> Serde[Any]:
        """Return this serde, or one with the app's default if the serde of keys is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else CustomWindowedSerde(inner, self._windows)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[Windowed[K]], bytes]:
        """Return the function for `topic`, which calls that of the inner serde."""
        return _with_start(self._known_serde(), topic, is_key=is_key)

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], Windowed[K]]:
        """Return the function for `topic`, which calls that of the inner serde."""
        key, windows = self._known_serde().deserializer(topic, is_key=is_key), self._windows
        known: dict[bytes, Window] = {}

        def deserialize(data: bytes) -> Windowed[K]:
            window = known.get(data[-8:])
            if window is None:
                if len(data) < START.size:
                    raise _too_short(data)
                start, end = window_at(windows, *START.unpack(data[-8:]))
                if len(known) >= _FEW:
                    known.clear()
                window = known[data[-8:]] = Window(start, min(end, LAST_INSTANT))
            return Windowed(key(data[:-8]), window)

        return deserialize

    def __repr__(self) -> str:
        return f"<Serde windowed({self.inner!r}, {self._windows!r})>"


@final
class SessionWindowedSerde(WindowedKeySerde[K]):
    """The serde of keys with sessions."""

    window_bytes: int = ENDS.size

    def __init__(self, inner: Serde[K] | None) -> None:
        self.faithful: bool = inner is not None and inner.faithful
        self.immutable: bool = inner is not None and inner.immutable
        self.inner: Serde[K] | None = inner

    def or_default(self, default: Serde[Any] | None) -> Serde[Any]:
        """Return this serde, or one with the app's default if the serde of keys is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else SessionWindowedSerde(inner)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[Windowed[K]], bytes]:
        """Return the function for `topic`, which calls that of the inner serde."""
        key, ends = self._known_serde().serializer(topic, is_key=is_key), ENDS.pack

        def serialize(value: Windowed[K]) -> bytes:
            start, end = value[1]
            return key(value[0]) + ends(end, start)

        return serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], Windowed[K]]:
        """Return the function for `topic`, which calls that of the inner serde."""
        key, unpack = self._known_serde().deserializer(topic, is_key=is_key), ENDS.unpack
        new = tuple.__new__

        def deserialize(data: bytes) -> Windowed[K]:
            try:
                end, start = unpack(data[-16:])
            except struct.error:
                raise SerializationError(
                    f"a key with a session ends with two times of 8 bytes, got {len(data)} "
                    f"in all: {data!r}"
                ) from None
            return new(Windowed, (key(data[:-16]), new(Window, (start, end))))

        return deserialize

    def __repr__(self) -> str:
        return f"<Serde session_windowed({self.inner!r})>"


def _with_start(inner: Serde[K], topic: str, *, is_key: bool) -> Callable[[Windowed[K]], bytes]:
    key, start = inner.serializer(topic, is_key=is_key), START.pack

    def serialize(value: Windowed[K]) -> bytes:
        return key(value[0]) + start(value[1][0])

    return serialize


def _too_short(data: bytes) -> SerializationError:
    return SerializationError(
        f"a windowed key ends with a time of 8 bytes, got {len(data)} in all: {data!r}"
    )
