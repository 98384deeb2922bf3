"""The actor that owns the stores."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from actors import Actor, ActorStopped, Mailbox, Signal, Started
from ks_actors._errors import SerializationError, StreamsError, TaskCorrupted
from ks_actors.lifecycle import component_log
from ks_actors.records import TopicPartition
from ks_actors.runtime import messages as m
from ks_actors.runtime.messages import StateManagerMessage
from ks_actors.runtime.stores._checkpoints import Checkpoints
from ks_actors.runtime.stores._expired_offsets import continued
from ks_actors.runtime.stores._flusher import Writing
from ks_actors.runtime.stores._openings import Openings
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
    from ks_actors.runtime.stores._store_entry import StoresStatus
    from ks_actors.runtime.stores._task_directories import TaskDirectories
    from ks_actors.state import TaskStores
    from ks_actors.task import RecordContextHolder, StoreRegistry, TaskLife

_IDLE_SECONDS = 10.0
# The restorer never blocks, so only a stalled event loop delays its answer.
_STOP_SECONDS = 60.0
_TURN_SECONDS = 0.002
# Pause between two flush steps, in which messages of a commit are handled.
_REST_SECONDS = 0.001
_NONE: Mapping[str, str] = {}
_log = component_log(__name__)
STATE_MANAGER_MAILBOX = Mailbox(
    capacity=100_000,
    overflow="fail_system",
    urgent=(m.EncodeChangelog, m.PersistUnlogged, m.CommitSucceeded),
)
_OF_RECORDS: Final = (ValueError, TypeError, struct.error, SerializationError)
_SHOWN: Final = 64


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
        task_directories: TaskDirectories,
        cleanup_seconds: float,
        store_registry: StoreRegistry,
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
        self._task_directories = task_directories
        self._cleanup_seconds = cleanup_seconds
        self._store_registry = store_registry
        self._work_time = work_time
        self._pausing = pausing
        self._source = source
        self._entries: dict[TaskId, StoreEntry] = {}
        # The stores that are open.
        self._stores: dict[TaskId, TaskStores] = {}
        self._by_changelog: dict[TopicPartition, tuple[TaskId, str]] = {}
        self._writing = Writing(
            self._stores,
            store_registry,
            pausing=pausing,
            clock=work_time,
            soon=self._step_soon,
            failed=self._flush_failed,
            # The restorer may have stopped before all of its records were applied.
            taken=lambda: restorer().offer(m.RecordsApplied()),
        )
        self._commit = StateCommit(
            self._stores, changelog, collector, store_registry, self._turn, batch_bytes=batch_bytes
        )
        self._commits: int = 0

    def signal(self, signal: Signal) -> None:
        """Start the timers for idle flushes and cleanup."""
        if isinstance(signal, Started):
            self._checkpoints = Checkpoints(
                self._stores,
                self._store_registry,
                self._turn,
                self.ctx.blocking,
                self._checkpoint_in,
                self._pausing,
            )
            self._openings = Openings(self.ctx.blocking)
            self.ctx.timers.every("idle", _IDLE_SECONDS, m.LookIdle())
            self.ctx.timers.every("cleanup", self._cleanup_seconds, m.CleanUp())

    def standby_stores(self) -> Mapping[TaskId, TaskStores]:
        """Return the open stores of the current standbys.

        Read them on the loop, and do not keep them over an `await`.
        """
        return {
            task: entry.stores
            for task, entry in self._entries.items()
            if entry.standing_by and entry.is_open
        }

    def status(self) -> dict[TaskId, StoresStatus]:
        """Return the status of the stores of each task; callable from any thread."""
        return {task: entry.status for task, entry in tuple(self._entries.items())}

    @property
    def damaged(self) -> bool:
        """Whether an open task has stores whose data on disk cannot be read any more."""
        return any(stores.damaged for stores in self._stores.values())

    async def let_go(self, blocking: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Close the stores that are still open after a failure.

        Call this only when all users of the stores have ended, which is later than this actor's
        end.
        """
        for entry in self._entries.values():
            # No open is awaited any more.
            # The opening may never finish now, and `_close_all` waits for this event.
            entry.opened.set()
        for error in await self._close_all(tuple(self._entries), blocking, clean=False):
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
                self._report_offsets(message)
            case m.StoresOpened():
                entry = self._entries.get(message.task)
                # The task may have been closed meanwhile, and opened again.
                if entry is not None and entry.opened.is_set() and not entry.is_open:
                    self._read_on(entry)
            case m.OpenFailed():
                await self._open_failed(message)
            case m.RestoredRecords():
                await self._take_in(message.fetched)
                self._writing.applied(
                    found[0]
                    for one in message.fetched
                    if (found := self._by_changelog.get(one.partition)) is not None
                )
            case m.TaskRestored():
                entry = self._entries.get(message.task)
                # If the task was closed and opened again, it has a newer order, and this answer is
                # about the old order.
                if entry is not None and entry.restoring and entry.order_id == message.order_id:
                    self._hand_over(entry)
            case m.RestoreFailed():
                self._instance.tell(m.Fatal(message.error, rolled_back=False))
            case m.EncodeChangelog() | m.PersistUnlogged() | m.CommitSucceeded():
                await self._commit.take_part(message)
                if isinstance(message, m.CommitSucceeded):
                    # Idle flushes are for apps that commit nothing for a while: other apps flush at
                    # commits.
                    self._commits += 1
                    self._writing.begin(changed=message.frozen.tokens)
            case m.LookIdle():
                self._writing.begin(idle=self._commits == 0)
                self._commits = 0
            case m.StoresCorrupted():
                await self._start_over(message)
            case m.FlushStep():
                self._writing.step()
            case m.TakeCheckpoint() | m.CheckpointStep():
                await self._checkpoints.take_part(message)
            case m.CleanUp() | m.CleanUpEnded():
                self._clean_up(message)
            case m.CloseStores():
                await self._close(message)
            case _:
                assert_never(message)

    # --- open and restore -------------------------------------------------------------------------

    def _begin(self, order: m.OpenTask) -> None:
        """Open and restore a task; a standby continues from its state."""
        entry = self._entries.get(order.task)
        if entry is None:
            self._open(order.task, order)
            return
        if not entry.standing_by:
            return  # a failed task is given up with all others
        if entry.is_open:
            # Report this before `order` is set: the entry must still count as a standby.
            self._progress.promoted(entry, self._changelogs(entry))
        entry.order = order
        # Reset the record context: it still has the state from when the task last ran here.
        entry.current.begin_anew()
        if entry.is_open:
            begin_anew(entry.life)
            self._read_on(entry)

    def _stand_by(self, task: TaskId) -> None:
        entry = self._entries.get(task)
        if entry is None:
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
        """Open the stores of a task; `life` is the life of a task that begins again."""
        stores, current = self._make(task)
        life = new_life(task) if life is None else begin_anew(life)
        if stores is None:
            if order is not None:
                # Nothing to restore: the task runs at once.
                self._manager.tell(
                    m.Assign(task, order.positions, None, current, order.assignment, life)
                )
            return
        entry = self._entries[task] = StoreEntry(task, stores, current, order, life)
        entry.wiped, stores.unfit = wiped, unfit
        entry.offsets = self._task_directories.used(task)
        self.ctx.pipe(
            self._open_stores(entry), lambda _: m.StoresOpened(task), partial(m.OpenFailed, task)
        )

    async def _open_stores(self, entry: StoreEntry) -> None:
        try:
            if self._source is not None:
                await self._source.open(entry, self.ctx.blocking)
            elif entry.stores.opens_fast:
                await self._openings.run(entry.stores.open)
            else:
                await self.ctx.blocking(entry.stores.open)
        finally:
            # Set this event even after a failure, because closing waits for it.
            entry.opened.set()

    async def _open_failed(self, failed: m.OpenFailed) -> None:
        entry = self._entries.pop(failed.task, None)
        if entry is None:
            return
        if isinstance(failed.error, TaskCorrupted) and not entry.wiped:
            # Do not trust the files: the changelog has all of the state.
            await self._give_up(entry, str(failed.error))
        else:
            end_life(entry.life)
            self._task_directories.released(failed.task, entry.offsets)
            self._instance.tell(m.Fatal(failed.error, rolled_back=False))

    async def _give_up(self, entry: StoreEntry, reason: str) -> None:
        try:
            await self.ctx.blocking(partial(entry.stores.give_up, reason))
        except Exception as error:  # noqa: BLE001 - a full disk, say: the handler decides
            self._instance.tell(m.Fatal(error, rolled_back=False))
        else:
            self._open(entry.task, entry.order, life=entry.life, wiped=True)

    async def _start_over(self, message: m.StoresCorrupted) -> None:
        """Give up stores of a task that restores or is a standby, and restore them."""
        entry = self._entries.get(message.task)
        if entry is None or entry.lent or not entry.is_open:
            return
        unfit = {
            self._by_changelog[one][1]: reason
            for one, reason in message.changelogs.items()
            if one in self._by_changelog
        }
        # Removed before the first await, so that no other message finds the entry while it is
        # closed.
        del self._entries[message.task]
        self._store_registry.leave(message.task)
        await self._forget(frozenset({message.task}))
        self._stores.pop(message.task, None)
        try:
            await self.ctx.blocking(partial(entry.stores.close, clean=False))
        except Exception as error:  # noqa: BLE001 - its only copy is damaged, say: the handler decides
            end_life(entry.life)
            self._task_directories.released(message.task, entry.offsets)
            self._instance.tell(m.Fatal(error, rolled_back=False))
            return
        if unfit:
            # Only the stores that do not match are deleted; the others keep their files.
            self._open(entry.task, entry.order, life=entry.life, unfit=unfit)
        else:
            await self._give_up(entry, message.reason)

    def _changelogs(self, entry: StoreEntry) -> dict[TopicPartition, str]:
        return {
            TopicPartition(self._changelog(name), entry.task.partition): name
            for name in entry.stores.logged
        }

    def _read_on(self, entry: StoreEntry) -> None:
        """Have the changelogs of an open task read: to their ends, or for a standby without end."""
        task = entry.task
        entry.life.to(TaskState.RESTORING)
        if entry.order is None:
            entry.life.to(TaskState.RUNNING)
        self._stores[task] = entry.stores
        entry.is_open = True
        # Queries may read a standby's stores. In the stores of a restoring task, queries would find
        # old values.
        entry.stores.restoring = entry.order is not None
        # Answers of the restorer to earlier orders become stale.
        entry.order_id += 1
        (self._store_registry.standby if entry.order is None else self._store_registry.restoring)(
            task, entry.stores
        )
        names = self._changelogs(entry)
        # Do this before the order to read: records may arrive with the next message.
        self._by_changelog.update((changelog, (task, name)) for changelog, name in names.items())
        starts = {changelog: entry.stores.next_offset(name) for changelog, name in names.items()}
        self._progress.started(entry, names, starts)
        if entry.order is None:
            self._restorer().tell(m.Follow(task, starts, entry.order_id))
        elif starts:
            self._restorer().tell(m.Restore(task, starts, entry.order_id))
        else:
            self._hand_over(entry)

    async def _take_in(self, fetched: Sequence[Fetched]) -> None:
        began = await self._turn(None)
        for one in fetched:
            found = self._by_changelog.get(one.partition)
            entry = None if found is None else self._entries.get(found[0])
            # Skip records that were on their way when their store was closed, handed over or given
            # up.
            if found is None or entry is None or entry.lent or entry.failed:
                continue
            while entry.standing_by and self._pausing():  # noqa: ASYNC110 - some ms at each commit
                # Workers pause for a commit: standbys can wait.
                await asyncio.sleep(_REST_SECONDS)
            try:
                entry.stores.restore(found[1], one.batch, one.next_offset)
            except Exception as error:  # noqa: BLE001 - a foreign record, say: the handler decides
                entry.failed = True
                self._instance.tell(
                    m.Fatal(
                        unrestored(entry.task, entry.stores, found[1], one, error),
                        rolled_back=False,
                    )
                )
                continue
            self._progress.moved(entry, found[1], one)
            began = await self._turn(began)

    async def _turn(self, began: float | None) -> float:
        """Yield to other tasks when this turn was long; return its start time."""
        if began is not None and self._work_time() - began < _TURN_SECONDS:
            return began
        if began is not None:
            await asyncio.sleep(0)
        return self._work_time()

    def _hand_over(self, entry: StoreEntry) -> None:
        order = entry.order
        assert order is not None
        self._progress.ended(entry, self._changelogs(entry))
        # From here on the task manager owns the stores; this actor only commits, flushes and closes
        # them.
        entry.lent = True
        entry.stores.restoring = False
        positions = continued(entry, order.positions, exact=self._exact)
        self._manager.tell(
            m.Assign(
                entry.task, positions, entry.stores, entry.current, order.assignment, entry.life
            )
        )
        # Much of the restored state may still be in memory: flush it, so that a crash costs less.
        self._writing.begin(changed=(entry.task,))

    # --- standbys ---------------------------------------------------------------------------------

    async def _recycle(self, message: m.Recycle) -> None:
        # In order, so that a seed of a test repeats the schedule.
        for task in sorted(message.tasks):
            entry = self._entries.get(task)
            if entry is None:
                self._open(task, None)
            elif not entry.standing_by:
                await self._make_standby(entry)
        message.reply.tell(None)

    async def _make_standby(self, entry: StoreEntry) -> None:
        if entry.restoring and entry.is_open:
            self._progress.suspended(entry, self._changelogs(entry))
        entry.order, entry.lent, entry.stores.restoring = None, False, False
        if entry.is_open:
            try:
                # Uncommitted changes of the active role: the changelog that the standby follows
                # lacks them.
                entry.stores.drop()
            except TaskCorrupted as spoiled:
                # Handle this error later, like any corruption: `_recycle` must answer, or the
                # handover hangs.
                self.ctx.self_ref.tell(m.StoresCorrupted(entry.task, str(spoiled)))
            began = await self._turn(None)
            # The changelog's records must follow all changes that the active task has committed.
            for _ in entry.stores.compact_steps():
                began = await self._turn(began)
            begin_anew(entry.life)
            self._read_on(entry)

    def _report_offsets(self, message: m.AskOffsets) -> None:
        here = {task: entry.offset_sum for task, entry in self._entries.items()}
        message.reply.tell(
            {
                **self._task_directories.offsets,
                **{task: offsets for task, offsets in here.items() if offsets is not None},
            }
        )

    # --- to disk ----------------------------------------------------------------------------------

    def _flush_failed(self, task: TaskId | None, error: Exception) -> None:
        entry = None if task is None else self._entries.get(task)
        if isinstance(error, TaskCorrupted) and entry is not None and entry.standing_by:
            self.ctx.self_ref.tell(m.StoresCorrupted(entry.task, str(error)))
        else:
            self._instance.tell(m.Fatal(error, rolled_back=False))

    def _step_soon(self) -> None:
        # Pause before the step: a commit takes a few messages, and workers must not wait for a step
        # at each of them.
        self.ctx.timers.once("flush", _REST_SECONDS, m.FlushStep())

    def _checkpoint_in(self, seconds: float) -> None:
        self.ctx.timers.once("point", seconds, m.CheckpointStep())

    def _clean_up(self, message: m.CleanUp | m.CleanUpEnded) -> None:
        if isinstance(message, m.CleanUpEnded):
            if message.error is not None:
                _log.warning(
                    "could not delete the directories of tasks that have left: %s",
                    message.error,
                )
            return
        directories = self._task_directories
        if directories.old(self._cleanup_seconds * 1000) or directories.left():
            self.ctx.pipe(self._delete_old(), m.CleanUpEnded, m.CleanUpEnded)

    async def _delete_old(self) -> None:
        """Delete the directories that nobody has used for long."""
        directories, seconds = self._task_directories, self._cleanup_seconds
        # `look` takes some ms per directory, so it runs in a thread; tasks that return cannot
        # interfere with the rename, which runs on the loop.
        found = await self.ctx.blocking(partial(directories.look, directories.old(seconds * 1000)))
        aside = directories.set_old_aside(seconds, found)
        await self.ctx.blocking(partial(directories.delete, aside))

    # --- the end ----------------------------------------------------------------------------------

    async def _close(self, message: m.CloseStores) -> None:
        # A database of all tasks that has failed is opened again once all of them are closed.
        every = message.standbys or (message.tasks is None and self._task_directories.failed)
        wanted = {
            task: entry.standing_by
            for task, entry in self._entries.items()
            if (message.tasks is None or task in message.tasks) and (every or not entry.standing_by)
        }
        await self._forget(frozenset(wanted))
        errors = await self._close_all(wanted, self.ctx.blocking, clean=message.clean)
        if not message.standbys:
            for task in sorted(task for task, standing_by in wanted.items() if standing_by):
                self._open(task, None)
        if errors:
            message.reply.fail(errors[0])
        else:
            message.reply.tell(None)

    async def _forget(self, tasks: frozenset[TaskId]) -> None:
        """Stop reading and writing for these tasks."""
        # Stop reading first: records that arrive later would go into closed stores.
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
            entry = self._entries.pop(task)
            # This ends a running open early, for example the load of a large snapshot.
            entry.stop.set()
            self._stores.pop(task, None)
            self._store_registry.leave(task)
            await entry.opened.wait()  # never two threads at one store
            try:
                await blocking(partial(entry.stores.close, clean=clean))
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                errors.append(error)
            end_life(entry.life)
            # Report the offset on disk even after a failed close: it decides which member gets the
            # task next.
            self._task_directories.released(task, entry.stores.stored_offset_sum)
            if entry.is_open:
                self._progress.closed(entry, self._changelogs(entry))
        return errors


def unrestored(
    task: TaskId, stores: TaskStores, store: str, fetched: Fetched, error: Exception
) -> StreamsError:
    """Return the error for a batch that a store could not restore.

    It names the record, unless the fault lies with the machine.
    """
    topic, partition = fetched.partition
    batch, offset, why = fetched.batch, None, ""
    for index in range(len(batch)) if isinstance(error, _OF_RECORDS) else ():
        try:
            stores.restore(store, batch.slice(index, index + 1), batch.offsets[index] + 1)
        except Exception as one:  # noqa: BLE001 - it is the same as before, by itself
            error, offset, key = one, batch.offsets[index], batch.keys[index]
            shown = key if key is None else key[:_SHOWN]
            why = (
                f"; the record with key {shown!r} does not fit this store: something else has "
                "written to the changelog, or the kind or serdes of the store were changed. Undo "
                "that change, or reset the application to start over"
            )
            break
    failure = StreamsError(
        f"store {store} cannot be restored: {error}{why}",
        task=task,
        topic=topic,
        partition=partition,
        offset=offset,
    )
    failure.__cause__ = error
    return failure
