"""A segment of rows that are bytes in the kernel's memory.

The bytes take two fifths of the memory that objects take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ks_actors.state.join_window._segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ks_actors.kernel import Rows
    from ks_actors.state.core import Codec, Entry

STEP: Final = 1_000
"""The number of rows converted to objects at a time while a column is iterated."""

KEY, START, SEQUENCE, VALUE, TIME, CONTENT = range(6)


@final
class Column:
    """One column of packed rows with the reading part of a list's interface.

    It keeps the rows in memory.
    """

    __slots__ = ("_end", "_rows", "_which")

    def __init__(self, rows: Rows, which: int, end: int | None = None) -> None:
        self._rows: Rows = rows
        self._which: int = which
        self._end: int | None = end

    def __getitem__(self, place: int) -> Any:
        return self._rows.column(self._which, place, place + 1)[0]

    def __iter__(self) -> Iterator[Any]:
        end = len(self._rows) if self._end is None else self._end
        for first in range(0, end, STEP):
            yield from self._rows.column(self._which, first, min(first + STEP, end))


@final
class PackedSegment:
    """The rows of one time range, with str or bytes as keys and values.

    Otherwise it is like `Segment`. `new` allocates the memory of the rows.
    """

    __slots__ = ("_new", "committed", "frozen", "goal", "number", "rows", "written")

    def __init__(self, number: int, new: Callable[[], Rows]) -> None:
        self.number: int = number
        self.committed: int = 0
        self.frozen: int = 0
        self.written: int = 0
        self.goal: int = 0
        self._new: Callable[[], Rows] = new
        self.rows: Rows = new()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> Column:
        """The dict keys."""
        return Column(self.rows, KEY)

    @property
    def starts(self) -> Column:
        """The starts (ms)."""
        return Column(self.rows, START)

    @property
    def sequences(self) -> Column:
        """The sequence numbers."""
        return Column(self.rows, SEQUENCE)

    @property
    def values(self) -> Column:
        """The values, None for rows that lookups skip."""
        return Column(self.rows, VALUE)

    @property
    def times(self) -> Column:
        """The timestamps (ms)."""
        return Column(self.rows, TIME)

    def columns(self, end: int) -> tuple[Iterable[Any], ...]:
        """Return all columns up to `end`, for a later read.

        Uncommitted rows are copied, because a rollback may put other rows in their places.
        """
        if end > self.committed:
            return tuple(self.rows.column(which, 0, end) for which in range(5))
        return tuple(Column(self.rows, which, end) for which in range(5))

    def contents(self, first: int, last: int) -> tuple[list[bytes], list[bytes | None], list[int]]:
        """Return changelog keys, value bytes and times of rows `first` to before `last`."""
        rows = self.rows
        return (
            rows.names(first, last),
            rows.column(CONTENT, first, last),
            rows.column(TIME, first, last),
        )

    def add(self, codec: Codec, row: tuple[Any, int, int, Any, int]) -> None:
        """Add key, start, sequence number, value and time. Raises SerializationError."""
        try:
            self.rows.add(*row)
        except (TypeError, UnicodeEncodeError):
            key, start, sequence, value, time = row
            try:  # key or value may be of a subclass
                index, same = (
                    codec.index_key(codec.index_bytes(key)),
                    None if value is None else codec.read_value(codec.value(value)),
                )
            except Exception as error:  # noqa: BLE001 - any serde error means a bad object
                codec.refuse(key, value, error)
            self.rows.add(index, start, sequence, same, time)

    def add_all(
        self, keys: list[Any], starts: list[int], sequences: Iterable[int], values: list[Any]
    ) -> None:
        """Add rows with their starts as times, all of them or, on an error, none.

        No value is None.
        """
        self.rows.add_all(keys, starts, list(sequences), values)

    def replace(self, place: int, value: Any, time: int) -> None:
        """Replace the value and time of a row."""
        self.rows.replace(place, value, time)
        self.written = min(self.written, place)

    def places(self, key: Any, first: int, last: int) -> list[int]:
        """Return the places of a key's rows in a time range, sorted by start.

        The range is from `first` to `last`, both included.
        """
        return self.rows.places(key, first, last)

    def entries(self, key: Any, first: int, last: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the rows of `places`."""
        return self.rows.entries(key, first, last)

    def roll_back(self) -> int:
        """Remove all uncommitted rows; return how many."""
        count = len(self.rows) - self.committed
        self.rows.cut(self.committed)
        self.frozen = self.committed
        return count

    def release(self, _: int) -> int:
        """Release all rows at once; return how many. Readers keep their rows."""
        count = len(self.rows)
        # New memory instead of a cleared one: a reader may still hold the old rows.
        self.rows = self._new()
        return count


AnySegment: TypeAlias = Segment | PackedSegment
