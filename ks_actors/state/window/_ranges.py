"""The windows of all keys in a time range, whichever way they lie in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import SerializationError
from ks_actors.state.core import MISSING
from ks_actors.state.timed import SUFFIX, load_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.state.core import Entry
    from ks_actors.state.timed import TimedStore

    Slots = Callable[[int, int], Iterable[tuple[Any, int]]]
    """The dict key and the start of each window in memory from a first to a last start."""


def fetched(
    store: TimedStore, slots: Slots, time_from: int, time_to: int, *, by_time: bool
) -> list[tuple[bytes, int, int, Entry]]:
    """Return key bytes, start, sequence number and entry of each window, in order."""
    first = max(time_from, store._limit + 1)
    if time_to < first:
        return []
    if first < store._low and store.engine is not None:
        load_all(store, store.engine, first, min(time_to, store._low - 1))
    encode = store._codec.index_bytes
    found = []
    for index, start in list(slots(first, time_to)):
        value = store._now((index, start))
        if value is not MISSING:
            entry = store._entry_of(index, start, value)
            if entry is not None:
                found.append((encode(index), start, 0, entry))
    if by_time:
        found.sort(key=lambda row: (row[1], row[0], row[2]))
    else:
        segment = store.segment_ms
        found.sort(key=lambda row: (row[1] // segment, row[0] + SUFFIX.pack(row[1], row[2])))
    return found


def closed_entries(
    store: TimedStore, slots: Slots, time_from: int, time_to: int
) -> list[tuple[Any, int, Entry | SerializationError]]:
    """Return `fetch_all_entries`, with a SerializationError in place of an unreadable entry.

    For operators. An unreadable key is None.
    """
    encode, found = store._codec.index_bytes, []
    for index, start in list(slots(max(time_from, store._limit + 1), time_to)):
        value = store._now((index, start))
        if value is MISSING or value is None:
            continue
        key: Any = None
        try:
            key = store._codec.object_key(encode(index))
            entry: Any = store._entry_of(index, start, value)
        except SerializationError as error:
            entry = error
        found.append((start, encode(index), key, entry))
    found.sort(key=lambda row: row[:2])
    return [(key, start, entry) for start, _, key, entry in found]
