"""Who hears how stores are restored and kept up to date."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ks_actors.records import TaskId, TopicPartition


class RestoreListener:
    """Hear how restoring goes; all methods do nothing unless overridden. Called on the event loop: they must not block."""

    def on_snapshot_loaded(self, partition: TopicPartition, store: str, snapshot: str, end: int, count: int) -> None:
        """Hear that a store begins with `count` rows of a snapshot, which is as far as the changelog partition before offset `end`.

        Comes before `on_restore_start`, or, of a standby, before `StandbyUpdateListener.on_update_start`.
        """

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Hear that a store begins to be restored from its changelog partition, from offset `start` (None: the beginning)."""

    def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
        """Hear that another `count` records are restored, up to before offset `end`."""

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """Hear that the store is restored, from `total` records."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, total: int) -> None:
        """Hear that restoring has ended before it was done, after `total` records: the task has gone to another instance, or is a standby now."""


class SuspendReason(Enum):
    """Why a standby is not kept up to date any more."""

    MIGRATED = "migrated"
    """It is another instance's from now on, or nobody's: its stores are closed. What is on disk is deleted after `state_cleanup_delay_ms`."""

    PROMOTED = "promoted"
    """The task is to be processed here: its stores stay open."""


class StandbyUpdateListener:
    """Hear how standbys are kept up to date (KIP-988); all methods do nothing unless overridden. Called on the event loop: they must not block."""

    def on_update_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Hear that a standby's store begins to follow its changelog partition, from offset `start` (None: the beginning)."""

    def on_batch_loaded(self, partition: TopicPartition, store: str, task: TaskId, end: int, count: int, current_end: int) -> None:
        """Hear that another `count` records are in the store, up to before offset `end`; the changelog ended at `current_end` then."""

    def on_update_suspended(self, partition: TopicPartition, store: str, offset: int, current_end: int, reason: SuspendReason) -> None:
        """Hear that the store, which goes up to before `offset`, follows its changelog no more; that ended at `current_end` when last seen.

        Of a task that is promoted before `RestoreListener.on_restore_start`; of one that migrates, after its stores are closed.
        """
