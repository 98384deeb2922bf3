"""The stores of a task, and its run by one caller without actors."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import TaskTimeout
from ks_actors.processors.api import call_time
from ks_actors.records import Batch
from ks_actors.state import TaskStores, TopicIds
from ks_actors.task._offset_metadata import Position
from ks_actors.task._record_context import RecordContextHolder
from ks_actors.task._task import Task
from ks_actors.topology import StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.records import Headers, TaskId, TopicPartition
    from ks_actors.state import SharedResources
    from ks_actors.task._task_parts import TaskParts
    from ks_actors.topology import StoreSpec

GLOBAL = "global"
_NOTHING: Final = Batch([], [], [], None, ())
_NO_IDS: Final = MappingProxyType[str, str]({})


def make_stores(
    name: str,
    specs: Sequence[StoreSpec],
    *,
    directory: Path | None,
    shared: SharedResources | None,
    current: RecordContextHolder,
    expired: Callable[[int], None],
    topics: Mapping[str, str],
    exact: bool = False,
    vectors: bool = False,
    assigned: bool = True,
    topic_ids: Mapping[str, str] = _NO_IDS,
    filled_from: Mapping[str, str] | None = None,
) -> TaskStores | None:
    """Return the stores of a task, not yet open; None when it has none.

    `directory` is the directory of all tasks. `topic_ids` are the ids of the task's topics, as far
    as known. `filled_from` has the source topic of each store's rows, by default its changelog. The
    other parameters are passed to `TaskStores`.
    """
    if not specs:
        return None
    own = None if directory is None else directory / name
    origins = topics if filled_from is None else filled_from
    kept = [spec.name for spec in specs if spec.logging and spec.place is not StorePlace.MEMORY]

    def record_time() -> int:
        # While a call of an async processor runs, the task may be at any other record.
        time = call_time()
        return current.timestamp if time is None else time

    def record_headers() -> Headers:
        return current.headers if call_time() is None else ()

    return TaskStores(
        name,
        specs,
        directory=own,
        shared=shared,
        record_time=record_time,
        record_headers=record_headers,
        expired=expired,
        topics=topics,
        exact=exact,
        vectors=vectors,
        assigned=assigned,
        topic_ids=TopicIds(
            name,
            own if kept else None,
            {store: origins[store] for store in kept if store in origins},
            topic_ids,
        ),
    )


def task_directory(state_dir: Path, application_id: str) -> Path:
    """Return the directory of an application's tasks."""
    return state_dir / application_id


@final
class TaskRunner:
    """A task with stores of its own, for one caller without actors: a test driver or a backfill.

    The stores are in the folder `name` of `directory`, or in memory. A wait for async processors
    takes at most `wait_s`.
    """

    def __init__(self, task_id: TaskId, name: str, parts: TaskParts, *, wait_s: float) -> None:
        self.id: TaskId = task_id
        self.task: Task
        self.stores: TaskStores | None = None
        self._name: str = name
        self._parts = parts
        self._wait_s: float = wait_s
        self._woken = asyncio.Event()

    def start(
        self,
        specs: Sequence[StoreSpec],
        positions: Mapping[TopicPartition, int],
        *,
        directory: Path | None,
        shared: SharedResources | None,
    ) -> Task:
        """Open the stores, and start the task at the given offsets.

        Raises errors of the stores and of processors' `init`.
        """
        current = RecordContextHolder()
        stores = make_stores(
            self._name,
            specs,
            directory=directory,
            shared=shared,
            current=current,
            expired=self.expired,
            topics={spec.name: self._parts.topics.changelog(spec.name) for spec in specs},
        )
        if stores is not None:
            stores.open()
            self.stores = stores
        places = {partition: Position(offset) for partition, offset in positions.items()}
        self.task = Task(
            self.id, self._parts, places, stores, wake=self._woken.set, current=current
        )
        self.task.start()
        return self.task

    def expired(self, count: int) -> None:
        """Count rows that came too late for a store."""
        self.task.dropped += count

    def note_empty(self) -> None:
        """Note that no partition has records yet: no task has to wait for them."""
        for partition, queue in self.task.group.queues.items():
            self.task.add(partition, _NOTHING, queue.position, queue.position)

    def share_stores(self) -> None:
        """Let processors of other tasks read the stores, which belong to global tables."""
        if (stores := self.stores) is not None:
            self._parts.global_stores.update({name: stores.store(name) for name in stores.names})

    async def wait(self) -> None:
        """Wait for an async processor to finish a record. Raises TaskTimeout."""
        task = self.task
        self._woken.clear()
        if task.can_drain:
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._woken.wait()
        except TimeoutError as late:
            raise TaskTimeout(
                f"{', '.join(task.busy_nodes())} still has {task.in_flight} records in flight "
                f"after {self._wait_s:g} s",
                task=self.id,
            ) from late

    def close_stores(self, *, clean: bool) -> None:
        """Close the stores, if there are any; a second call does nothing."""
        stores, self.stores = self.stores, None
        if stores is not None:
            stores.close(clean=clean)
