"""Rows of readers as bytes and back, and the merge of rows of several instances."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ks_actors._errors import ConfigError
from ks_actors.query._calls import NO_KEY, Bounded, Call
from ks_actors.query._store import KEY_VALUE, SESSIONS, VERSIONED, WINDOWS
from ks_actors.query.remote._messages import Ask, Row
from ks_actors.records import VersionedRecord, Window
from ks_actors.state.core import after, instant, no_record
from ks_actors.state.task_stores import codec_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from ks_actors.topology import StoreKind, StoreSpec

LocalRow: TypeAlias = tuple[Any, Any, Any]
"""A row as a reader has it: place, key (with window or session), and entry."""

# Of each method: whether it takes a key, whether it takes a range of keys, and how many times.
_KEY_VALUE_SHAPES: Final = {"get": (True, False, 0), "scan": (False, True, 0)}
_VERSIONED_SHAPES: Final = {"get": (True, False, 1), "versions": (True, False, 2)}
_WINDOW_SHAPES: Final = {
    "get": (True, False, 1),
    "fetch": (True, False, 2),
    "fetch_all": (False, False, 2),
}
_SESSION_SHAPES: Final = {
    "get": (True, False, 2),
    "find": (True, False, 2),
    "find_range": (False, True, 2),
}
_SHAPES: Final = {
    **dict.fromkeys(KEY_VALUE, _KEY_VALUE_SHAPES),
    **dict.fromkeys(VERSIONED, _VERSIONED_SHAPES),
    **dict.fromkeys(WINDOWS, _WINDOW_SHAPES),
    **dict.fromkeys(SESSIONS, _SESSION_SHAPES),
}
COUNT: Final = "count"
"""The name of the request for the number of keys."""
LOOKUPS: Final = frozenset({"get", "versions"})
"""The methods with one answer; the others scan."""
_HALF: Final = 1 << 127
_first: Final = itemgetter(0)


def place_of(place: Any) -> bytes:
    """Return a row's place as bytes with the same order.

    A place is the bytes of a row on disk; or, of one key, a number, which may need more than 64
    bits; or, in memory, a time, the key's bytes and a number.
    """
    if isinstance(place, bytes):
        return place
    if isinstance(place, tuple):
        time, encoded, other = place
        escaped: bytes = encoded.replace(b"\0", b"\0\xff")
        return _time(time) + escaped + b"\0\1" + _time(other)
    return int(place + _HALF).to_bytes(16, "big")


def _time(time: int) -> bytes:
    return (time + (1 << 63)).to_bytes(8, "big")


@final
class KeyBytes:
    """The bytes of a store's keys, on a machine without the store."""

    def __init__(self, codec: Any) -> None:
        self._codec = codec

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key. Raises TypeError for None, and SerializationError."""
        if key is None:
            raise TypeError(f"store {self._codec.name}: a key cannot be None")
        found: bytes = self._codec.key_bytes(key)
        return found

    def bounds(self, low: Any, high: Any) -> tuple[bytes, bytes]:
        """Return the range of the keys from `low` to `high`, both included."""
        found: tuple[bytes, bytes] = self._codec.bounds(low, high)
        return found

    def prefix_bounds(
        self, prefix: Any, serializer: Callable[[Any], bytes] | None
    ) -> tuple[bytes, bytes]:
        """Return the range of the keys with a prefix."""
        first = (serializer or self.key_bytes)(prefix)
        return first, after(first)


@final
class Wire:
    """The requests and rows of one store as bytes, at both ends."""

    def __init__(self, spec: StoreSpec, topic: str) -> None:
        self.kind: StoreKind = spec.kind
        self._codec: Any = codec_of(spec, topic, no_record)
        self._name = spec.name
        self.keys: KeyBytes = KeyBytes(self._codec)
        self._keyed = spec.kind in KEY_VALUE
        self._versions = spec.kind in VERSIONED

    # Requests.

    def ask(self, call: Call, partitions: Sequence[int], *, stale: bool, of: int) -> Ask:
        """Return the request for a call to some of the store's `of` partitions.

        Raises what the serde of keys raises.
        """
        low, high = call.range_of(self.keys) or (None, None)
        return Ask(
            self._name,
            call.name,
            list(partitions),
            None if call.key is NO_KEY else self.keys.key_bytes(call.key),
            [instant(self._name, time) for time in call.times],
            call.committed,
            low,
            high,
            call.reverse,
            stale,
            of,
        )

    def call(self, ask: Ask) -> Call:
        """Return the call that a request means.

        Raises ConfigError for a method that the store lacks, or for wrong arguments.
        """
        shape = _SHAPES.get(self.kind, {}).get(ask.name)
        found = (ask.key is not None, ask.low is not None and ask.high is not None, len(ask.times))
        if shape is None or shape != found or (ask.reverse is None) != (ask.name == "get"):
            raise ConfigError(
                f"store {ask.store}, a {self.kind.value} store, has no {ask.name!r} with these "
                "arguments: use the same ks_actors on both sides"
            )
        times = tuple(ask.times)
        if None in times and not self._versions:
            raise ConfigError(f"store {ask.store}: {ask.name} needs all its times")
        if ask.key is not None:
            key = self._codec.object_key(ask.key)
            return Call(ask.name, key, times, ask.committed, reverse=ask.reverse)
        if ask.low is not None and ask.high is not None:
            range_ = ask.low, ask.high
            reverse = bool(ask.reverse)
            return Bounded(ask.name, lambda _: range_, times, ask.committed, reverse=reverse)
        return Call(ask.name, NO_KEY, times, ask.committed, reverse=ask.reverse)

    # Rows.

    def rows(self, found: Sequence[LocalRow], *, of_key: bool) -> list[Row]:
        """Return rows of a reader as bytes; with `of_key`, those of the request's key alone."""
        raw, key_bytes = self._codec.raw, self._codec.key_bytes
        if self._keyed:
            return [Row(place, None, raw(entry)) for place, _, entry in found]
        return [
            Row(
                place_of(place),
                None if of_key else key_bytes(key),
                raw(entry),
                (when.start, when.end) if isinstance(when, Window) else when,
            )
            for place, (key, when), entry in found
        ]

    def local_rows(self, rows: Sequence[Row], call: Call) -> list[LocalRow]:
        """Return rows as a reader has them."""
        read_key, entry_of = self._codec.object_key, self._codec.entry
        if self._keyed:
            return [(row.place, read_key(row.place), entry_of(row.entry)) for row in rows]
        return [
            (
                row.place,
                (
                    call.key if row.key is None else read_key(row.key),
                    Window(*row.when) if isinstance(row.when, tuple) else row.when,
                ),
                entry_of(row.entry),
            )
            for row in rows
        ]

    def looked_up(self, found: Any) -> list[Row]:
        """Return the answer to a lookup as rows: none, one, or versions."""
        if found is None:
            return []
        if self._versions:
            versions = found if isinstance(found, list) else [found]
            raw = self._codec.raw
            return [
                Row(b"", None, raw((one.value, one.timestamp)), until=one.valid_to)
                for one in versions
            ]
        return [Row(b"", None, self._codec.raw(found))]

    def answer(self, rows: Sequence[Row], call: Call) -> Any:
        """Return the answer to a lookup as a reader gives it."""
        if not self._versions:
            return self._codec.entry(rows[0].entry) if rows else None
        entries = [self._codec.entry(row.entry) for row in rows]
        versions = [
            VersionedRecord(value, time, row.until)
            for (value, time), row in zip(entries, rows, strict=True)
        ]
        if call.name == "versions":
            return versions
        return versions[0] if versions else None


async def merged(
    streams: Sequence[AsyncIterator[list[LocalRow]]], *, reverse: bool
) -> AsyncGenerator[list[LocalRow], None]:
    """Yield the rows of some sorted streams in one order, a slice at a time.

    Each round merges the rows up to the least of the streams' last places: what comes later is
    behind them.
    """
    if len(streams) == 1:
        async for rows in streams[0]:
            yield rows
        return
    waiting: dict[int, list[LocalRow]] = {number: [] for number in range(len(streams))}
    while True:
        empty = [number for number, rows in waiting.items() if not rows]
        taken = await _all([streams[number] for number in empty])
        for number, more in zip(empty, taken, strict=True):
            if more is None:
                del waiting[number]
            else:
                waiting[number] = more
        if not waiting:
            return
        if not all(waiting.values()):
            # A slice without rows says only that the instance is still looking.
            continue
        ends = [rows[-1][0] for rows in waiting.values()]
        parts = []
        for number, rows in waiting.items():
            count = _up_to(rows, max(ends) if reverse else min(ends), reverse=reverse)
            parts.append(rows[:count])
            waiting[number] = rows[count:]
        yield list(heapq.merge(*parts, key=_first, reverse=reverse))


async def _all(streams: Sequence[AsyncIterator[list[LocalRow]]]) -> list[list[LocalRow] | None]:
    """Return the next rows of all streams; if one fails, none of the others is left running."""
    asked = [asyncio.ensure_future(_next(stream)) for stream in streams]
    try:
        return await asyncio.gather(*asked)
    except BaseException:
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        raise


async def _next(stream: AsyncIterator[list[LocalRow]]) -> list[LocalRow] | None:
    return await anext(stream, None)


def _up_to(rows: list[LocalRow], end: Any, *, reverse: bool) -> int:
    """Return the number of rows that are not behind a place."""
    if not reverse:
        return bisect_right(rows, end, key=_first)
    return len(rows) - bisect_left(rows[::-1], end, key=_first)
