"""What is committed goes to disk, bit by bit."""

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
    """Write the stores of one task after the other, a step at a time. `stores` are those that are open."""

    def __init__(self, stores: Mapping[TaskId, TaskStores]) -> None:
        self._stores = stores
        self._steps: Iterator[None] | None = None
        self.task: TaskId | None = None
        self._last: TaskId | None = None
        # Those that were changed since they were asked whether they want to be written.
        self._changed: dict[TaskId, None] = {}
        # Those that had far more to write than they may when they had changed.
        self._behind: set[TaskId] = set()

    @property
    def busy(self) -> bool:
        """Whether a task is being written."""
        return self._steps is not None

    def begin(self, *, idle: bool = False, changed: Iterable[TaskId] | None = None) -> bool:
        """Find a task that is to be written, unless one is; return whether there is a first step to do.

        Only those that have `changed` are asked, by this call or one before it; all (None) when memory is short. They take turns: one that always has
        a little to write does not keep one waiting that has much.
        """
        now = dict.fromkeys(self._stores if changed is None else changed)
        self._changed.update(now)
        self._behind.update(task for task in now if self._is_behind(task))
        if self._steps is not None:
            return False
        if changed is not None and self._memory_is_short():
            self._changed.update(dict.fromkeys(self._stores))
        if self._last is not None and self._last in self._changed and len(self._changed) > 1:
            tasks = list(self._stores)
            after = tasks.index(self._last) + 1 if self._last in self._stores else 0
            self._changed = dict.fromkeys(task for task in (*tasks[after:], *tasks[:after]) if task in self._changed)
        for task in list(self._changed):
            stores = self._stores.get(task)
            if stores is not None and stores.wants_flush(idle):
                self._steps, self.task = stores.flush_steps(), task
                self._last = task
                return True
            del self._changed[task]
        return False

    def turn(self, clock: Callable[[], float]) -> bool:
        """Do one step, or as many as take longer than a worker's slice while writing is behind: so what is put waits for what is written."""
        if self.task is not None:
            self._behind.add(self.task)
        self._behind = {task for task in self._behind if self._is_behind(task)}
        until = clock() + _PRESSED_SECONDS if self._behind else None
        more = self.step()
        while until is not None and more and clock() < until:
            more = self.step()
        return more

    def step(self) -> bool:
        """Write a little; return whether there is more of this task. Raises what writing fails by: then the task is left as it is."""
        if self._steps is None:
            return False
        try:
            next(self._steps)
        except StopIteration:
            self._steps = self.task = None
            return False
        except Exception:
            self._steps = None
            raise
        return True

    def leave(self, tasks: Collection[TaskId]) -> None:
        """Write these no further."""
        if self.task in tasks:
            self._steps = self.task = None

    def _is_behind(self, task: TaskId) -> bool:
        stores = self._stores.get(task)
        return stores is not None and stores.behind

    def _memory_is_short(self) -> bool:
        """Tell whether memory is short, which no store has more of than before unless it has changed."""
        asked = (stores.memory_is_short for task in self._changed if (stores := self._stores.get(task)) is not None)
        return next((short for short in asked if short is not None), False)


@final
class Writing:
    """Write what is committed, a turn at a time, with turns of others in between; where a thread is at a task, between two of its slices.

    `soon` has `step` called in a moment, `failed` is told what writing fails by. What is restored waits in memory too, so whoever reads changelogs
    reads no more than `taken` is called for: not while there is far more in memory than may be, as long as writing helps.
    """

    def __init__(
        self,
        stores: Mapping[TaskId, TaskStores],
        residents: StoreRegistry,
        *,
        pausing: Callable[[], bool],
        clock: Callable[[], float],
        soon: Callable[[], None],
        failed: Callable[[TaskId | None, Exception], None],
        taken: Callable[[], object],
    ) -> None:
        self._stores = stores
        self._flusher = Flusher(stores)
        self._residents = residents
        self._pausing = pausing
        self._clock = clock
        self._soon = soon
        self._failed = failed
        self._taken = taken
        self._untold: int = 0
        self._idle: bool = False

    def begin(self, *, idle: bool = False, changed: Iterable[TaskId] | None = None) -> None:
        """Begin to write, if there is enough of what has `changed` (None: of all); all there is while `idle`, until this is called again."""
        self._idle = idle
        if self._flusher.begin(idle=idle, changed=changed):
            self._soon()
        self._go_on()

    def took_in(self, changed: Iterable[TaskId]) -> None:
        """Take note that what was read is in the stores."""
        self._untold += 1
        self.begin(changed=changed)

    def step(self) -> None:
        """Do a turn, unless workers stand still for a commit: they are not to wait for this."""
        flusher = self._flusher
        if not flusher.busy or (flusher.task is not None and self._residents.look_later(flusher.task, self.step)):
            return
        if self._pausing():
            self._soon()
            return
        try:
            more = flusher.turn(self._clock)
        except Exception as error:  # noqa: BLE001 - a full disk, for one: nothing is lost, the changelog has it
            self._failed(flusher.task, error)
            self._go_on()
        else:
            if more:
                self._soon()
            else:
                self.begin(idle=self._idle, changed=None if self._idle else ())

    def leave(self, tasks: Collection[TaskId]) -> None:
        """Write these no further."""
        self._flusher.leave(tasks)
        self._go_on()

    def _go_on(self) -> None:
        if self._flusher.busy and any(stores.pressing for stores in self._stores.values()):
            return
        untold, self._untold = self._untold, 0
        for _ in range(untold):
            self._taken()
