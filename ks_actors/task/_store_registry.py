"""Which tasks have their stores here: where queries find them."""

from __future__ import annotations

import asyncio
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from ks_actors._errors import TaskTimeout
from ks_actors.state import merged
from ks_actors.task._offset_metadata import contained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.messages import Frozen
    from ks_actors.state import At, TaskStores
    from ks_actors.task._task import Task


_PATIENCE_SECONDS: Final = 5.0


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Role(Enum):
    """What a task's stores are here for. Only those of an active task are up to date."""

    ACTIVE = "active"
    RESTORING = "restoring"
    STANDBY = "standby"


class RegisteredStores:
    """The stores of one task, while they are open.

    `positions` are the next offsets of the task's partitions as of the last commit, `metadata` what was committed with them, once something was.
    Updates of the stores `behind` caches may be held back there.
    """

    __slots__ = ("behind", "metadata", "positions", "processing", "role", "stores", "task")

    def __init__(
        self,
        task: TaskId,
        stores: TaskStores,
        role: Role,
        processing: Task | None,
        positions: Mapping[TopicPartition, int],
        behind: frozenset[str] = frozenset(),
    ) -> None:
        self.task: TaskId = task
        self.stores: TaskStores = stores
        self.role: Role = role
        self.processing: Task | None = processing
        self.positions: Mapping[TopicPartition, int] = positions
        self.metadata: Mapping[TopicPartition, str] = {}
        self.behind: frozenset[str] = behind

    def next_offsets(self, store: str, *, committed: bool) -> Mapping[TopicPartition, int]:
        """Return up to where input is in a store, as far as that is certain."""
        task = self.processing
        if committed or task is None or task.broken or task.in_flight or (store in self.behind and task.held):
            return self.positions
        return {partition: queue.position for partition, queue in task.group.queues.items()}

    def position(self, store: str, *, committed: bool) -> At:
        """Return up to which input is contained in what a store holds, as standbys know it too: as of the last change of the store."""
        known = self.stores.positions.of(store)
        if self.processing is None:
            return known
        if self.task.subtopology >= 0 and (committed or not self.stores.changed(store)):
            return known  # a global store has nothing that is not committed
        return merged(known, contained(self.next_offsets(store, committed=committed)))

    def reached(self, store: str, *, committed: bool) -> At:
        """Return up to which input has come to a store, whether that has changed it or not."""
        known = self.position(store, committed=committed)
        if self.processing is None or not self.stores.positions.follows_task(store):
            return known
        return merged(known, contained(self.next_offsets(store, committed=committed)))


class StoreRegistry:
    """Know where the stores of each task are, from when they are open until they are to be closed.

    Whoever has a task tells: the state manager while it restores, or is kept as a standby; the task manager while it is processed. Everything is on
    one event loop, so what is found here may be read at once, until the reader waits for something, and then looks again.
    """

    def __init__(self, behind_caches: frozenset[str] = frozenset()) -> None:
        self._behind: frozenset[str] = behind_caches
        self._residents: dict[TaskId, RegisteredStores] = {}
        # Positions of tasks without stores, as of the last commit.
        self.stateless: dict[TaskId, Mapping[TopicPartition, int]] = {}

    def restoring(self, task: TaskId, stores: TaskStores) -> None:
        """Note that the stores of a task are open, and being restored."""
        self._residents[task] = RegisteredStores(task, stores, Role.RESTORING, None, {})

    def standby(self, task: TaskId, stores: TaskStores) -> None:
        """Note that the stores of a task are open, and follow the changelogs."""
        self._residents[task] = RegisteredStores(task, stores, Role.STANDBY, None, {})

    def active(self, task: Task, positions: Mapping[TopicPartition, int]) -> RegisteredStores | None:
        """Note that a task is processed, from these offsets on."""
        if task.stores is None:
            self.stateless[task.id] = positions
            return None
        if task.id.subtopology >= 0:  # global stores are filled as they are processed
            task.stores.begin_processing(contained(positions))
        resident = self._residents[task.id] = RegisteredStores(task.id, task.stores, Role.ACTIVE, task, positions, self._behind)
        return resident

    def committed(self, task: TaskId, frozen: Frozen) -> None:
        """Note that what was frozen of a task is committed; its stores, if it has any, have it this very moment."""
        resident = self._residents.get(task)
        if resident is None and task not in self.stateless:
            return  # it has left
        positions = {partition: frozen.positions[partition].offset for partition in frozen.tasks[task].group.queues}
        if resident is not None:
            resident.positions = positions
            resident.metadata = {partition: frozen.positions[partition].metadata for partition in positions}
        else:
            self.stateless[task] = positions

    def leave(self, task: TaskId) -> None:
        """Note that a task is no longer here; queries that are reading its stores are told so."""
        self.stateless.pop(task, None)
        resident = self._residents.pop(task, None)
        if resident is not None:
            resident.stores.end_reading(f"task {task} has left this instance")

    def get(self, task: TaskId) -> RegisteredStores | None:
        """Return what is here of a task."""
        return self._residents.get(task)

    def look_later(self, task: TaskId, look: Callable[[], None]) -> bool:
        """Have `look` called when the thread that is at a task has come back; return False when there is none: its stores may be looked at now."""
        resident = self._residents.get(task)
        processing = None if resident is None else resident.processing
        if processing is None or processing.absence.since is None:
            return False
        processing.absence.visits.append(look)
        return True

    async def quiet(self, task: TaskId) -> None:
        """Wait until no thread is at a task; what is done before the next `await` is done alone. Raises TaskTimeout."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while self.look_later(task, partial(_wake, back := loop.create_future())):
                    await back
        except TimeoutError:
            raise TaskTimeout(f"a thread did not come back from task {task} within {_PATIENCE_SECONDS:g} s: a processor does not return") from None

    def __iter__(self) -> Iterator[RegisteredStores]:
        """Iterate over all there is, by task."""
        return iter([self._residents[task] for task in sorted(self._residents)])
