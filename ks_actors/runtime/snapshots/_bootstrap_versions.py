"""The rows of a versioned store, put in time order for its changelog."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AT_ONCE: Final = 500_000
"""Number of rows to sort at a time; rows with equal times are never split."""

_SLICE: Final = 1_000
_VERSION: Final = 8
_FOREVER: Final = 1 << 63


def by_time(rows: Callable[[], Iterator[Batch]], at_once: int = AT_ONCE) -> Iterator[Batch]:
    """Yield the rows of a versioned store as changelog records, in time order.

    `rows` returns a new iterator over all rows at each call. Restoring takes the latest time read
    as the stream time and drops rows older than the retained history, so key order would lose rows.
    Memory is bounded by `at_once` rows and one number per row. All rows are read once, and then
    once more for every `at_once` rows.
    """
    times = array("q")
    for batch in rows():
        times.extend([_since(each) for each in batch.timestamps])
    bounds = sorted(set(sorted(times)[::at_once]))
    for low, high in pairwise([*bounds, _FOREVER]):
        found = []
        for batch in rows():
            for key, value, stamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                if low <= (time := _since(stamp)) < high:
                    found.append((time, key[:-_VERSION], value if stamp >= 0 else None))
        found.sort(key=lambda row: row[:2])
        for start in range(0, len(found), _SLICE):
            part = found[start : start + _SLICE]
            yield Batch(
                [key for _, key, _ in part],
                [value for _, _, value in part],
                [time for time, _, _ in part],
            )


def _since(stamp: int) -> int:
    """Return the start of a version's validity; for a deletion, a timestamp below 0 encodes it."""
    return stamp if stamp >= 0 else -1 - stamp
