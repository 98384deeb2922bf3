"""The flush of committed state to disk, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from ks_actors.records import TaskId
    from ks_actors.state import TaskStores
    from ks_actors.task import StoreRegistry

_PRESSED_SECONDS = 0.010


@final
class Flusher:
    """The writer of tasks' stores, one task after the other, one step at a time.

    `stores` are the open stores.
    """

    def __init__(self, stores: Mapping[TaskId, TaskStores]) -> None:
        self._stores = stores
        self._steps: Iterator[None] | None = None
        self.task: TaskId | None = None
        self._last: TaskId | None = None
        # Tasks that changed since the last check for a needed flush.
        self._changed: dict[TaskId, None] = {}
        # Tasks that, at their last change, had far more to write than the limit.
        self._backlogged: set[TaskId] = set()

    @property
    def busy(self) -> bool:
        """Whether a task's flush is under way."""
        return self._steps is not None

    def begin(self, *, idle: bool = False, changed: Iterable[TaskId] | None = None) -> bool:
        """Choose a task to write, unless one is under way; return whether there is a first step.

        Consider only tasks that are `changed` in this call or were in earlier calls. For None, or
        if memory is short, consider all tasks. Tasks take turns: frequent small writes do not delay
        a large write.
        """
        now = dict.fromkeys(self._stores if changed is None else changed)
        self._changed.update(now)
        self._backlogged.update(task for task in now if self._is_backlogged(task))
        # Write one task at a time: RocksDB and the loop share the cores, and two flushes would only
        # slow each other down.
        if self._steps is not None:
            return False
        if changed is not None and self._memory_is_short():
            # All tasks share the budget: an idle task may hold the rows that must be evicted.
            self._changed.update(dict.fromkeys(self._stores))
        # Take turns: continue after the task that was written last.
        if self._last is not None and self._last in self._changed and len(self._changed) > 1:
            # `_stores` keeps the order in which the tasks were opened, which gives every task its
            # turn.
            tasks = list(self._stores)
            after = tasks.index(self._last) + 1 if self._last in self._stores else 0
            self._changed = dict.fromkeys(
                task for task in (*tasks[after:], *tasks[:after]) if task in self._changed
            )
        for task in list(self._changed):
            stores = self._stores.get(task)
            if stores is not None and stores.wants_flush(idle):
                self._steps, self.task = stores.flush_steps(), task
                self._last = task
                return True
            del self._changed[task]
        return False

    def turn(self, clock: Callable[[], float]) -> bool:
        """Do one step or, while the flush is behind, steps for longer than a worker's slice.

        New writes then wait for the flush, so that it catches up.
        """
        if self.task is not None:
            self._backlogged.add(self.task)
        self._backlogged = {task for task in self._backlogged if self._is_backlogged(task)}
        # Write for longer than a worker's slice: otherwise puts would be faster than writes, and
        # memory would grow.
        until = clock() + _PRESSED_SECONDS if self._backlogged else None
        more = self.step()
        while until is not None and more and clock() < until:
            more = self.step()
        return more

    def step(self) -> bool:
        """Write a little; return whether the task has more to write.

        Raises the error of a failed write; then `task` stays set.
        """
        if self._steps is None:
            return False
        try:
            next(self._steps)
        except StopIteration:
            self._steps = self.task = None
            return False
        except Exception:
            self._steps = None
            # `task` stays set, so that the caller can report which task failed.
            raise
        return True

    def leave(self, tasks: Collection[TaskId]) -> None:
        """Stop writing these tasks."""
        if self.task in tasks:
            self._steps = self.task = None

    def _is_backlogged(self, task: TaskId) -> bool:
        stores = self._stores.get(task)
        return stores is not None and stores.behind

    def _memory_is_short(self) -> bool:
        """Return whether memory is short; only stores that have changed can be the cause."""
        asked = (
            stores.memory_is_short
            for task in self._changed
            if (stores := self._stores.get(task)) is not None
        )
        return next((short for short in asked if short is not None), False)


@final
class Writing:
    """The schedule of flush steps, between the turns of other work.

    While a thread runs a task, steps run between two of its slices. `soon` schedules `step`;
    `failed` receives the error of a failed write. Restored records also wait in memory, so the
    restorer reads only as much as `taken` acknowledges. While memory holds far more than its limit
    and flushing helps, nothing is acknowledged.
    """

    def __init__(
        self,
        stores: Mapping[TaskId, TaskStores],
        store_registry: StoreRegistry,
        *,
        pausing: Callable[[], bool],
        clock: Callable[[], float],
        soon: Callable[[], None],
        failed: Callable[[TaskId | None, Exception], None],
        taken: Callable[[], object],
    ) -> None:
        self._stores = stores
        self._flusher = Flusher(stores)
        self._store_registry = store_registry
        self._pausing = pausing
        self._clock = clock
        self._soon = soon
        self._failed = failed
        self._taken = taken
        self._unacknowledged: int = 0
        self._idle: bool = False

    def begin(self, *, idle: bool = False, changed: Iterable[TaskId] | None = None) -> None:
        """Begin to write if the `changed` tasks (None: all) have enough pending state.

        When `idle`, write all pending state, until the next call.
        """
        self._idle = idle
        if self._flusher.begin(idle=idle, changed=changed):
            self._soon()
        self._go_on()

    def applied(self, changed: Iterable[TaskId]) -> None:
        """Count one message of restored records that the stores have applied."""
        self._unacknowledged += 1
        self.begin(changed=changed)

    def step(self) -> None:
        """Write for a turn, unless workers pause for a commit, which must not wait for this."""
        flusher = self._flusher
        if not flusher.busy or (
            # A thread has the task: `step` is called when it returns, so nothing is polled.
            flusher.task is not None
            and self._store_registry.call_on_return(flusher.task, self.step)
        ):
            return
        if self._pausing():
            self._soon()
            return
        try:
            more = flusher.turn(self._clock)
        except Exception as error:  # noqa: BLE001 - a full disk, say: the changelog has it all
            self._failed(flusher.task, error)
            self._go_on()
        else:
            if more:
                self._soon()
            else:
                # Look for the next task at once: nothing else starts the flush of changes that came
                # meanwhile.
                self.begin(idle=self._idle, changed=None if self._idle else ())

    def leave(self, tasks: Collection[TaskId]) -> None:
        """Stop writing these tasks."""
        self._flusher.leave(tasks)
        self._go_on()

    def _go_on(self) -> None:
        # No acknowledgement means no more restored records, until the flush has freed memory.
        if self._flusher.busy and any(stores.pressing for stores in self._stores.values()):
            return
        untold, self._unacknowledged = self._unacknowledged, 0
        for _ in range(untold):
            self._taken()
