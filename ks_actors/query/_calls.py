"""Reads of one partition of a store, as calls of its reader that can also be sent as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

NO_KEY: Final = object()
"""The key of a call that is about many keys."""


class Keys(Protocol):
    """The bytes of keys: those of a reader, or those of a caller on another machine."""

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key."""
        ...

    def bounds(self, low: Any, high: Any) -> tuple[bytes, bytes]:
        """Return the range of the keys from `low` to `high`, both included."""
        ...

    def prefix_bounds(
        self, prefix: Any, serializer: Callable[[Any], bytes] | None
    ) -> tuple[bytes, bytes]:
        """Return the range of the keys with a prefix."""
        ...


class Call:
    """A call of a reader's method by its `name`, with a key unless it is NO_KEY, and times.

    `reverse` is None for methods without an order.
    """

    __slots__ = ("committed", "key", "name", "reverse", "times")

    def __init__(
        self,
        name: str,
        key: Any,
        times: tuple[Any, ...],
        committed: bool,
        *,
        reverse: bool | None = None,
    ) -> None:
        self.name: str = name
        self.key: Any = key
        self.times: tuple[Any, ...] = times
        self.committed: bool = committed
        self.reverse: bool | None = reverse

    def __call__(self, reader: Any) -> Any:
        """Return the reader's answer."""
        method = getattr(reader, self.name)
        given = self.times if self.key is NO_KEY else (self.key, *self.times)
        if self.reverse is None:
            return method(*given, committed=self.committed)
        return method(*given, committed=self.committed, reverse=self.reverse)

    def range_of(self, keys: Keys) -> tuple[bytes, bytes] | None:  # noqa: ARG002 - has none
        """Return the range of key bytes; None if the call has no range."""
        return None


class Bounded(Call):
    """A call about a range of key bytes, which `bounds` makes of the keys."""

    __slots__ = ("_bounds",)

    def __init__(
        self,
        name: str,
        bounds: Callable[[Any], tuple[bytes, bytes]],
        times: tuple[Any, ...],
        committed: bool,
        *,
        reverse: bool = False,
    ) -> None:
        super().__init__(name, NO_KEY, times, committed, reverse=reverse)
        self._bounds = bounds

    def __call__(self, reader: Any) -> Any:
        """Return the reader's rows."""
        method, found = getattr(reader, self.name), self._bounds(reader)
        given = found if self.name == "scan" else (found, *self.times)
        return method(*given, committed=self.committed, reverse=self.reverse)

    def range_of(self, keys: Keys) -> tuple[bytes, bytes]:
        """Return the range of key bytes."""
        return self._bounds(keys)
