"""The actor that owns the stores."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, assert_never

from actors import Actor, ActorStopped, Mailbox, Signal, Started
from ks_actors._errors import TaskCorrupted
from ks_actors.records import TopicPartition
from ks_actors.runtime import messages as m
from ks_actors.runtime.messages import StateManagerMessage
from ks_actors.runtime.stores._checkpoints import Checkpoints
from ks_actors.runtime.stores._expired_offsets import continued
from ks_actors.runtime.stores._flusher import Writing
from ks_actors.runtime.stores._foreign_records import unrestored
from ks_actors.runtime.stores._state_commit import StateCommit
from ks_actors.runtime.stores._store_entry import StoreEntry
from ks_actors.task import TaskState, begin_anew, end_life, new_life

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from actors import Ref
    from ks_actors.log import Fetched
    from ks_actors.records import TaskId
    from ks_actors.runtime.snapshots import SnapshotSource
    from ks_actors.runtime.stores._restore_progress import Progress
    from ks_actors.runtime.stores._task_directories import Disk
    from ks_actors.state import TaskStores
    from ks_actors.task import RecordContextHolder, StoreRegistry, TaskLife

_IDLE_SECONDS = 10.0
# The restorer never blocks: only a stalled loop delays its answer.
_STOP_SECONDS = 60.0
_TURN_SECONDS = 0.002
# Pause between two flush steps, in which messages of a commit get their turn.
_REST_SECONDS = 0.001
_NONE: Mapping[str, str] = {}
_log = logging.getLogger("ks_actors")
STATE_MANAGER_MAILBOX = Mailbox(
    capacity=100_000,
    overflow="fail_system",
    urgent=(m.EncodeChangelog, m.PersistUnlogged, m.CommitSucceeded),
)


class StateManager(Actor[StateManagerMessage]):
    """The owner of every task's stores: it opens, restores, commits, flushes and closes them.

    A task is here while it restores or is a standby, and at the task manager while it is processed,
    never at both. Its stores are opened once and stay open through all roles. Blocking work runs in
    threads. Directories of absent tasks are deleted after `cleanup_seconds`.
    """

    def __init__(
        self,
        *,
        make: Callable[[TaskId], tuple[TaskStores | None, RecordContextHolder]],
        changelog: Callable[[str], str],
        restorer: Callable[[], Ref[m.RestorerMessage]],
        manager: Ref[m.TaskManagerMessage],
        collector: Ref[m.CollectorMessage],
        instance: Ref[m.InstanceMessage],
        progress: Progress,
        disk: Disk,
        cleanup_seconds: float,
        residents: StoreRegistry,
        work_time: Callable[[], float],
        pausing: Callable[[], bool],
        source: SnapshotSource | None = None,
        batch_bytes: int = 0,
        exact: bool = False,
    ) -> None:
        self._exact: bool = exact
        self._make = make
        self._changelog = changelog
        self._restorer = restorer
        self._manager = manager
        self._instance = instance
        self._progress = progress
        self._disk = disk
        self._cleanup_seconds = cleanup_seconds
        self._residents = residents
        self._work_time = work_time
        self._pausing = pausing
        self._source = source
        self._held: dict[TaskId, StoreEntry] = {}
        # The open ones.
        self._stores: dict[TaskId, TaskStores] = {}
        self._by_changelog: dict[TopicPartition, tuple[TaskId, str]] = {}
        self._writing = Writing(
            self._stores,
            residents,
            pausing=pausing,
            clock=work_time,
            soon=self._step_soon,
            failed=self._flush_failed,
            # The restorer may have stopped before all of its records were applied.
            taken=lambda: restorer().offer(m.TakenIn()),
        )
        self._commit = StateCommit(
            self._stores, changelog, collector, residents, self._turn, batch_bytes=batch_bytes
        )
        self._kept: int = 0

    def signal(self, signal: Signal) -> None:
        """Start the timers for idle flushes and cleanup."""
        if isinstance(signal, Started):
            self._points = Checkpoints(
                self._stores,
                self._residents,
                self._turn,
                self.ctx.blocking,
                self._point_in,
                self._pausing,
            )
            self.ctx.timers.every("idle", _IDLE_SECONDS, m.LookIdle())
            self.ctx.timers.every("cleanup", self._cleanup_seconds, m.CleanUp())

    def standby_stores(self) -> Mapping[TaskId, TaskStores]:
        """Return the open stores of the current standbys.

        Read them on the loop, and do not keep them over an `await`.
        """
        return {
            task: held.stores
            for task, held in self._held.items()
            if held.standing_by and held.is_open
        }

    async def let_go(self, blocking: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Close the stores that are still open after a failure.

        Call this only when all users of the stores have ended, which is later than this actor's
        end.
        """
        for held in self._held.values():
            # No open is awaited any more.
            # The opening may never finish now, and `_close_all` waits for this event.
            held.opened.set()
        for error in await self._close_all(tuple(self._held), blocking, clean=False):
            _log.warning("could not close stores: %s", error)

    async def receive(  # noqa: C901, PLR0912 - one branch per message
        self, message: StateManagerMessage
    ) -> None:
        """Open, restore, commit, flush and close stores."""
        match message:
            case m.OpenTask():
                self._begin(message)
            case m.OpenStandby():
                self._stand_by(message.task)
            case m.Recycle():
                await self._recycle(message)
            case m.AskOffsets():
                self._tell_offsets(message)
            case m.Opened():
                held = self._held.get(message.task)
                # It may be closed meanwhile, and opened again.
                if held is not None and held.opened.is_set() and not held.is_open:
                    self._read_on(held)
            case m.OpenFailed():
                await self._open_failed(message)
            case m.RestoredRecords():
                await self._take_in(message.fetched)
                self._writing.took_in(
                    found[0]
                    for one in message.fetched
                    if (found := self._by_changelog.get(one.partition)) is not None
                )
            case m.Restored():
                held = self._held.get(message.task)
                # A task that was closed and opened again has a newer order: this answer is about
                # the old one.
                if held is not None and held.restoring and held.ticket == message.ticket:
                    self._hand_over(held)
            case m.RestoreFailed():
                self._instance.tell(m.Fatal(message.error, rolled_back=False))
            case m.EncodeChangelog() | m.PersistUnlogged() | m.CommitSucceeded():
                await self._commit.take_part(message)
                if isinstance(message, m.CommitSucceeded):
                    self._kept += 1
                    self._writing.begin(changed=message.frozen.tokens)
            case m.LookIdle():
                self._writing.begin(idle=self._kept == 0)
                self._kept = 0
            case m.Corrupted():
                await self._start_over(message)
            case m.FlushStep():
                self._writing.step()
            case m.TakeCheckpoint() | m.CheckpointStep():
                await self._points.take_part(message)
            case m.CleanUp() | m.CleanedUp():
                self._clean_up(message)
            case m.CloseStores():
                await self._close(message)
            case _:
                assert_never(message)

    # --- open and restore -------------------------------------------------------------------------

    def _begin(self, order: m.OpenTask) -> None:
        """Open and restore a task; a standby continues from its state."""
        held = self._held.get(order.task)
        if held is None:
            self._open(order.task, order)
            return
        if not held.standing_by:
            return  # a failed task is given up with all others
        if held.is_open:
            # Before `order` is set: the entry must still count as a standby.
            self._progress.promoted(held, self._changelogs(held))
        held.order = order
        # The record context still has the state of the time when the task last ran here.
        held.current.begin_anew()
        if held.is_open:
            begin_anew(held.life)
            self._read_on(held)

    def _stand_by(self, task: TaskId) -> None:
        held = self._held.get(task)
        if held is None:
            self._open(task, None)

    def _open(
        self,
        task: TaskId,
        order: m.OpenTask | None,
        *,
        life: TaskLife | None = None,
        wiped: bool = False,
        unfit: Mapping[str, str] = _NONE,
    ) -> None:
        """Open the stores of a task; `life` is that of one that begins again."""
        stores, current = self._make(task)
        life = new_life(task) if life is None else begin_anew(life)
        if stores is None:
            if order is not None:
                # Nothing to restore: the task runs at once.
                self._manager.tell(
                    m.Assign(task, order.positions, None, current, order.assignment, life)
                )
            return
        held = self._held[task] = StoreEntry(task, stores, current, order, life)
        held.wiped, stores.unfit = wiped, unfit
        held.offsets = self._disk.used(task)
        self.ctx.pipe(
            self._open_stores(held), partial(_opened, task=task), partial(m.OpenFailed, task)
        )

    async def _open_stores(self, held: StoreEntry) -> None:
        try:
            await (
                self.ctx.blocking(held.stores.open)
                if self._source is None
                else self._source.open(held, self.ctx.blocking)
            )
        finally:
            # Also after a failure: closing waits for this event.
            held.opened.set()

    async def _open_failed(self, failed: m.OpenFailed) -> None:
        held = self._held.pop(failed.task, None)
        if held is None:
            return
        if isinstance(failed.error, TaskCorrupted) and not held.wiped:
            # Do not trust the files: the changelog has all of the state.
            await self._give_up(held, str(failed.error))
        else:
            end_life(held.life)
            self._disk.released(failed.task, held.offsets)
            self._instance.tell(m.Fatal(failed.error, rolled_back=False))

    async def _give_up(self, held: StoreEntry, reason: str) -> None:
        try:
            await self.ctx.blocking(partial(held.stores.give_up, reason))
        except Exception as error:  # noqa: BLE001 - a full disk, say: the handler decides
            self._instance.tell(m.Fatal(error, rolled_back=False))
        else:
            self._open(held.task, held.order, life=held.life, wiped=True)

    async def _start_over(self, message: m.Corrupted) -> None:
        """Give up stores of a task that restores or is a standby, and restore them."""
        held = self._held.get(message.task)
        if held is None or held.lent or not held.is_open:
            return
        unfit = {
            self._by_changelog[one][1]: reason
            for one, reason in message.changelogs.items()
            if one in self._by_changelog
        }
        # Removed before the first await, so that no other message finds the entry while it is
        # closed.
        del self._held[message.task]
        self._residents.leave(message.task)
        await self._forget(frozenset({message.task}))
        self._stores.pop(message.task, None)
        await self.ctx.blocking(partial(held.stores.close, clean=False))
        if unfit:
            # Only the stores that do not match are deleted; the others keep their files.
            self._open(held.task, held.order, life=held.life, unfit=unfit)
        else:
            await self._give_up(held, message.reason)

    def _changelogs(self, held: StoreEntry) -> dict[TopicPartition, str]:
        return {
            TopicPartition(self._changelog(name), held.task.partition): name
            for name in held.stores.logged
        }

    def _read_on(self, held: StoreEntry) -> None:
        """Have the changelogs of an open task read: to their ends, or for a standby without end."""
        task = held.task
        held.life.to(TaskState.RESTORING)
        if held.order is None:
            held.life.to(TaskState.RUNNING)
        self._stores[task] = held.stores
        held.is_open = True
        held.stores.restoring = held.order is not None
        # Answers of the restorer to earlier orders become stale.
        held.ticket += 1
        (self._residents.standby if held.order is None else self._residents.restoring)(
            task, held.stores
        )
        names = self._changelogs(held)
        self._by_changelog.update((changelog, (task, name)) for changelog, name in names.items())
        starts = {changelog: held.stores.next_offset(name) for changelog, name in names.items()}
        self._progress.started(held, names, starts)
        if held.order is None:
            self._restorer().tell(m.Follow(task, starts, held.ticket))
        elif starts:
            self._restorer().tell(m.Restore(task, starts, held.ticket))
        else:
            self._hand_over(held)

    async def _take_in(self, fetched: Sequence[Fetched]) -> None:
        began = await self._turn(None)
        for one in fetched:
            found = self._by_changelog.get(one.partition)
            held = None if found is None else self._held.get(found[0])
            if found is None or held is None or held.lent or held.failed:
                continue
            while held.standing_by and self._pausing():  # noqa: ASYNC110 - some ms at each commit
                # Workers pause for a commit: standbys can wait.
                await asyncio.sleep(_REST_SECONDS)
            try:
                held.stores.restore(found[1], one.batch, one.next_offset)
            except Exception as error:  # noqa: BLE001 - a foreign record, say: the handler decides
                held.failed = True
                self._instance.tell(
                    m.Fatal(
                        unrestored(held.task, held.stores, found[1], one, error), rolled_back=False
                    )
                )
                continue
            self._progress.moved(held, found[1], one)
            began = await self._turn(began)

    async def _turn(self, began: float | None) -> float:
        """Yield to other tasks when this turn was long; return its start time."""
        if began is not None and self._work_time() - began < _TURN_SECONDS:
            return began
        if began is not None:
            await asyncio.sleep(0)
        return self._work_time()

    def _hand_over(self, held: StoreEntry) -> None:
        order = held.order
        assert order is not None
        self._progress.ended(held, self._changelogs(held))
        # From here on the task manager owns the stores; this actor only commits, flushes and closes
        # them.
        held.lent = True
        held.stores.restoring = False
        positions = continued(held, order.positions, exact=self._exact)
        self._manager.tell(
            m.Assign(held.task, positions, held.stores, held.current, order.assignment, held.life)
        )
        # Much of the restored state may still be in memory: flush it, so that a crash costs less.
        self._writing.begin(changed=(held.task,))

    # --- standbys ---------------------------------------------------------------------------------

    async def _recycle(self, message: m.Recycle) -> None:
        for task in sorted(message.tasks):
            held = self._held.get(task)
            if held is None:
                self._open(task, None)
            elif not held.standing_by:
                await self._make_standby(held)
        message.reply.tell(None)

    async def _make_standby(self, held: StoreEntry) -> None:
        if held.restoring and held.is_open:
            self._progress.suspended(held, self._changelogs(held))
        held.order, held.lent, held.stores.restoring = None, False, False
        if held.is_open:
            try:
                # Uncommitted changes of the active role: the changelog that the standby follows
                # lacks them.
                held.stores.drop()
            except TaskCorrupted as spoiled:
                # Handled later like any corruption: `_recycle` must answer, or the handover stands
                # still.
                self.ctx.self_ref.tell(m.Corrupted(held.task, str(spoiled)))
            began = await self._turn(None)
            for _ in held.stores.settle_steps():
                began = await self._turn(began)
            begin_anew(held.life)
            self._read_on(held)

    def _tell_offsets(self, message: m.AskOffsets) -> None:
        here = {task: held.offset_sum for task, held in self._held.items() if not held.lent}
        message.reply.tell(
            {
                **self._disk.offsets,
                **{task: offsets for task, offsets in here.items() if offsets is not None},
            }
        )

    # --- to disk ----------------------------------------------------------------------------------

    def _flush_failed(self, task: TaskId | None, error: Exception) -> None:
        held = None if task is None else self._held.get(task)
        if isinstance(error, TaskCorrupted) and held is not None and held.standing_by:
            self.ctx.self_ref.tell(m.Corrupted(held.task, str(error)))
        else:
            self._instance.tell(m.Fatal(error, rolled_back=False))

    def _step_soon(self) -> None:
        # Not at once: a commit takes a few messages, and workers must not wait for a step at each.
        self.ctx.timers.once("flush", _REST_SECONDS, m.FlushStep())

    def _point_in(self, seconds: float) -> None:
        self.ctx.timers.once("point", seconds, m.CheckpointStep())

    def _clean_up(self, message: m.CleanUp | m.CleanedUp) -> None:
        if isinstance(message, m.CleanedUp):
            if message.error is not None:
                _log.warning(
                    "could not delete the directories of tasks that have left: %s",
                    message.error,
                )
            return
        aside = self._disk.set_old_aside(self._cleanup_seconds)
        if aside:
            self.ctx.pipe(
                self.ctx.blocking(partial(self._disk.delete, aside)), m.CleanedUp, m.CleanedUp
            )

    # --- the end ----------------------------------------------------------------------------------

    async def _close(self, message: m.CloseStores) -> None:
        wanted = [
            task
            for task, held in self._held.items()
            if (message.tasks is None or task in message.tasks)
            and (message.standbys or not held.standing_by)
        ]
        await self._forget(frozenset(wanted))
        errors = await self._close_all(wanted, self.ctx.blocking, clean=message.clean)
        if errors:
            message.reply.fail(errors[0])
        else:
            message.reply.tell(None)

    async def _forget(self, tasks: frozenset[TaskId]) -> None:
        """Stop reading and writing for these tasks."""
        # First of all: records that arrive after this would go into closed stores.
        with suppress(ActorStopped):  # then it restores nothing any more
            await self._restorer().ask(m.StopRestoring, tasks).within(_STOP_SECONDS)
        self._writing.leave(tasks)
        self._by_changelog = {
            changelog: owner
            for changelog, owner in self._by_changelog.items()
            if owner[0] not in tasks
        }

    async def _close_all(
        self,
        tasks: Collection[TaskId],
        blocking: Callable[[Callable[[], None]], Awaitable[None]],
        *,
        clean: bool,
    ) -> list[Exception]:
        errors: list[Exception] = []
        for task in sorted(tasks):
            held = self._held.pop(task)
            # Makes a running open give up early, for example the load of a large snapshot.
            held.stop.set()
            self._stores.pop(task, None)
            self._residents.leave(task)
            await held.opened.wait()  # never two threads at one store
            try:
                await blocking(partial(held.stores.close, clean=clean))
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                errors.append(error)
            end_life(held.life)
            # Even after a failed close: the offset on disk decides where the task goes next.
            self._disk.released(task, held.stores.stored_offset_sum)
            if held.is_open:
                self._progress.closed(held, self._changelogs(held))
        return errors


def _opened(_: None, task: TaskId) -> StateManagerMessage:
    return m.Opened(task)
