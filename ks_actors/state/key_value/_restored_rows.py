"""Restored rows that wait for a write or a read."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import pack_times

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.state.core import EngineRow

ARRANGED: Final = 10_000
"""Slots of restored rows that are sorted in one go."""

RESTORED: Final = 500
"""Restored rows per write, about half a millisecond."""


class AnyRestoredRows(Protocol):
    """Restored rows in Python or in C; see `PlainRestoredRows`."""

    def __len__(self) -> int: ...
    def put(
        self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], /
    ) -> None: ...
    def take_over(self, other: Self, /) -> None: ...
    def get(self, key: bytes, default: Any, /) -> Any: ...
    def discard(self, key: bytes, /) -> None: ...
    def items(self) -> list[tuple[bytes, bytes | None]]: ...
    def arranged(self, count: int, /) -> bool: ...
    def rows(self, count: int, prefix: bytes, cut: int, /) -> list[tuple[bytes, bytes | None]]: ...
    def written(self, count: int, /) -> None: ...


class PlainRestoredRows:
    """The last changelog row of each key: its entry's bytes, None for a delete.

    The bytes of an entry are timestamp and value.
    """

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._rows)

    def __contains__(self, key: bytes) -> bool:
        """Return whether a key has a row."""
        return key in self._rows

    def put(self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], /) -> None:
        """Put rows, one after the other."""
        entries = [
            None if value is None else time + value
            for time, value in zip(pack_times(timestamps), values, strict=True)
        ]
        self._rows.update(zip(keys, entries, strict=True))

    def take_over(self, other: PlainRestoredRows, /) -> None:
        """Move all rows of another instance into this instance."""
        self._rows.update(other._rows)
        other._rows = {}

    def get(self, key: bytes, default: Any, /) -> Any:
        """Return the entry of a key, or `default`."""
        return self._rows.get(key, default)

    def discard(self, key: bytes, /) -> None:
        """Remove a row, if there is one."""
        self._rows.pop(key, None)

    def items(self) -> list[tuple[bytes, bytes | None]]:
        """Return keys and entries."""
        return list(self._rows.items())

    def arranged(self, count: int, /) -> bool:  # noqa: ARG002 - sorting all at once takes too long
        """Return True: no sorting is needed before rows are written."""
        return True

    def rows(self, count: int, prefix: bytes, cut: int, /) -> list[EngineRow]:
        """Return some rows in key order.

        Each key gets the prefix, and each entry loses its first `cut` bytes.
        """
        rows = sorted(islice(reversed(self._rows.items()), count))
        return [(prefix + key, None if raw is None else raw[cut:]) for key, raw in rows]

    def written(self, count: int, /) -> None:
        """Remove the last `count` rows that `rows` returned."""
        for _ in range(count):
            self._rows.popitem()


RestoredRows: Final[Callable[[], AnyRestoredRows]] = (
    _kernel.RestoredRows if HAS_KERNEL else PlainRestoredRows
)
"""The implementation in C if there is a kernel, else PlainRestoredRows.

The C code takes far less memory, and writes rows in the order of all keys.
"""
