"""Reports to listeners about restoring stores and updating standbys."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, final

from ks_actors._counted import counted
from ks_actors.lifecycle import component_log
from ks_actors.runtime.shared import RestoreListener, StandbyUpdateListener, SuspendReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.log import Fetched
    from ks_actors.records import TopicPartition
    from ks_actors.runtime.stores._store_entry import StoreEntry

_log = component_log(__name__)


@final
class Progress:
    """Notifications to listeners about stores, by changelog. Errors of listeners end the app."""

    def __init__(
        self, restoring: RestoreListener | None = None, standby: StandbyUpdateListener | None = None
    ) -> None:
        self._restoring: tuple[RestoreListener, ...] = () if restoring is None else (restoring,)
        self._standby: tuple[StandbyUpdateListener, ...] = () if standby is None else (standby,)

    def also(self, restoring: RestoreListener, standby: StandbyUpdateListener) -> None:
        """Add listeners, called after earlier listeners. Call this before the start."""
        self._restoring = (*self._restoring, restoring)
        self._standby = (*self._standby, standby)

    def started(
        self,
        entry: StoreEntry,
        names: Mapping[TopicPartition, str],
        starts: Mapping[TopicPartition, int | None],
    ) -> None:
        """Report that reading begins, with its start offsets and the loaded snapshot."""
        entry.restored = {}
        entry.restore_began = asyncio.get_running_loop().time()
        # Report the load once: a task that is recycled later starts from its open stores.
        loaded, entry.loaded = entry.loaded, None
        for changelog, name in names.items():
            for listener in self._restoring if loaded is not None and name in loaded.rows else ():
                assert loaded is not None
                listener.on_snapshot_loaded(
                    changelog, name, loaded.snapshot, loaded.next_offsets[name], loaded.rows[name]
                )
        for changelog, name in names.items():
            for following in self._standby if entry.order is None else ():
                following.on_update_start(changelog, name, starts[changelog])
            for listener in self._restoring if entry.order is not None else ():
                listener.on_restore_start(changelog, name, starts[changelog])

    def moved(self, entry: StoreEntry, name: str, fetched: Fetched) -> None:
        """Report that records are in the store."""
        changelog, count = fetched.partition, len(fetched.batch)
        entry.restored[name] = entry.restored.get(name, 0) + count
        entry.ends[changelog] = fetched.end_offset
        if entry.order is not None:
            for listener in self._restoring:
                listener.on_batch_restored(changelog, name, fetched.next_offset, count)
        elif count:
            for following in self._standby:
                following.on_batch_loaded(
                    changelog, name, entry.task, fetched.next_offset, count, fetched.end_offset
                )

    def ended(self, entry: StoreEntry, names: Mapping[TopicPartition, str]) -> None:
        """Report that all records are restored."""
        took = asyncio.get_running_loop().time() - entry.restore_began
        for changelog, name in names.items():
            count = entry.restored.get(name, 0)
            _log.log(
                logging.INFO if count else logging.DEBUG,
                "restored store %s of task %s: %s of %s in %.2f s",
                name,
                entry.task,
                counted(count, "record"),
                changelog,
                took,
                extra={"store": name},
            )
            for listener in self._restoring:
                listener.on_restore_end(changelog, name, count)

    def suspended(self, entry: StoreEntry, names: Mapping[TopicPartition, str]) -> None:
        """Report that restoring ends early."""
        for changelog, name in names.items():
            for listener in self._restoring:
                listener.on_restore_suspended(changelog, name, entry.restored.get(name, 0))

    def promoted(self, entry: StoreEntry, names: Mapping[TopicPartition, str]) -> None:
        """Report that a standby becomes active here."""
        self._standby_ended(entry, names, SuspendReason.PROMOTED)

    def closed(self, entry: StoreEntry, names: Mapping[TopicPartition, str]) -> None:
        """Report that the stores are closed."""
        if entry.standing_by:
            self._standby_ended(entry, names, SuspendReason.MIGRATED)
        elif entry.restoring:
            self.suspended(entry, names)

    def _standby_ended(
        self, entry: StoreEntry, names: Mapping[TopicPartition, str], reason: SuspendReason
    ) -> None:
        for changelog, name in names.items():
            offset = entry.stores.next_offset(name) or 0
            for listener in self._standby:
                listener.on_update_suspended(
                    changelog, name, offset, max(offset, entry.ends.get(changelog, 0)), reason
                )
