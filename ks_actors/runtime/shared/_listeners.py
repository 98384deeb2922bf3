"""Listeners for restoring stores and updating standbys."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ks_actors.records import TaskId, TopicPartition


class RestoreListener:
    """A listener for restoring; each method does nothing unless overridden.

    Methods run on the event loop: they must not block.
    """

    def on_snapshot_loaded(
        self, partition: TopicPartition, store: str, snapshot: str, end: int, count: int
    ) -> None:
        """Handle the load of `count` rows of a snapshot: the changelog before offset `end`.

        Comes before `on_restore_start`, or for a standby before
        `StandbyUpdateListener.on_update_start`.
        """

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Handle the start of restoring a store.

        Reads its changelog partition from offset `start` (None: the beginning).
        """

    def on_batch_restored(
        self, partition: TopicPartition, store: str, end: int, count: int
    ) -> None:
        """Handle a restored batch of `count` records, which ends before offset `end`."""

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """Handle the end of restoring, after `total` records."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, total: int) -> None:
        """Handle the early end of restoring, after `total` records.

        The task has moved to another instance, or is a standby now.
        """


class SuspendReason(Enum):
    """The reason for the end of a standby's updates."""

    MIGRATED = "migrated"
    """The task has left this instance, so its stores are closed.

    Its files are deleted after `state_cleanup_delay_ms`.
    """

    PROMOTED = "promoted"
    """The task becomes active here: its stores stay open."""


class StandbyUpdateListener:
    """A listener for standbys (KIP-988); each method does nothing unless overridden.

    Methods run on the event loop: they must not block.
    """

    def on_update_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Handle the start of a standby store's updates.

        Follows its changelog partition from offset `start` (None: the beginning).
        """

    def on_batch_loaded(
        self,
        partition: TopicPartition,
        store: str,
        task: TaskId,
        end: int,
        count: int,
        current_end: int,
    ) -> None:
        """Handle a batch of `count` records, which ends before offset `end`.

        The changelog's end was `current_end` at that time.
        """

    def on_update_suspended(
        self,
        partition: TopicPartition,
        store: str,
        offset: int,
        current_end: int,
        reason: SuspendReason,
    ) -> None:
        """Handle the end of a standby store's updates; `offset` is the next offset to read.

        The changelog's end was `current_end` when last seen. Comes before
        `RestoreListener.on_restore_start` for a promoted task, and after the stores are closed for
        a migrated one.
        """
