"""Snapshot rows of stores on disk: export from a checkpoint, and import into a new database."""

from __future__ import annotations

import shutil
from contextlib import suppress
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final, Self, final

from ks_actors._errors import StateError
from ks_actors.records import Batch, pack_headers, unpack_headers
from ks_actors.state._discard import give_up, logged_on_disk, without_copy
from ks_actors.state.core import ROWS, TIME_BYTES, after, pack_time, unpack_time
from ks_actors.state.disk import (
    DATABASE,
    DRAFT,
    LAYOUT,
    TOPIC_IDS,
    Manifest,
    RocksEngine,
    SortedTables,
    StoreFacts,
    TaskEngine,
    facts_row,
    has_database,
    offset_row,
    read_facts,
    read_offset,
    unlogged_stores,
)
from ks_actors.state.disk import NAME as CHECKPOINT_FILE
from ks_actors.state.timed import ENDS, FACTS, SEGMENT, SUFFIX
from ks_actors.state.versioned import snapshot_key, stored_key
from ks_actors.topology import HEADED, StoreKind, StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ks_actors.records import Headers
    from ks_actors.state.core import Engine, EngineRow
    from ks_actors.state.disk import SharedResources
    from ks_actors.topology import StoreSpec

SUFFIXES: Final = {
    StoreKind.WINDOW: SUFFIX,
    StoreKind.TIMESTAMPED_WINDOW: SUFFIX,
    StoreKind.SESSION: ENDS,
    StoreKind.WINDOW_WITH_HEADERS: SUFFIX,
    StoreKind.SESSION_WITH_HEADERS: ENDS,
}
"""The suffixes of changelog keys; their first part decides on expiry.

They are start and sequence number of a window, and end and start of a session.
"""

TIMESTAMPED: Final = (
    StoreKind.TIMESTAMPED_KEY_VALUE,
    StoreKind.TIMESTAMPED_WINDOW,
    StoreKind.KEY_VALUE_WITH_HEADERS,
    StoreKind.WINDOW_WITH_HEADERS,
    StoreKind.VERSIONED,
)
SLICE: Final = 1_000
_TABLES: Final = "tables"


def has_rows(spec: StoreSpec) -> bool:
    """Return whether snapshots include the rows of a store.

    They do if the store has a changelog to continue from, and rows of a known format. A snapshot of
    an app leaves out the rows of the user's engines, because a backfill does not use these engines.
    """
    return spec.logging and spec.place is not StorePlace.CUSTOM


@final
class CheckpointRows:
    """A checkpoint of a task's database, to be read once, in any one thread.

    All methods block. Raises TaskCorrupted for unreadable data.
    """

    def __init__(self, task: str, directory: Path, shared: SharedResources) -> None:
        self._task: str = task
        self._database: RocksEngine = RocksEngine(task, directory, shared, read_only=True)
        # A copy of the database of all tasks has a row of its own.
        self._engine: Engine = (
            self._database
            if self._database.get(LAYOUT) is None
            else TaskEngine(task, self._database)
        )
        self._manifest: Manifest = Manifest.read(self._engine, task)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def next_offset(self, store: str) -> int | None:
        """Return the next offset of the store's changelog.

        Return None without a changelog, or if nothing was ever written.
        """
        return read_offset(self._engine, store)

    def facts(self, store: str) -> tuple[int, int]:
        """Return the latest put time of a store and its last sequence number.

        Return -1 and 0 for a store without times.
        """
        facts = read_facts(self._engine, store)
        observed, sequence = (-1, 0) if facts is None else FACTS.unpack(facts)
        return observed, sequence

    def batches(self, spec: StoreSpec) -> Iterator[Batch]:
        """Return the unexpired rows of a store in stored order."""
        known = self._manifest.stores.get(spec.name)
        if known is None:
            return
        prefix = bytes((known.id,))
        suffix, timestamped = SUFFIXES.get(spec.kind), spec.kind in TIMESTAMPED
        cut = 1 + (0 if suffix is None else SEGMENT.size)
        limit = self.facts(spec.name)[0] - spec.seen_ms
        rows = self._engine.scan(prefix, after(prefix))
        while found := list(islice(rows, SLICE)):
            starts = [0] * len(found)
            if suffix is not None:
                starts = [suffix.unpack_from(key, len(key) - suffix.size)[0] for key, _ in found]
                found = [row for row, start in zip(found, starts, strict=True) if start > limit]
                starts = [start for start in starts if start > limit]
            keys = (
                [snapshot_key(key[1:]) for key, _ in found]
                if spec.kind is StoreKind.VERSIONED
                else [key[cut:] for key, _ in found]
            )
            contents, headers = [data for _, data in found], None
            if spec.kind in HEADED:
                contents, headers = _without_headers(contents)
            if timestamped:
                starts = [unpack_time(data)[0] for data in contents]
                contents = [data[TIME_BYTES:] for data in contents]
            yield Batch(keys, contents, starts, headers)


def _without_headers(contents: list[bytes]) -> tuple[list[bytes], list[Headers]]:
    """Return rows without their headers, and the headers."""
    found = [unpack_headers(data) for data in contents]
    return (
        [data[end:] for data, (_, end) in zip(contents, found, strict=True)],
        [headers for headers, _ in found],
    )


@final
class StoreIngest:
    """A writer of the rows of one store. All methods block."""

    def __init__(
        self,
        spec: StoreSpec,
        engine: Engine,
        tables: SortedTables,
        prefix: bytes,
        last: list[EngineRow],
    ) -> None:
        self._spec: StoreSpec = spec
        self._engine: Engine = engine
        self._tables: SortedTables = tables
        self._prefix: bytes = prefix
        self._last: list[EngineRow] = last
        self._observed: int = -1
        self._sequence: int = 0
        self.rows: int = 0

    def write(self, batch: Batch, goes_on: Callable[[], None] = lambda: None) -> None:
        """Write rows of a snapshot, in the order in which they are stored.

        `goes_on` may raise between slices. Raises StateFull.
        """
        spec, prefix = self._spec, self._prefix
        versions = spec.kind is StoreKind.VERSIONED
        keys: list[bytes] = [prefix + (stored_key(key) if versions else key) for key in batch.keys]
        values: list[Any] = batch.values
        suffix = SUFFIXES.get(spec.kind)
        if suffix is not None:
            segment_ms = spec.segment_ms
            parts = [suffix.unpack_from(key, len(key) - suffix.size) for key in batch.keys]
            keys = [
                prefix + SEGMENT.pack(start // segment_ms) + key
                for (start, _), key in zip(parts, batch.keys, strict=True)
            ]
            self._observed = max(self._observed, *(start for start, _ in parts))
            if suffix is SUFFIX:
                self._sequence = max(self._sequence, *(number for _, number in parts))
        if versions:
            self._observed = max(
                self._observed, *(time if time >= 0 else -1 - time for time in batch.timestamps)
            )
        if spec.kind in TIMESTAMPED:
            values = [
                pack_time(time) + value
                for time, value in zip(batch.timestamps, values, strict=True)
            ]
        if spec.kind in HEADED:
            headers: Any = repeat(()) if batch.headers is None else batch.headers
            values = [
                pack_headers(header) + value for header, value in zip(headers, values, strict=False)
            ]
        rows = list(zip(keys, values, strict=True))
        for start in range(0, len(rows), ROWS):
            # Sorted tables take half the time, but each is a file. Beyond some number of files,
            # RocksDB's own writes are better.
            if not self._tables.write(rows[start : start + ROWS]):
                self._engine.write(rows[start : start + ROWS])
            goes_on()
        self.rows += len(batch)

    def end(self, next_offset: int, *, observed: int = -1, sequence: int = 0) -> None:
        """Set the next offset of the changelog, and the facts of a store with times."""
        self._tables.end()
        if self._spec.kind in SUFFIXES or self._spec.kind is StoreKind.VERSIONED:
            self._last.append(
                facts_row(
                    self._spec.name,
                    FACTS.pack(max(observed, self._observed), max(sequence, self._sequence)),
                )
            )
        self._last.append(offset_row(self._spec.name, next_offset))


@final
class Ingest:
    """A new database of a task, built from rows beside the current one.

    It replaces the current database when it is complete, never before. `stores` are all stores of
    the task. All methods block. The task's stores must not be open. The leftovers of an earlier
    ingest are deleted. Raises StateError when the current database has the only copy of a store,
    because that store has no changelog.
    """

    def __init__(
        self, task: str, directory: Path, shared: SharedResources, stores: Iterable[StoreSpec]
    ) -> None:
        self._stores: list[StoreSpec] = [
            spec for spec in stores if spec.place is StorePlace.DATABASE
        ]
        self._replaces: bool = has_database(directory, shared)
        only = without_copy(self._stores) if self._replaces else []
        with suppress(StateError):  # nothing can be saved from an unreadable database
            found = unlogged_stores(task, directory, shared)
            only += sorted(set(found) - {*only, *logged_on_disk(self._stores)})
        if only:
            raise StateError(
                f"the database of task {task} in {directory} cannot be replaced: it has the only "
                f"copy of store {', '.join(only)}, which has no changelog. Move the directory "
                "away to begin with an empty store"
            )
        self._directory: Path = directory
        self._draft: Path = directory / DRAFT
        self._task: str = task
        if self._draft.exists():
            shutil.rmtree(self._draft)
        self._engine: RocksEngine | None = RocksEngine(task, self._draft, shared)
        self._tables: SortedTables = SortedTables(task, self._draft / _TABLES, shared)
        self._manifest: Manifest = Manifest()
        self._last: list[EngineRow] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Delete an unfinished database; does nothing after `finish`."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
            shutil.rmtree(self._draft, ignore_errors=True)

    def store(self, spec: StoreSpec) -> StoreIngest:
        """Return the writer of a store's rows; end all writers before `finish`."""
        engine = self._opened()
        facts = StoreFacts(0, spec.kind.value, spec.segment_ms, spec.retain_duplicates)
        number = self._manifest.admit(spec.name, facts, self._task)
        return StoreIngest(spec, engine, self._tables, bytes((number,)), self._last)

    def _opened(self) -> RocksEngine:
        if self._engine is None:
            raise StateError(f"task {self._task}: this ingest has ended")
        return self._engine

    def finish(self, reason: str) -> None:
        """Write everything to disk and replace the current database.

        The replacement is logged with the `reason`.
        """
        engine = self._opened()
        engine.ingest(self._tables.paths)
        # After all rows: offsets and manifest must never be on disk without the rows.
        engine.write([self._manifest.row(), *self._last])
        # On disk before the rename: the old database is gone by then.
        engine.flush(wait=True)
        self._engine = None
        engine.close()
        database = self._directory / DATABASE
        if self._replaces:
            give_up(
                self._task, self._stores, self._directory, reason, fate="is deleted, and replaced"
            )
        # Delete the old database first: `rename` cannot replace a directory with files. Rows in the
        # database of all tasks do not count beside one of the task's own.
        if database.exists():
            shutil.rmtree(database)
        # These files belong to the old database.
        (self._directory / CHECKPOINT_FILE).unlink(missing_ok=True)
        (self._directory / TOPIC_IDS).unlink(missing_ok=True)
        self._draft.rename(database)


def clear_drafts(directory: Path) -> None:
    """Delete the leftovers of a killed process' ingest from a task's directory. Blocks."""
    shutil.rmtree(directory / DRAFT, ignore_errors=True)
