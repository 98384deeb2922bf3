"""The registry of open stores, where queries find them."""

from __future__ import annotations

import asyncio
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from ks_actors._errors import TaskTimeout
from ks_actors.state import merged
from ks_actors.task._offset_metadata import contained
from ks_actors.topology import ProcessorNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ks_actors.config import StreamsConfig
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.state import At, TaskStores
    from ks_actors.task._frozen import Frozen
    from ks_actors.task._task import Task
    from ks_actors.topology import Topology


_PATIENCE_SECONDS: Final = 5.0


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Role(Enum):
    """The role of a task's stores. Only stores of an active task are up to date."""

    ACTIVE = "active"
    RESTORING = "restoring"
    STANDBY = "standby"


class RegisteredStores:
    """The stores of one task, while they are open.

    `positions` are the next offsets of the task's partitions at the last commit. `metadata` was
    committed with the last commit, if any. Caches may hold back updates of the stores in `behind`.
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
        """Return the next input offsets of a store, as far as they are certain."""
        task = self.processing
        if (
            committed
            or task is None
            or task.broken
            or task.in_flight
            or (store in self.behind and task.cached_updates)
        ):
            return self.positions
        return {partition: queue.position for partition, queue in task.group.queues.items()}

    def position(self, store: str, *, committed: bool) -> At:
        """Return the input position of a store's content, as of its last change.

        Standbys know this position, too.
        """
        known = self.stores.positions.of(store)
        if self.processing is None:
            return known
        if self.task.subtopology >= 0 and (committed or not self.stores.changed(store)):
            return known  # a global store has no uncommitted changes
        return merged(known, contained(self.next_offsets(store, committed=committed)))

    def reached(self, store: str, *, committed: bool) -> At:
        """Return the input position that a store has reached, even without a change."""
        known = self.position(store, committed=committed)
        if self.processing is None or not self.stores.positions.follows_task(store):
            return known
        return merged(known, contained(self.next_offsets(store, committed=committed)))


class StoreRegistry:
    """The registry of each task's stores, from when they open until they close.

    The owner of a task registers its stores: the state manager while the task restores or is a
    standby, the task manager while it is processed. All users run on one event loop. So a reader
    may use an entry until its next `await`, and must then get it again.
    """

    def __init__(self, behind_caches: frozenset[str] = frozenset()) -> None:
        self._behind: frozenset[str] = behind_caches
        self._store_registry: dict[TaskId, RegisteredStores] = {}
        # Positions of tasks without stores, as of the last commit.
        self.stateless: dict[TaskId, Mapping[TopicPartition, int]] = {}

    def restoring(self, task: TaskId, stores: TaskStores) -> None:
        """Register open stores that are being restored."""
        self._store_registry[task] = RegisteredStores(task, stores, Role.RESTORING, None, {})

    def standby(self, task: TaskId, stores: TaskStores) -> None:
        """Register open stores of a standby, which follow the changelogs."""
        self._store_registry[task] = RegisteredStores(task, stores, Role.STANDBY, None, {})

    def active(
        self, task: Task, positions: Mapping[TopicPartition, int]
    ) -> RegisteredStores | None:
        """Register a task that is processed, from these offsets on."""
        if task.stores is None:
            self.stateless[task.id] = positions
            return None
        if task.id.subtopology >= 0:  # global stores are filled as they are processed
            task.stores.begin_processing(contained(positions))
        registered = self._store_registry[task.id] = RegisteredStores(
            task.id, task.stores, Role.ACTIVE, task, positions, self._behind
        )
        return registered

    def committed(self, task: TaskId, frozen: Frozen) -> None:
        """Record the commit of a task: its stores, if any, have applied it at this moment."""
        registered = self._store_registry.get(task)
        if registered is None and task not in self.stateless:
            return  # the task has left
        positions = {
            partition: frozen.positions[partition].offset
            for partition in frozen.tasks[task].group.queues
        }
        if registered is not None:
            registered.positions = positions
            registered.metadata = {
                partition: frozen.positions[partition].metadata for partition in positions
            }
        else:
            self.stateless[task] = positions

    def leave(self, task: TaskId) -> None:
        """Remove a task, and end the queries that read its stores."""
        self.stateless.pop(task, None)
        registered = self._store_registry.pop(task, None)
        if registered is not None:
            registered.stores.end_reading(f"task {task} has left this instance")

    def get(self, task: TaskId) -> RegisteredStores | None:
        """Return the registered stores of a task; None without any."""
        return self._store_registry.get(task)

    def call_on_return(self, task: TaskId, look: Callable[[], None]) -> bool:
        """Call `look` when the thread that has the task returns.

        Returns False when no thread has the task: then the caller may use the stores at once.
        """
        registered = self._store_registry.get(task)
        processing = None if registered is None else registered.processing
        if processing is None or processing.thread_guard.since is None:
            return False
        processing.thread_guard.on_return.append(look)
        return True

    async def quiet(self, task: TaskId) -> None:
        """Wait until no thread has a task.

        The caller has the task alone until its next `await`. Raises TaskTimeout.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                # Check again: another thread may have taken the task before this resumes.
                while self.call_on_return(task, partial(_wake, back := loop.create_future())):
                    await back
        except TimeoutError:
            raise TaskTimeout(
                f"a thread did not return task {task} within {_PATIENCE_SECONDS:g} s: one of its "
                "processors blocks"
            ) from None

    def __iter__(self) -> Iterator[RegisteredStores]:
        """Iterate over all entries, by task."""
        return iter([self._store_registry[task] for task in sorted(self._store_registry)])


def behind_caches(topology: Topology, config: StreamsConfig) -> frozenset[str]:
    """Return the stores downstream of caches, which cached updates have not reached.

    Only the first node with a cached store writes to that store; other nodes read it.
    """
    processors = {
        name: node for name, node in topology.nodes.items() if isinstance(node, ProcessorNode)
    }
    owners = {
        store: next(name for name, node in processors.items() if store in node.stores)
        for store, spec in topology.stores.items()
        if spec.caching and config.statestore_cache_max_bytes
    }
    stack = [processors[name] for name in owners.values()]
    found: set[str] = set()
    while stack:
        for name in stack.pop().children:
            if name in processors and name not in found:
                found.add(name)
                stack.append(processors[name])
    return frozenset(
        store
        for name in found
        for store in processors[name].stores
        if owners.get(store, name) in found
    )
