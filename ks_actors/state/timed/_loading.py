"""Rows on disk that a window or session store loads into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.state.timed._slot_form import SEGMENT

if TYPE_CHECKING:
    from ks_actors.state.core import Engine
    from ks_actors.state.timed._timed_store import TimedStore


def load(store: TimedStore, engine: Engine, index: Any) -> None:
    """Load the slots of a key that may be on disk only."""
    encoded, form = store._codec.index_bytes(index), store._form
    pack, unpack = form.struct.pack, form.struct.unpack_from
    # Load from the committed limit: queries of committed state see windows that have expired
    # since.
    first = max(0, store._committed - store._retention + 1)
    for segment in range(first // store.segment_ms, (store._low - 1) // store.segment_ms + 1):
        base = store.prefix + SEGMENT.pack(segment) + encoded
        since = max(first, segment * store.segment_ms)
        until = min(store._low, (segment + 1) * store.segment_ms)
        for name, data in engine.scan(base + pack(since, 0), base + pack(until, 0)):
            # otherwise the row belongs to a longer key
            if len(name) == len(base) + form.size:
                store._found(index, form.slot(*unpack(name, len(base))), data)
    store._loaded.add(index)


def load_all(store: TimedStore, engine: Engine, first: int, last: int) -> None:
    """Load the slots of all keys that may be on disk only."""
    due, store._due = store._due, 0  # keep sweeps from evicting the rows loaded here
    form, cut = store._form, len(store.prefix) + SEGMENT.size
    for segment in range(first // store.segment_ms, last // store.segment_ms + 1):
        base = store.prefix + SEGMENT.pack(segment)
        for name, data in engine.scan(base, store.prefix + SEGMENT.pack(segment + 1)):
            time, other = form.struct.unpack_from(name, len(name) - form.size)
            index = store._codec.index_key(name[cut : -form.size])
            if first <= time <= last and index not in store._loaded:
                store._found(index, form.slot(time, other), data)
    store._due = due
