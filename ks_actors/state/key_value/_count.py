"""Counting of many records of a key-value store at once."""

from __future__ import annotations

from itertools import compress, repeat
from operator import is_, not_
from typing import TYPE_CHECKING, Any, Final

from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import MISSING

if TYPE_CHECKING:
    from ks_actors.state.core import Entry
    from ks_actors.state.key_value._table import Table

NOTHING: Final[Entry] = (0, -(1 << 63))
"""The kernel's count for a missing key; the kernel sends None as the previous count."""

PLAIN: Final = frozenset((str, bytes, int))
"""Key types that compare without user code."""


def count_up(
    table: Table[Any],
    keys: list[Any],
    values: list[Any],
    timestamps: list[int],
    start: int,
    changes: list[Any],
    times: list[int],
    *,
    with_old: bool,
) -> int:
    """Count each key, as one `get_entry` and one `put_entry` would.

    Return the index of the first record that was not counted, because it is not plain.
    """
    view, dirty = table._view, table._dirty
    stop: int
    stop, size = _kernel.count_up(
        view, dirty, keys, values, timestamps, start, changes, times, with_old
    )
    # The kernel stops at a key that is not in the view. Load all such keys at once, let the others
    # start from NOTHING, and continue.
    if (
        stop < len(keys)
        and type(keys[stop]) in PLAIN
        and keys[stop] not in view
        and values[stop] is not None
    ):
        begun = _fetch(table, _kernel.absent(view, keys, stop))
        view.update(zip(begun, repeat(NOTHING), strict=False))
        try:
            stop, more = _kernel.count_up(
                view, dirty, keys, values, timestamps, stop, changes, times, with_old
            )
            size += more
        finally:
            _begin(table, begun)
    if table._sized_keys:
        table._size += size
    return stop


def _fetch(table: Table[Any], keys: list[Any]) -> list[Any]:
    """Load absent keys into the view from below; return the keys without entry."""
    engine, codec = table.engine, table.codec
    try:
        if engine is None or table.bare or table._restored or table._restored_writing:
            codec.keys(keys)
            return [key for key in keys if table._load(key) is None and key not in table._view]
        rows = engine.get_many(map(table.prefix.__add__, codec.keys(keys)))
    except Exception:  # noqa: BLE001 - a bad key or row is reported later, record by record
        return []
    for key, raw in zip(keys, rows, strict=True):
        if raw is not None:
            table._remember(key, codec.from_engine(raw))
    return list(compress(keys, map(is_, rows, repeat(None))))


def _begin(table: Table[Any], begun: list[Any]) -> None:
    """Note MISSING as the old value of keys counted from nothing; remove uncounted keys."""
    dirty, view = table._dirty, table._view
    counted = list(map(is_, map(dirty.get, begun), repeat(NOTHING)))
    if not all(counted):
        for key in compress(begun, map(not_, counted)):
            del view[key]
        begun = list(compress(begun, counted))
    dirty.update(zip(begun, repeat(MISSING), strict=False))
    table.enter_all(begun)
