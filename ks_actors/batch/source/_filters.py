"""Filters of a query that can be applied before the read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isnan
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ks_actors.batch._reading import LogRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.batch._reading import Bounds

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Pushed:
    """The wanted topics, partitions and keys (None for all), and bounds of offsets and times.

    Offset and time filters are left to Spark unless `offsets` is set.
    """

    def __init__(self, *, offsets: bool) -> None:
        self.topics: frozenset[str] | None = None
        self.partitions: frozenset[int] | None = None
        self.keys: frozenset[Any] | None = None
        self.from_ms: int | None = None
        self._offsets = offsets
        self._least: int = 0
        self._end: int | None = None

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take the filters that can be applied; return the rest for Spark."""
        return [one for one in filters if not self._takes(one)]

    def _takes(self, one: Filter) -> bool:
        match one:
            case EqualTo((name,), value):
                return self._is_one_of(name, (value,)) or (self._offsets and self._narrows(one))
            case In((name,), values):
                return self._is_one_of(name, values)
            case _:
                return self._offsets and self._narrows(one)

    def _is_one_of(self, name: str, values: Iterable[Any]) -> bool:
        # pyspark gives bytes as a bytearray, which cannot be hashed; and in SQL nothing equals
        # NULL.
        wanted = [
            bytes(value) if isinstance(value, bytearray) else value
            for value in values
            if value is not None
        ]
        match name:
            case "topic":
                self.topics = _met(self.topics, wanted)
            case "partition":
                self.partitions = _met(self.partitions, wanted)
            case "key" if all(map(_is_plain, wanted)):
                self.keys = _met(self.keys, wanted)
            case _:
                return False
        return True

    def _narrows(self, one: Filter) -> bool:
        """Apply offset bounds fully, and time bounds as a lower limit.

        A time bound skips the records before the first record with that timestamp. Later records
        may still be older, so Spark applies the filter, too.
        """
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
            case (
                EqualTo(("timestamp",), value)
                | GreaterThan(("timestamp",), value)
                | GreaterThanOrEqual(("timestamp",), value)
            ):
                self._from(value)
                return False
            case _:
                return False
        return True

    def _from(self, time: datetime) -> None:
        # A time without a zone is not an instant: leave that filter to Spark.
        if time.tzinfo is not None:
            self.from_ms = max(self.from_ms or 0, (time - _EPOCH) // _MS)

    def _bound(self, least: int, end: int | None) -> None:
        self._least = max(self._least, least)
        if end is not None:
            self._end = end if self._end is None else min(self._end, end)

    def wants(self, partition: int, topic: str | None = None) -> bool:
        """Return whether any record of a partition is wanted."""
        return (self.partitions is None or partition in self.partitions) and (
            self.topics is None or topic is None or topic in self.topics
        )

    def within(self, bounds: Bounds) -> Bounds:
        """Narrow the time bounds by the filters."""
        return (
            bounds
            if self.from_ms is None
            else msgspec.structs.replace(bounds, from_ms=max(self.from_ms, bounds.from_ms or 0))
        )

    def narrow(self, one: LogRange) -> LogRange:
        """Narrow a range by the filters."""
        start = max(one.start, self._least)
        end = one.end if self._end is None else min(one.end, self._end)
        return LogRange(one.topic, one.partition, start, max(start, end))


def _met(known: frozenset[Any] | None, wanted: Iterable[Any]) -> frozenset[Any]:
    found = frozenset(wanted)
    return found if known is None else known & found


def _is_plain(value: Any) -> bool:
    """Return whether Spark's value of a key equals the serde's value.

    Times, decimals and structs may differ.
    """
    return isinstance(value, str | bytes | int) or (isinstance(value, float) and not isnan(value))
