"""Snapshot rows of in-memory stores: export during commits, and import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.records import Batch
from ks_actors.state.core import headers_of, pack_time
from ks_actors.state.timed import FACTS, SEGMENT, SegmentedRows
from ks_actors.state.versioned import TOMBSTONE, VersionedKeyValueStore, VersionedReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.state.core import Entry, Rows, StoreForTasks
    from ks_actors.state.task_stores import TaskStores
    from ks_actors.state.versioned import VersionCodec

NOTHING: Final = Batch([], [], [])


def committed_rows(reader: Any) -> Rows:
    """Return all rows committed as of now; later commits do not show."""
    rows: Rows = (
        reader.all_versions() if isinstance(reader, VersionedReader) else reader.all(committed=True)
    )
    return rows


def committed_facts(store: StoreForTasks) -> tuple[int, int]:
    """Return the latest put time as of the last commit, and the last sequence number.

    Return -1 and 0 for a store without times.
    """
    facts = store.facts()
    observed, sequence = (-1, 0) if facts is None else FACTS.unpack(facts)
    return observed, sequence


def log_batch(store: Any, rows: Sequence[tuple[Any, Any, Entry]]) -> Batch:
    """Return rows of `committed_rows` as a batch in the snapshot's format."""
    if isinstance(store, VersionedKeyValueStore):
        return _versions(store.codec, rows)
    codec = store.codec
    values, times = (
        [codec.value(entry[0]) for _, _, entry in rows],
        [entry[1] for _, _, entry in rows],
    )
    headers = [headers_of(entry) for _, _, entry in rows] if codec.headed else None
    if not isinstance(store, SegmentedRows):
        keys = [encoded for encoded, _, _ in rows]
    elif store.segmented:
        keys = [place[SEGMENT.size :] for place, _, _ in rows]
    else:
        # The place of a session has its start as a negative number.
        pack = store.slot_form.struct.pack
        keys = [encoded + pack(time, abs(other)) for (time, encoded, other), _, _ in rows]
    return Batch(keys, values, times, headers)


def _versions(codec: VersionCodec, rows: Sequence[tuple[Any, Any, Entry]]) -> Batch:
    deleted = [entry[0] is TOMBSTONE for _, _, entry in rows]
    return Batch(
        [codec.log_key(index) + pack_time(time) for _, (index, time), _ in rows],
        [
            b"" if gone else codec.value(entry[0])
            for gone, (_, _, entry) in zip(deleted, rows, strict=True)
        ],
        [
            -1 - time if gone else time
            for gone, (_, (_, time), _) in zip(deleted, rows, strict=True)
        ],
    )


def fill(stores: TaskStores, name: str, batch: Batch, next_offset: int) -> None:
    """Load rows of a snapshot into an in-memory store, after `TaskStores.begin_with`."""
    store = stores.kept(name)
    if isinstance(store, VersionedKeyValueStore):
        store.fill(batch)
        batch = NOTHING
    stores.restore(name, batch, next_offset)
