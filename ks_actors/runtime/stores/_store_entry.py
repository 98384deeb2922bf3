"""The stores of one task, as their owner sees them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.messages import OpenTask
    from ks_actors.state import TaskStores
    from ks_actors.task import RecordContextHolder


@final
class StoreEntry:
    """A task whose stores are opened, restored or kept up to date here, or lent to the task manager, which processes it.

    `order` is what asked for the task to be processed; a standby has none. The stores are the same object whatever becomes of the task.
    """

    def __init__(self, task: TaskId, stores: TaskStores, current: RecordContextHolder, order: OpenTask | None) -> None:
        self.task: TaskId = task
        self.stores: TaskStores = stores
        self.current: RecordContextHolder = current
        self.order: OpenTask | None = order
        self.opened: asyncio.Event = asyncio.Event()
        self.is_open: bool = False
        self.wiped: bool = False
        # The task manager has it.
        self.lent: bool = False
        # Something that it was to take in cannot be taken in.
        self.failed: bool = False
        # The number of the last order to the restorer: what it says about earlier ones is stale.
        self.ticket: int = 0
        # What was known to be on disk before the stores are open.
        self.offsets: int | None = None
        # Whoever opens the stores is to come to an end.
        self.stop: threading.Event = threading.Event()
        # The snapshot that they have begun with.
        self.loaded: LoadedEntry | None = None
        self.restored: dict[str, int] = {}
        self.ends: dict[TopicPartition, int] = {}

    @property
    def standing_by(self) -> bool:
        """Whether it is a standby."""
        return self.order is None and not self.lent and not self.failed

    @property
    def restoring(self) -> bool:
        """Whether it is on its way to the task manager."""
        return self.order is not None and not self.lent and not self.failed

    @property
    def offset_sum(self) -> int | None:
        """How far the state is, as the sum of the changelogs' offsets; None when that is not known."""
        return self.stores.offset_sum if self.is_open else self.offsets


class LoadedEntry(msgspec.Struct, frozen=True):
    """What a task has begun with: a snapshot's name, and rows and next offset of each store that is from there."""

    snapshot: str
    rows: Mapping[str, int]
    next_offsets: Mapping[str, int]
