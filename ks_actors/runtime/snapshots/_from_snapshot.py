"""The opening of stores with the rows of a snapshot."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import SnapshotRefused
from ks_actors.config import ProcessingGuarantee
from ks_actors.lifecycle import component_log
from ks_actors.log import IsolationLevel
from ks_actors.records import TopicPartition
from ks_actors.runtime.snapshots._snapshot_files import shape_of
from ks_actors.runtime.stores import LoadedEntry
from ks_actors.snapshots import find_snapshots, without_login
from ks_actors.state import (
    Ingest,
    clear_drafts,
    fill,
    has_database,
    has_rows,
    stored_offsets,
    without_copy,
)
from ks_actors.task import contained
from ks_actors.topology import StorePlace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path
    from typing import Protocol, TypeVar

    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log
    from ks_actors.records import TaskId
    from ks_actors.runtime.shared import Metrics
    from ks_actors.runtime.stores import StoreEntry
    from ks_actors.snapshots import SnapshotReader, StoreSnapshot, TaskSnapshot
    from ks_actors.state import SharedResources
    from ks_actors.task import AppTopics, StoreSpecs
    from ks_actors.topology import StoreSpec

    T = TypeVar("T")

    class Blocking(Protocol):
        """A function that runs another function in a thread."""

        def __call__(self, fn: Callable[[], T], /) -> Awaitable[T]:
            """Return the function's result."""
            ...


WORTH: Final = 100_000
"""Minimum lead of a snapshot over the state on disk, in changelog records, to replace it."""

_FRESH_SECONDS: Final = 5.0
_YIELD_EVERY: Final = 5
_YIELD_SECONDS: Final = 0.0001
_log = component_log(__name__)


class _GivenUp(Exception):
    """The task is no longer needed."""


@final
class SnapshotSource:
    """A source of initial state: the newest fitting snapshot that is ahead of the disk.

    Each refusal of a snapshot is logged and counted, and the next older snapshot is tried. If no
    snapshot fits, the task restores from its changelogs. Stores on disk are built beside the
    existing ones and replace them when complete. Stores in memory are filled after they are open.
    """

    def __init__(
        self,
        topics: AppTopics,
        log: Log,
        *,
        stores: StoreSpecs,
        wall_time: Callable[[], int],
        shared: SharedResources,
        directory: Path,
        metrics: Metrics,
    ) -> None:
        self._topics = topics
        self._config: StreamsConfig = topics.config
        self._log = log
        self._stores = stores
        self._wall_time = wall_time
        self._shared = shared
        self._directory = directory
        self._metrics = metrics
        self._markers: int = int(
            self._config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        )
        self._listing = asyncio.Lock()
        self._listed_at: float = -_FRESH_SECONDS
        self._found: list[SnapshotReader] = []

    async def open(self, entry: StoreEntry, blocking: Blocking) -> None:
        """Open the stores of a task. Raises errors of the stores, but no errors of snapshots."""
        specs = [spec for spec in self._stores.of_task(entry.task) if has_rows(spec)]
        snapshot: SnapshotReader | None = None
        try:
            # Any failure means only a slower start, so no error of a snapshot may keep the task
            # from opening.
            snapshot = await self._begin(entry, specs, blocking) if specs else None
        except _GivenUp:
            pass
        except Exception as error:  # noqa: BLE001 - the changelog has it all
            _log.warning(
                "task %s is restored without a snapshot: %s", entry.task, without_login(str(error))
            )
        await blocking(entry.stores.open)
        memory = [spec for spec in specs if spec.place is StorePlace.MEMORY]
        if snapshot is not None and memory:
            await self._fill_all(entry, snapshot, memory, blocking)
        if snapshot is not None and entry.loaded is not None:
            positions = snapshot.manifest.tasks[str(entry.task)].positions
            entry.stores.positions.advance(
                entry.loaded.rows,
                contained(
                    {TopicPartition(one.topic, one.partition): one.offset for one in positions}
                ),
            )

    async def _begin(
        self, entry: StoreEntry, specs: list[StoreSpec], blocking: Blocking
    ) -> SnapshotReader | None:
        task, directory = str(entry.task), self._directory / str(entry.task)
        await blocking(partial(clear_drafts, directory))
        found = [
            snapshot
            for snapshot in await self._snapshots(blocking)
            if task in snapshot.manifest.tasks
        ]
        if not found:
            return None
        former = await blocking(entry.stores.topic_ids.read)
        local = {
            name: at
            for name, at in (
                await blocking(partial(stored_offsets, directory, self._shared))
            ).items()
            if name not in former
        }
        changelogs = {
            spec.name: TopicPartition(self._topics.changelog(spec.name), entry.task.partition)
            for spec in specs
        }
        begins = await self._log.begin_offsets(changelogs.values())
        # Open transactions count: a snapshot may have been taken right after a commit whose marker
        # has not reached this partition.
        ends = await self._log.end_offsets(changelogs.values(), IsolationLevel.READ_UNCOMMITTED)
        ranges = {
            name: (begins[changelog], ends[changelog]) for name, changelog in changelogs.items()
        }
        for snapshot in found:
            content = snapshot.manifest.tasks[task]
            if _before_changelogs(content, specs) and any(
                end > begin for begin, end in ranges.values()
            ):
                _log.info(
                    "task %s keeps the state of its changelogs: snapshot %s was made before they "
                    "existed",
                    task,
                    snapshot.place,
                )
                continue
            if _before_changelogs(content, specs) and not any(
                stored.rows for stored in content.stores.values()
            ):
                # With or without a bootstrap, the task begins with no rows.
                continue
            try:
                self._check(snapshot, content, specs, ranges)
                await self._ingest_if_worth(entry, snapshot, specs, local, ranges, blocking)
            except SnapshotRefused as refused:
                self._refused(entry.task, refused)
            else:
                return snapshot
        return None

    def _refused(self, task: TaskId, refused: SnapshotRefused) -> None:
        self._metrics.snapshots_refused += 1
        _log.warning("task %s does not start from a snapshot: %s", task, refused)

    async def _snapshots(self, blocking: Blocking) -> list[SnapshotReader]:
        """Return the snapshots, newest first. Tasks that open together share one listing."""
        uri = self._config.snapshot_uri
        assert uri is not None
        async with self._listing:
            now = asyncio.get_running_loop().time()
            if now - self._listed_at >= _FRESH_SECONDS:
                self._found, refused = await blocking(
                    partial(find_snapshots, uri, self._config.application_id)
                )
                self._listed_at = now
                for error in refused:
                    self._metrics.snapshots_refused += 1
                    _log.warning("a snapshot cannot be used: %s", error)
        return self._found

    def _check(
        self,
        snapshot: SnapshotReader,
        content: TaskSnapshot,
        specs: list[StoreSpec],
        ranges: Mapping[str, tuple[int, int]],
    ) -> None:
        """Raise SnapshotRefused when a snapshot does not fit the stores or their changelogs."""
        age = self._wall_time() - snapshot.manifest.created_ms
        for spec in specs:
            stored = content.stores.get(spec.name)
            if stored is None:
                continue
            where = f"{snapshot.place}: store {spec.name}"
            begin, end = ranges[spec.name]
            if stored.shape != shape_of(spec):
                raise SnapshotRefused(f"{where} was {stored.shape} and is {shape_of(spec)} now")
            if stored.next_offset is None:
                raise SnapshotRefused(
                    f"{where} is not in a changelog yet: load the snapshot with App.seed"
                )
            changelog = self._topics.changelog(spec.name)
            if stored.changelog != changelog:
                raise SnapshotRefused(
                    f"{where} belongs to the changelog {stored.changelog}, not to {changelog}"
                )
            now = self._topics.topic_ids.get(changelog, "")
            if now and stored.changelog_id and stored.changelog_id != now:
                raise SnapshotRefused(
                    f"{where} belongs to a changelog {changelog} with id {stored.changelog_id}, "
                    f"and the one of that name has id {now}: it was deleted and created again, or "
                    "is in another cluster"
                )
            if stored.next_offset < begin:
                raise SnapshotRefused(
                    f"{where} is too old: it holds records up to offset {stored.next_offset}, but "
                    f"the changelog begins at {begin}"
                )
            if stored.next_offset > end:
                raise SnapshotRefused(
                    f"{where} does not match this changelog, which ends at {end}: it holds records "
                    f"up to offset {stored.next_offset}"
                )
            # The last record of a transaction is followed by its marker. A newer transaction would
            # add at least a record and a marker.
            if stored.next_offset + self._markers < end and age > self._config.snapshot_max_age_ms:
                raise SnapshotRefused(
                    f"{where} is too old: it was taken {age:,} ms ago (snapshot_max_age_ms), so "
                    "the changelog may lack deletions since then"
                )

    async def _ingest_if_worth(
        self,
        entry: StoreEntry,
        snapshot: SnapshotReader,
        specs: list[StoreSpec],
        local: Mapping[str, int],
        ranges: Mapping[str, tuple[int, int]],
        blocking: Blocking,
    ) -> None:
        stores = snapshot.manifest.tasks[str(entry.task)].stores
        disk = [spec for spec in specs if spec.place is StorePlace.DATABASE and spec.name in stores]
        offsets = {spec.name: stores[spec.name].next_offset or 0 for spec in disk}
        kept = await blocking(
            partial(has_database, self._directory / str(entry.task), self._shared)
        )
        if kept and without_copy(self._stores.by_subtopology[entry.task.subtopology]):
            # Keep a local database that has state without a changelog. The database may even be
            # older than the first changelog record. A task beyond the partitions of a table's topic
            # has no state of that table.
            return
        # A task has one database for all its stores. Keep the database when one of these stores is
        # ahead of the snapshot, or missing there.
        if any(local.get(name, -1) > offset for name, offset in offsets.items()) or any(
            name not in offsets for name in local
        ):
            return
        gain = sum(
            offset - max(local.get(name, 0), ranges[name][0]) for name, offset in offsets.items()
        )
        if gain <= 0 or (local and gain < WORTH):
            return
        rows = await blocking(partial(self._ingest, entry, snapshot, disk))
        entry.loaded = LoadedEntry(snapshot.place.name, rows, offsets)
        self._metrics.snapshots_used += 1
        _log.info(
            "task %s starts from snapshot %s, %d rows",
            entry.task,
            snapshot.place,
            sum(rows.values()),
        )

    def _ingest(
        self, entry: StoreEntry, snapshot: SnapshotReader, specs: list[StoreSpec]
    ) -> dict[str, int]:
        task, steps = str(entry.task), 0

        def goes_on() -> None:
            nonlocal steps
            steps += 1
            if entry.stop.is_set():
                raise _GivenUp
            if not steps % _YIELD_EVERY:
                time.sleep(_YIELD_SECONDS)  # RocksDB's calls keep the GIL

        rows: dict[str, int] = {}
        (self._directory / task).mkdir(parents=True, exist_ok=True)
        with Ingest(
            task,
            self._directory / task,
            self._shared,
            self._stores.by_subtopology[entry.task.subtopology],
        ) as ingest:
            for spec in specs:
                stored: StoreSnapshot = snapshot.manifest.tasks[task].stores[spec.name]
                store = ingest.store(spec)
                for batch in snapshot.batches(task, spec.name):
                    store.write(batch, goes_on)
                store.end(
                    stored.next_offset or 0, observed=stored.observed, sequence=stored.sequence
                )
                rows[spec.name] = store.rows
            # Replaces the database in one step; after a crash before this, the old database is
            # still there.
            ingest.finish(f"snapshot {snapshot.place} has newer state of it")
        return rows

    async def _fill_all(
        self,
        entry: StoreEntry,
        snapshot: SnapshotReader,
        specs: list[StoreSpec],
        blocking: Blocking,
    ) -> None:
        stores = snapshot.manifest.tasks[str(entry.task)].stores
        loaded = entry.loaded or LoadedEntry(snapshot.place.name, {}, {})
        try:
            for spec in specs:
                stored = stores.get(spec.name)
                if stored is not None and stored.next_offset:
                    rows = await self._fill(entry, snapshot, stored, blocking)
                    offsets = {**loaded.next_offsets, spec.name: stored.next_offset}
                    loaded = LoadedEntry(loaded.snapshot, {**loaded.rows, spec.name: rows}, offsets)
        except Exception as error:  # noqa: BLE001 - the changelog has it all
            self._refused(
                entry.task,
                error
                if isinstance(error, SnapshotRefused)
                else SnapshotRefused(f"{snapshot.place} cannot be read: {error!r}"),
            )
            # The rows in memory are incomplete: discard them.
            await blocking(partial(entry.stores.close, clean=False))
            await blocking(entry.stores.open)
        else:
            entry.loaded = loaded if loaded.rows else None

    async def _fill(
        self, entry: StoreEntry, snapshot: SnapshotReader, stored: StoreSnapshot, blocking: Blocking
    ) -> int:
        name, count = stored.shape.name, 0
        entry.stores.begin_with(
            name, stored.next_offset or 0, observed=stored.observed, sequence=stored.sequence
        )
        batches = snapshot.batches(str(entry.task), name)
        while (batch := await blocking(partial(next, batches, None))) is not None:
            for start in range(0, len(batch), 1_000):
                fill(entry.stores, name, batch.slice(start, start + 1_000), stored.next_offset or 0)
                # The rows go in on the loop, so let other actors run in between.
                await asyncio.sleep(0)
            count += len(batch)
        return count


def _before_changelogs(content: TaskSnapshot, specs: list[StoreSpec]) -> bool:
    """Return whether a snapshot was made for a bootstrap, before there were changelogs.

    Once there are changelogs, such a snapshot has been loaded already or is useless.
    """
    return any(
        stored.next_offset is None
        for spec in specs
        if (stored := content.stores.get(spec.name)) is not None
    )
