"""The stores of one task, with their role."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec

if TYPE_CHECKING:
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.messages import OpenTask
    from ks_actors.state import TaskStores
    from ks_actors.task import Position, RecordContextHolder, TaskLife, TaskState


class StoresStatus(NamedTuple):
    """The stores of a task at one moment.

    `positions` are the positions to process the task from; None for a standby. `ends` are the last
    known ends of changelogs.
    """

    state: TaskState
    is_open: bool
    positions: Mapping[TopicPartition, Position] | None
    ends: Mapping[TopicPartition, int]


@final
class StoreEntry:
    """A task with stores that are opened, restored or followed here, or lent to the task manager.

    `order` is the request to process the task; a standby has none. The stores are the same object
    in every role.
    """

    def __init__(
        self,
        task: TaskId,
        stores: TaskStores,
        current: RecordContextHolder,
        order: OpenTask | None,
        life: TaskLife,
    ) -> None:
        self.task: TaskId = task
        self.life: TaskLife = life
        self.stores: TaskStores = stores
        self.current: RecordContextHolder = current
        self.order: OpenTask | None = order
        # Set when the opening thread has ended, even after a failure: `is_open` says how.
        self.opened: asyncio.Event = asyncio.Event()
        self.is_open: bool = False
        self.wiped: bool = False
        # The task manager has the stores.
        self.lent: bool = False
        # A restored record could not be applied.
        self.failed: bool = False
        # Number of the last order to the restorer; answers to earlier orders are stale.
        self.order_id: int = 0
        # The offset sum on disk, known before the stores are open.
        self.offsets: int | None = None
        # Set to make the opening thread stop.
        self.stop: threading.Event = threading.Event()
        # The snapshot that the stores were loaded from.
        self.loaded: LoadedEntry | None = None
        self.restored: dict[str, int] = {}
        # In seconds, by the loop's clock.
        self.restore_began: float = 0.0
        self.ends: dict[TopicPartition, int] = {}

    @property
    def status(self) -> StoresStatus:
        """The present status."""
        order = self.order  # once: `App.health` asks from other threads
        positions = None if order is None else order.positions
        return StoresStatus(self.life.state, self.is_open, positions, dict(self.ends))

    @property
    def standing_by(self) -> bool:
        """Whether the task is a standby."""
        return self.order is None and not self.lent and not self.failed

    @property
    def restoring(self) -> bool:
        """Whether the task restores before it is processed."""
        return self.order is not None and not self.lent and not self.failed

    @property
    def offset_sum(self) -> int | None:
        """The sum of the stores' changelog offsets; None when unknown."""
        return self.stores.offset_sum if self.is_open else self.offsets


class LoadedEntry(msgspec.Struct, frozen=True):
    """A loaded snapshot: its name, and rows and next offset of each store loaded from it."""

    snapshot: str
    rows: Mapping[str, int]
    next_offsets: Mapping[str, int]
