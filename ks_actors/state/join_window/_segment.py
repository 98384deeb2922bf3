"""The rows of a store with duplicates in one time range, as columns in the order of puts."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_PLACES: Final[tuple[int, ...]] = ()
SHARED: Final = 1 << 17
_shared: Final[list[int]] = []


def _numbers(first: int, end: int) -> list[int]:
    """Return a range of numbers; all segments share the objects of small ones.

    Sharing saves memory, because an int object is larger than its slot in a list.
    """
    if end > SHARED:
        return list(range(first, end))
    if end > len(_shared):
        _shared.extend(range(len(_shared), end))
    return _shared[first:end]


@final
class Raw(bytes):
    """A value as its serde wrote it, in place of the object."""

    __slots__ = ()


@final
class Segment:
    """The rows of one time range.

    Rows are only appended, and removed from the end by a rollback. So three numbers mark the
    written, committed and frozen rows:

        0 ≤ written ≤ committed ≤ frozen ≤ rows        the next write reaches up to `goal`

    `index` has for each key the place of its only row, or a list of its places. The list is sorted
    by start, then by order of puts.
    """

    __slots__ = (
        "committed",
        "frozen",
        "goal",
        "index",
        "keys",
        "number",
        "plain",
        "sequences",
        "starts",
        "times",
        "values",
        "written",
    )

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.index: dict[Any, int | list[int]] = {}
        self.keys: list[Any] = []
        self.starts: array[int] = array("q")
        self.sequences: array[int] = array("i")
        self.values: list[Any] = []
        self.times: array[int] = array("q")
        self.plain: bool = True  # whether all values are objects
        self.committed: int = 0
        self.frozen: int = 0
        self.written: int = 0
        self.goal: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def add(self, key: Any, start: int, sequence: int, value: Any, time: int) -> int:
        """Add a row; return its place.

        Lookups skip a row without value: it exists for the changelog alone.
        """
        place = len(self.values)
        self.plain = self.plain and type(value) is not Raw
        self.keys.append(key)
        self.starts.append(start)
        self.sequences.append(sequence)
        self.values.append(value)
        self.times.append(time)
        # Most keys have one row: a number instead of a list saves most of the index's memory.
        if value is not None and self.index.setdefault(key, place) != place:
            self.gather(key, place)
        return place

    def add_all(
        self, keys: list[Any], starts: list[int], sequences: Iterable[int], values: list[Any]
    ) -> None:
        """Add rows with their starts as times; no value is None."""
        base = len(self.values)
        places = _numbers(base, base + len(keys))
        self.keys += keys
        self.starts.extend(starts)
        self.sequences.extend(sequences)
        self.values += values
        self.times.extend(starts)
        if HAS_KERNEL:
            for place in _kernel.add_places(self.index, self.keys, self.starts, base, places):
                self.gather(self.keys[place], place)
            return
        # In one call without a Python loop; only keys that had a row before need more work.
        found = list(map(self.index.setdefault, keys, places))
        if found != places:
            for place, was in enumerate(found, base):
                if was != place:
                    self.gather(keys[place - base], place)

    def replace(self, place: int, value: Any, time: int) -> None:
        """Replace the value and time of a row."""
        self.values[place], self.times[place] = value, time
        self.plain = self.plain and type(value) is not Raw
        # The disk has the old value: the next write begins with this row again.
        self.written = min(self.written, place)

    def columns(self, end: int) -> tuple[Iterable[Any], ...]:
        """Return keys, starts, sequence numbers, values and times up to `end`, for a later read."""
        return (
            self.keys[:end],
            self.starts[:end],
            self.sequences[:end],
            self.values[:end],
            self.times[:end],
        )

    def gather(self, key: Any, place: int) -> None:
        """Add a row to the places of a key that already has rows."""
        starts, places = self.starts, self.index[key]
        # All rows of a key share one key object.
        first = places if type(places) is int else places[0]  # type: ignore[index]
        self.keys[place] = self.keys[first]
        if type(places) is int:
            self.index[key] = (
                [places, place] if starts[places] <= starts[place] else [place, places]
            )
            return
        assert type(places) is list
        if starts[places[-1]] <= starts[place]:
            places.append(place)
        else:
            insort(places, place, key=starts.__getitem__)

    def places(self, key: Any, first: int, last: int) -> tuple[int, ...] | list[int]:
        """Return the places of a key's rows in a time range, sorted by start.

        The range is from `first` to `last`, both included.
        """
        found = self.index.get(key)
        if found is None:
            return NO_PLACES
        if type(found) is int:
            return (found,) if first <= self.starts[found] <= last else NO_PLACES
        assert type(found) is list
        at = self.starts.__getitem__
        return found[bisect_left(found, first, key=at) : bisect_right(found, last, key=at)]

    def roll_back(self) -> int:
        """Remove all uncommitted rows; return how many."""
        left, index = self.committed, self.index
        # Only the keys of removed rows change: the others keep their places.
        for key in set(self.keys[left:]):
            places = index.get(key)
            if type(places) is list:
                places = index[key] = [place for place in places if place < left]
                if not places:
                    del index[key]
            elif type(places) is int and places >= left:
                del index[key]
        count = len(self.values) - left
        self._cut(left)
        self.frozen = left
        return count

    def _cut(self, left: int) -> None:
        del (
            self.keys[left:],
            self.starts[left:],
            self.sequences[left:],
            self.values[left:],
            self.times[left:],
        )

    def release(self, count: int) -> int:
        """Free some rows of an expired segment; return how many.

        Freeing all at once would take long.
        """
        index, left = self.index, max(0, len(self.values) - count)
        count = len(self.values) - left
        # In any order: no lookup searches an expired segment.
        for _ in range(min(count, len(index))):
            index.popitem()
        self._cut(left)
        return count
