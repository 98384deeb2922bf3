"""Who has the stores."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, assert_never

from actors import Actor, Mailbox, Signal, Started
from ks_actors._errors import StreamsError, TaskCorrupted
from ks_actors.log._types import Outgoing, TopicPartition
from ks_actors.runtime import _messages as m
from ks_actors.runtime._messages import StateManagerMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from actors import Ref
    from ks_actors._task_id import TaskId
    from ks_actors.log._types import Fetched
    from ks_actors.runtime._current import Current
    from ks_actors.runtime._residents import Residents
    from ks_actors.state import TaskStores

_IDLE_SECONDS = 10.0
_TURN_SECONDS = 0.002
_REST_SECONDS = 0.001
_log = logging.getLogger("ks_actors")
STATE_MANAGER_MAILBOX = Mailbox(capacity=100_000, overflow="fail_system", urgent=(m.Keep,))


class RestoreListener:
    """Hear how restoring goes; all methods do nothing unless overridden. Called on the event loop: they must not block."""

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Hear that a store begins to be restored from its changelog partition, from offset `start` (None: the beginning)."""

    def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
        """Hear that another `count` records are restored, up to before offset `end`."""

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """Hear that the store is restored, from `total` records."""


class _Opening:
    """A task on its way."""

    def __init__(self, message: m.OpenTask, stores: TaskStores | None, current: Current) -> None:
        self.message: m.OpenTask = message
        self.current: Current = current
        self.stores: TaskStores | None = stores
        self.retried: bool = False
        self.restored: dict[str, int] = {}
        self.opened: asyncio.Event = asyncio.Event()


class StateManager(Actor[StateManagerMessage]):
    """Own every store of every task: open and restore them, pass tasks on when they are ready, make commits final, write to disk bit by bit.

    A task is here while it restores, and at the task manager while it is processed, never at both. What blocks runs in threads.
    """

    def __init__(
        self,
        *,
        make: Callable[[TaskId], tuple[TaskStores | None, Current]],
        changelog: Callable[[str], str],
        restorer: Callable[[], Ref[m.RestorerMessage]],
        manager: Ref[m.TaskManagerMessage],
        collector: Ref[m.CollectorMessage],
        instance: Ref[m.InstanceMessage],
        listener: RestoreListener,
        residents: Residents,
        work_time: Callable[[], float],
        pausing: Callable[[], bool],
    ) -> None:
        self._make = make
        self._changelog = changelog
        self._restorer = restorer
        self._manager = manager
        self._collector = collector
        self._instance = instance
        self._listener = listener
        self._residents = residents
        self._work_time = work_time
        self._pausing = pausing
        self._opening: dict[TaskId, _Opening] = {}
        self._stores: dict[TaskId, TaskStores] = {}
        self._by_changelog: dict[TopicPartition, tuple[TaskId, str]] = {}
        self._steps: Iterator[None] | None = None
        self._stepping: TaskId | None = None
        self._kept: int = 0

    def signal(self, signal: Signal) -> None:
        """Look for idle times from the start on."""
        if isinstance(signal, Started):
            self.ctx.timers.every("idle", _IDLE_SECONDS, m.LookIdle())

    async def let_go(self, blocking: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Close what nobody has closed, after a failure: when all who may be at the stores have ended, which is not yet when this actor has."""
        for opening in self._opening.values():
            opening.opened.set()  # nothing is waited for any more
        for error in await self._close_all(self._all(), blocking, clean=False):
            _log.warning("closing stores failed: %s", error)

    async def receive(self, message: StateManagerMessage) -> None:  # noqa: C901, PLR0912 - one branch per message
        """Open, restore, keep, write, close."""
        match message:
            case m.OpenTask():
                self._open(message, retried=False)
            case m.Opened():
                self._restore(message.task)
            case m.OpenFailed():
                await self._open_failed(message)
            case m.RestoredRecords():
                self._apply(message.fetched)
            case m.Restored():
                self._hand_over(message.task)
            case m.RestoreFailed():
                self._instance.tell(m.Fatal(message.error, rolled_back=False))
            case m.EncodeChangelog() | m.PersistUnlogged() | m.Keep():
                await self._take_part(message)
            case m.LookIdle():
                if self._kept == 0:
                    self._begin_flush(idle=True)
                self._kept = 0
            case m.Corrupted():
                await self._start_over(message)
            case m.FlushStep():
                self._step()
            case m.CloseStores():
                await self._close(message)
            case _:
                assert_never(message)

    # --- a task is made -------------------------------------------------------------------------------------------------------

    def _open(self, message: m.OpenTask, *, retried: bool) -> None:
        stores, current = self._make(message.task)
        opening = self._opening[message.task] = _Opening(message, stores, current)
        opening.retried = retried
        if stores is None:
            self._hand_over(message.task)
        else:
            self.ctx.pipe(self._open_stores(stores, opening.opened), partial(_opened, task=message.task), partial(m.OpenFailed, message.task))

    async def _open_stores(self, stores: TaskStores, opened: asyncio.Event) -> None:
        try:
            await self.ctx.blocking(stores.open)
        finally:
            opened.set()

    async def _open_failed(self, failed: m.OpenFailed) -> None:
        opening = self._opening.pop(failed.task, None)
        if opening is None:
            return
        if isinstance(failed.error, TaskCorrupted) and opening.stores is not None and not opening.retried:
            # What is on disk is not to be trusted: the changelog has it all.
            await self._wipe(opening.message, opening.stores)
        else:
            self._instance.tell(m.Fatal(failed.error, rolled_back=False))

    async def _wipe(self, message: m.OpenTask, stores: TaskStores) -> None:
        try:
            await self.ctx.blocking(stores.wipe)
        except Exception as error:  # noqa: BLE001 - a disk that cannot be written, for one: the handler decides
            self._instance.tell(m.Fatal(error, rolled_back=False))
        else:
            self._open(message, retried=True)

    async def _start_over(self, message: m.Corrupted) -> None:
        """Wipe a task that restores, and restore all of it."""
        opening = self._opening.pop(message.task, None)
        stores = self._stores.pop(message.task, None)
        if opening is None or stores is None:
            return
        _log.warning("the state of task %s is wiped and restored: %s", message.task, message.reason)
        if self._stepping == message.task:
            self._steps = self._stepping = None
        self._residents.leave(message.task)
        await self.ctx.blocking(partial(stores.close, clean=False))
        await self._wipe(opening.message, stores)

    def _restore(self, task: TaskId) -> None:
        opening = self._opening.get(task)
        if opening is None or opening.stores is None:
            return
        stores = self._stores[task] = opening.stores
        self._residents.restoring(task, stores)
        changelogs: dict[TopicPartition, int | None] = {}
        for name in stores.logged:
            partition = TopicPartition(self._changelog(name), task.partition)
            self._by_changelog[partition] = (task, name)
            changelogs[partition] = stores.next_offset(name)
            self._listener.on_restore_start(partition, name, changelogs[partition])
        if changelogs:
            self._restorer().tell(m.Restore(task, changelogs))
        else:
            self._hand_over(task)

    def _apply(self, fetched: Sequence[Fetched]) -> None:
        for one in fetched:
            found = self._by_changelog.get(one.partition)
            if found is None or found[0] not in self._opening:
                continue
            task, name = found
            try:
                self._stores[task].restore(name, one.batch, one.next_offset)
            except Exception as error:  # noqa: BLE001 - a record that is none of this store's, for one: the handler decides
                del self._opening[task]
                topic, partition = one.partition
                failure = StreamsError(f"store {name} cannot be restored: {error}", task=task, topic=topic, partition=partition)
                failure.__cause__ = error
                self._instance.tell(m.Fatal(failure, rolled_back=False))
                continue
            restored = self._opening[task].restored
            restored[name] = restored.get(name, 0) + len(one.batch)
            self._listener.on_batch_restored(one.partition, name, one.next_offset, len(one.batch))
        self._begin_flush()

    def _hand_over(self, task: TaskId) -> None:
        opening = self._opening.pop(task, None)
        if opening is None:
            return
        for partition, (owner, name) in self._by_changelog.items():
            if owner == task:
                self._listener.on_restore_end(partition, name, opening.restored.get(name, 0))
        self._manager.tell(m.AssignTask(task, opening.message.positions, opening.stores, opening.current, opening.message.epoch))

    # --- a commit -------------------------------------------------------------------------------------------------------------

    async def _take_part(self, message: m.EncodeChangelog | m.PersistUnlogged | m.Keep) -> None:
        """Do a step of a commit."""
        try:
            match message:
                case m.EncodeChangelog():
                    await self._encode(message)
                case m.PersistUnlogged():
                    self._persist(message)
                case m.Keep():
                    self._keep(message)
                case _:
                    assert_never(message)
        except Exception as error:  # noqa: BLE001 - the committer decides what it means
            message.reply.fail(error)
        else:
            message.reply.tell(None)

    async def _encode(self, message: m.EncodeChangelog) -> None:
        began = self._work_time()
        for task, token in message.frozen.tokens.items():
            for name, batch in self._stores[task].changelog(token):
                self._collector.tell(m.Output((Outgoing(TopicPartition(self._changelog(name), task.partition), batch),), message.epoch))
                # Each time others have their turn may be as long as the slices of all workers: a commit of many records is not to wait for as many.
                if self._work_time() - began >= _TURN_SECONDS:
                    await asyncio.sleep(0)
                    began = self._work_time()

    def _persist(self, message: m.PersistUnlogged) -> None:
        for task, token in message.frozen.tokens.items():
            self._stores[task].persist_unlogged(token)

    def _keep(self, message: m.Keep) -> None:
        self._kept += 1
        for task, token in message.frozen.tokens.items():
            stores = self._stores.get(task)
            if stores is None:
                continue
            ends = {
                name: end for name in stores.logged if (end := message.ends.get(TopicPartition(self._changelog(name), task.partition))) is not None
            }
            stores.keep(token, ends)
            self._residents.committed(task, message.frozen)
        self._begin_flush()

    # --- to disk --------------------------------------------------------------------------------------------------------------

    def _begin_flush(self, *, idle: bool = False) -> None:
        if self._steps is not None:
            return
        for task, stores in self._stores.items():
            if stores.wants_flush(idle):
                self._steps, self._stepping = stores.flush_steps(), task
                self._step_soon()
                return

    def _step(self) -> None:
        """Write a little; others have their turn before the next step."""
        if self._steps is None:
            return
        if self._pausing():
            self._step_soon()
            return
        try:
            next(self._steps)
        except StopIteration:
            self._steps = self._stepping = None
            self._begin_flush()
        except Exception as error:  # noqa: BLE001 - a full disk, for one: nothing is lost, the changelog has it
            self._steps = self._stepping = None
            self._instance.tell(m.Fatal(error, rolled_back=False))
        else:
            self._step_soon()

    def _step_soon(self) -> None:
        # Not at once: a commit takes a few messages, and workers are not to stand still for a step at each of them.
        self.ctx.timers.once("flush", _REST_SECONDS, m.FlushStep())

    # --- the end --------------------------------------------------------------------------------------------------------------

    async def _close(self, message: m.CloseStores) -> None:
        wanted = self._all() if message.tasks is None else message.tasks
        self._restorer().tell(m.StopRestoring(None if message.tasks is None else message.tasks))
        if self._stepping in wanted:
            self._steps = self._stepping = None
        errors = await self._close_all(wanted, self.ctx.blocking, clean=message.clean)
        self._by_changelog = {partition: owner for partition, owner in self._by_changelog.items() if owner[0] not in wanted}
        if errors:
            message.reply.fail(errors[0])
        else:
            message.reply.tell(None)

    async def _close_all(
        self, tasks: frozenset[TaskId], blocking: Callable[[Callable[[], None]], Awaitable[None]], *, clean: bool
    ) -> list[Exception]:
        errors: list[Exception] = []
        for task in sorted(tasks):
            opening = self._opening.pop(task, None)
            stores = self._stores.pop(task, None) or (opening.stores if opening is not None else None)
            self._residents.leave(task)
            if stores is None:
                continue
            if opening is not None:
                await opening.opened.wait()  # two threads at one store would be one too many
            try:
                await blocking(partial(stores.close, clean=clean))
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                errors.append(error)
        return errors

    def _all(self) -> frozenset[TaskId]:
        both: Iterable[TaskId] = (*self._stores, *self._opening)
        return frozenset(both)


def _opened(_: None, task: TaskId) -> StateManagerMessage:
    return m.Opened(task)
