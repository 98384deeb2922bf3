"""What was restored of a store, and waits to be written or asked for."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import pack_times

if TYPE_CHECKING:
    from ks_actors.state.disk import Row

ARRANGED: Final = 10_000
"""Places for restored rows that are looked at in one go."""

RESTORED: Final = 500
"""Restored rows that are written in one go, about half a millisecond."""


class PlainRestoredRows:
    """Rows of a changelog, the last one of each key: its entry's bytes (timestamp and value), None where it deletes."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self._rows)

    def __contains__(self, key: bytes) -> bool:
        """Return whether there is a row of a key."""
        return key in self._rows

    def put(self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], /) -> None:
        """Put rows, one after the other."""
        entries = [None if value is None else time + value for time, value in zip(pack_times(timestamps), values, strict=True)]
        self._rows.update(zip(keys, entries, strict=True))

    def take_over(self, other: PlainRestoredRows, /) -> None:
        """Put all rows of another one, which is empty then."""
        self._rows.update(other._rows)
        other._rows = {}

    def get(self, key: bytes, default: Any, /) -> Any:
        """Return the entry of a key, or `default`."""
        return self._rows.get(key, default)

    def discard(self, key: bytes, /) -> None:
        """Take out a row, if there is one."""
        self._rows.pop(key, None)

    def items(self) -> list[tuple[bytes, bytes | None]]:
        """Return keys and entries."""
        return list(self._rows.items())

    def arranged(self, count: int, /) -> bool:  # noqa: ARG002 - to sort all would take too long in one go
        """Return that no order has to be made before rows are written."""
        return True

    def rows(self, count: int, prefix: bytes, cut: int, /) -> list[Row]:
        """Return some rows in the order of their keys, with a prefix in front, and without the first bytes of their entries."""
        rows = sorted(islice(reversed(self._rows.items()), count))
        return [(prefix + key, None if raw is None else raw[cut:]) for key, raw in rows]

    def written(self, count: int, /) -> None:
        """Take out so many rows, those that `rows` has returned."""
        for _ in range(count):
            self._rows.popitem()


RestoredRows: Final[Any] = PlainRestoredRows if _kernel is None else _kernel.RestoredRows
"""The same in C, where there is the kernel: far less memory, and rows are written in the order of all keys."""
