"""Versions on their way into a changelog."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AT_ONCE: Final = 500_000
"""Rows that are put in order at once, besides those of one and the same time."""

_SLICE: Final = 1_000
_VERSION: Final = 8
_FOREVER: Final = 1 << 63


def by_time(rows: Callable[[], Iterator[Batch]], at_once: int = AT_ONCE) -> Iterator[Batch]:
    """Return the rows of a versioned store, which `rows` reads from the beginning each time, as records of its changelog, in the order of time.

    Whoever restores from a changelog takes time to be what it has read up to, and drops what is older than the history that is kept: so records may
    not be in the order of keys. Memory is bounded by `at_once`, and a number per row. All rows are read once for each `at_once` of them, and once
    more.
    """
    times = array("q")
    for batch in rows():
        times.extend([_since(each) for each in batch.timestamps])
    bounds = sorted(set(sorted(times)[::at_once]))
    for low, high in pairwise([*bounds, _FOREVER]):
        found = []
        for batch in rows():
            for key, value, told in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                if low <= (time := _since(told)) < high:
                    found.append((time, key[:-_VERSION], value if told >= 0 else None))
        found.sort(key=lambda row: row[:2])
        for start in range(0, len(found), _SLICE):
            part = found[start : start + _SLICE]
            yield Batch([key for _, key, _ in part], [value for _, _, value in part], [time for time, _, _ in part])


def _since(told: int) -> int:
    """Return since when a version is valid: its timestamp, which is less than 0 where there is no value."""
    return told if told >= 0 else -1 - told
