"""Consistent copies of a task's committed state, taken while commits go on."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, final

from ks_actors.runtime import messages as m
from ks_actors.system import Later
from ks_actors.task import Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from ks_actors.records import TaskId
    from ks_actors.state import TaskStores
    from ks_actors.task import RegisteredStores, StoreRegistry

if TYPE_CHECKING:
    from ks_actors import state
else:
    state = Later("ks_actors.state")

_REST_SECONDS = 0.001


@final
class Checkpoints:
    """The part of the state manager that takes checkpoints of tasks, one after the other.

    Committed state is written to the database in two rounds. Commits go on during the first round,
    so at its end the database has part of the newer commits. The second, short round writes the
    other commits while no commit is published. At its end the database has exactly the committed
    state, with known positions and offsets. Then its files are linked into another directory.

    Stores in memory are read as of that moment, by a reader that commits do not disturb. That
    excludes stores of tasks that are processed in threads.
    """

    def __init__(
        self,
        stores: Mapping[TaskId, TaskStores],
        store_registry: StoreRegistry,
        turn: Callable[[float | None], Awaitable[float]],
        blocking: Callable[[Callable[[], None]], Awaitable[None]],
        step_in: Callable[[float], None],
        pausing: Callable[[], bool],
    ) -> None:
        self._stores = stores
        self._store_registry = store_registry
        self._turn = turn
        self._blocking = blocking
        self._step_in = step_in
        self._pausing = pausing
        self._asked: deque[m.TakeCheckpoint] = deque()
        self._steps: Iterator[None] | None = None

    async def take_part(self, message: m.TakeCheckpoint | m.CheckpointStep) -> None:
        """Begin a checkpoint, or do its next step."""
        if isinstance(message, m.TakeCheckpoint):
            self._asked.append(message)
            if len(self._asked) == 1:
                self._step_in(_REST_SECONDS)
            return
        try:
            await self._step(self._asked[0])
        except Exception as error:  # noqa: BLE001 - the asker is told, the task is not harmed
            self._done().reply.fail(error)

    def _done(self) -> m.TakeCheckpoint:
        self._steps = None
        done = self._asked.popleft()
        if self._asked:
            self._step_in(_REST_SECONDS)
        return done

    async def _step(self, order: m.TakeCheckpoint) -> None:
        stores, registered = self._stores.get(order.task), self._store_registry.get(order.task)
        if stores is None or registered is None or registered.role is not Role.ACTIVE:
            self._done().reply.tell(None)
            return
        if self._steps is None:
            self._steps = stores.flush_steps()
        if self._store_registry.call_on_return(order.task, partial(self._step_in, 0)):
            return
        # Do nothing while workers pause for a commit: they must not wait for this step.
        if self._pausing() or next(self._steps, self) is not self:
            self._step_in(_REST_SECONDS)
            return
        point = await self._finish(order, stores, registered)
        self._done().reply.tell(point)

    async def _finish(
        self, order: m.TakeCheckpoint, stores: TaskStores, registered: RegisteredStores
    ) -> m.Checkpoint:
        began = await self._turn(None)
        readers = self._readers(stores, registered)
        for reader in readers.values():
            for _ in reader.prepare():
                began = await self._turn(began)
        steps = stores.point_steps()
        await self._store_registry.quiet(order.task)
        while next(steps, self) is not self:
            while self._pausing():  # noqa: ASYNC110 - some ms at each commit
                await asyncio.sleep(_REST_SECONDS)
            began = await self._turn(began)
            # Check again after every await: a thread may have taken the task meanwhile.
            await self._store_registry.quiet(order.task)
        # From here on, do not await until all is noted: no other task may run.
        rows = {name: state.committed_rows(reader) for name, reader in readers.items()}
        facts = {name: state.committed_facts(stores.store(name)) for name in readers}
        next_offsets = {name: stores.next_offset(name) or 0 for name in stores.logged}
        positions, metadata = dict(registered.positions), dict(registered.metadata)
        directory: Path | None = None
        if stores.on_disk:
            directory = order.directory
            await self._blocking(partial(stores.checkpoint, directory))
        return m.Checkpoint(
            order.task, stores, directory, next_offsets, positions, metadata, rows, facts
        )

    def _readers(self, stores: TaskStores, registered: RegisteredStores) -> dict[str, Any]:
        task = registered.processing
        if task is None or task.blocking:
            return {}
        names = [
            spec.name
            for spec in stores.specs
            if state.has_rows(spec) and stores.store(spec.name).engine is None
        ]
        return {name: state.reader_of(stores.store(name)) for name in names}
