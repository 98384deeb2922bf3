"""What of a query's filters can be known before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from ks_actors.batch._reading import LogRange

if TYPE_CHECKING:
    from collections.abc import Iterable


class Pushed:
    """The partitions, keys and offsets that are wanted; None is all of them. Offsets are left to Spark unless `offsets` says otherwise."""

    def __init__(self, *, offsets: bool) -> None:
        self.partitions: frozenset[int] | None = None
        self.keys: frozenset[Any] | None = None
        self._offsets = offsets
        self._least: int = 0
        self._end: int | None = None

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take those that can be; return the rest, which Spark does."""
        return [one for one in filters if not self._takes(one)]

    def _takes(self, one: Filter) -> bool:
        match one:
            case EqualTo(("partition",), value):
                self.partitions = _met(self.partitions, (value,))
            case In(("partition",), value):
                self.partitions = _met(self.partitions, value)
            case EqualTo(("key",), value):
                self.keys = _met(self.keys, map(_plain, (value,)))
            case In(("key",), value):
                self.keys = _met(self.keys, map(_plain, value))
            case _:
                return self._offsets and self._narrows(one)
        return True

    def _narrows(self, one: Filter) -> bool:
        match one:
            case EqualTo(("offset",), value):
                self._bound(value, value + 1)
            case GreaterThan(("offset",), value):
                self._bound(value + 1, None)
            case GreaterThanOrEqual(("offset",), value):
                self._bound(value, None)
            case LessThan(("offset",), value):
                self._bound(0, value)
            case LessThanOrEqual(("offset",), value):
                self._bound(0, value + 1)
            case _:
                return False
        return True

    def _bound(self, least: int, end: int | None) -> None:
        self._least = max(self._least, least)
        if end is not None:
            self._end = end if self._end is None else min(self._end, end)

    def wants(self, partition: int) -> bool:
        """Return whether anything of a partition is wanted."""
        return self.partitions is None or partition in self.partitions

    def narrow(self, one: LogRange) -> LogRange:
        """Return what is left of a range."""
        start = max(one.start, self._least)
        end = one.end if self._end is None else min(one.end, self._end)
        return LogRange(one.topic, one.partition, start, max(start, end))


def _met(known: frozenset[Any] | None, wanted: Iterable[Any]) -> frozenset[Any]:
    found = frozenset(wanted)
    return found if known is None else known & found


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
