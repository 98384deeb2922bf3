"""How work becomes final."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar, assert_never

from actors import Actor, ActorStopped, AskTimeout, Mailbox, NoReply, Started
from ks_actors._errors import (
    Fenced,
    IllegalGeneration,
    NotRunning,
    StateError,
    TaskCorrupted,
    TaskMigrated,
    TaskTimeout,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from ks_actors.lifecycle import Outage, RetryBackoff, TaskBackoff, warn_if_slow
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit._awaited_commits import AwaitedCommits, answer
from ks_actors.runtime.commit._drains import lots, undrained
from ks_actors.runtime.commit._first_commit import LOOK_AGAIN_S, FirstCommit
from ks_actors.runtime.commit._phases import COMMITTING, Phase, TasksBroken, Uncertain
from ks_actors.runtime.input import missing_sources
from ks_actors.runtime.messages import CommitterMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from actors import Ask, Ref, Signal
    from ks_actors.log import OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.commit._purge import Purger
    from ks_actors.runtime.shared import Metrics

# The log's own error tells more than that of who waits for it, and comes first.
_GRACE = 10.0
COMMITTER_MAILBOX = Mailbox(capacity=10_000, overflow="fail_system")
_log = logging.getLogger("ks_actors")
T = TypeVar("T")


class Committer(Actor[CommitterMessage]):
    """Commit all active tasks at once, in the order that makes it exactly once.

    There is one producer per instance, so its transaction covers every task: they commit together or not at all. The order is that of the
    runtime design ("Committing Active Tasks"), with one change: workers resume as soon as the state is frozen, since what they produce from then on
    belongs to the next transaction and waits in the collector. Where that cannot be they stand still for the `whole` commit: with stores of the
    user's own, which do not tell the next transaction from the one that is being committed, and with stores of tasks that are processed in threads.

    A commit that fails is rolled back: what the log does not have, the state must not have either. Under exactly once, or when output was lost,
    all tasks go back to their last commit; they are given up, and the group is joined again, when somebody else owns them by now.
    """

    def __init__(
        self,
        *,
        transactional: bool,
        interval_ms: int,
        drain_ms: int,
        timeout_ms: int,
        epoch: int,
        instance: Ref[m.InstanceMessage],
        manager: Ref[m.TaskManagerMessage],
        state: Ref[m.StateManagerMessage],
        collector: Ref[m.CollectorMessage],
        poller: Callable[[], Ref[m.PollerMessage]],
        purger: Purger,
        matched: Callable[[Iterable[TopicPartition]], frozenset[str]],
        metrics: Metrics,
        whole: bool = False,
    ) -> None:
        self._whole: bool = whole
        self._transactional: bool = transactional
        self._interval: float = interval_ms / 1000
        self._drain: float = max(1, drain_ms) / 1000
        self._timeout: float = max(1, timeout_ms) / 1000
        self._epoch: int = epoch
        self._fetch_epoch: int = 0
        self._held: bool = False
        # Held until the group tells where it has moved on to, which may take it long: not only until tasks are handed over.
        self._moved_on: bool = False
        self._rebalancing: bool = False
        # Why the tasks cannot be committed any more: they are to be given up.
        self._void: Exception | None = None
        self._fruitful: bool = False
        self._rests = RetryBackoff()
        self._task_rests = TaskBackoff()
        self._outage = Outage(self._timeout)
        self._instance = instance
        self._manager = manager
        self._state = state
        self._collector = collector
        self._poller = poller
        self._purger = purger
        self._matched = matched
        self._metrics = metrics
        self._gathering = FirstCommit(metrics.tasks, lambda: metrics.touched().values())
        self._awaited = AwaitedCommits(lambda: self.ctx.self_ref.tell(m.Commit(None, "a task that a commit is waited for was fed meanwhile")))
        self._workers: tuple[Ref[m.WorkerMessage], ...] = ()
        self._phase = COMMITTING.start(Phase.IDLE)

    def signal(self, signal: Signal) -> None:
        """Start the timer."""
        if isinstance(signal, Started):
            self.ctx.timers.once("commit", self._interval, m.CommitTimer())

    async def receive(self, message: CommitterMessage) -> None:
        """Commit or roll back, one thing after the other."""
        match message:
            case m.Commit():
                await self._commit_when_due(message)
            case m.DeferCommits():
                self._held = message.held
                if not message.held:
                    self._rebalancing = self._moved_on = False
                    self._awaited.drop(self._metrics.tasks)  # tasks were handed over, if their commit has failed before they were at rest
                    self.ctx.unstash()
            case m.CommitTimer():
                self.ctx.timers.once("commit", await self._commit_by_time(), message)
            case m.WorkersChanged():
                self._workers = message.workers
                for worker in message.workers:
                    worker.tell(m.Resume(self._epoch))
            case m.Rollback():
                await self._roll_back_for(message)
            case m.Undrained():
                await self._fail_undrained(message)
            case m.EndCommits():
                self._void = NotRunning("the app closes: nothing is committed any more")
                self._follow_up(*self._awaited.fail(None, self._void))
                message.reply.tell(None)
            case m.Purged():
                self._purger.ended(message.error)
            case _:
                assert_never(message)

    # --- the procedure --------------------------------------------------------------------------------------------------------

    async def _commit_when_due(self, request: m.Commit) -> None:
        if request.given_up:
            return
        if self._void is not None:
            answer(request, self._void)
        elif self._moved_on and request.closing:
            answer(request, IllegalGeneration("the group has moved on, and the next owner of the tasks begins at the last commit"))
        elif self._held and not (request.hold or request.rebalancing):
            self.ctx.stash(request)
        else:
            await self._commit(request)
        if request not in self._awaited:
            self._follow_up(request)

    def _follow_up(self, *requests: m.Commit) -> None:
        self._held = self._held or any(request.hold for request in requests)
        self._rebalancing = self._rebalancing or any(request.rebalancing for request in requests)

    async def _commit_by_time(self) -> float:
        """Commit, unless that is better done a little later; return after how many seconds to look again."""
        if (error := self._outage.too_long(self.ctx.time())) is not None:
            self._instance.tell(m.Fatal(error, rolled_back=True))
        if self._held or self._void is not None:
            self._gathering.forget()
            return self._interval
        if not any(task.commit_needed or task.in_flight or task.held for task in self._metrics.tasks.values()):
            return self._interval  # nobody has to stand still for that
        if self._transactional and self._gathering.waits(self.ctx.time()):
            return LOOK_AGAIN_S
        began = self.ctx.time()
        await self._commit(m.Commit(None, "commit_interval_ms has gone by", due_only=True))
        return max(self._interval / 2, self._interval - (self.ctx.time() - began))  # a slow log is not committed to without a rest

    async def _commit(self, request: m.Commit) -> None:
        began, asked = perf_counter(), self.ctx.time()
        epoch = self._epoch
        self._phase.to(Phase.PAUSING)
        self._metrics.committing = True
        try:
            frozen = await self._freeze(request, began)
            if not frozen.tasks:
                self._go_on()
                self._phase.to(Phase.IDLE)
                self._serve(request, frozen)
                return
            self._phase.to(Phase.ENDING)
            await self._end(epoch, frozen)
            self._go_on()
        except Exception as error:  # noqa: BLE001 - whatever it was: what is not committed must not be kept
            answer(request, await self._recover(error, asked))
            return
        finally:
            self._metrics.committing = False
        self._phase.to(Phase.IDLE)
        if self._void is None:
            self._fruitful = True
            self._rests.succeeded()
            self._outage.over()
        self._metrics.committed(perf_counter() - began)
        self._serve(request, frozen)

    def _serve(self, request: m.Commit, frozen: m.Frozen) -> None:
        self._follow_up(*self._awaited.serve(request, frozen.left_out, self._metrics.tasks))

    async def _freeze(self, request: m.Commit, began: float) -> m.Frozen:
        """Let workers stand still, freeze what they have done, and let them go on in the next epoch."""
        if self._transactional:
            self._collector.tell(m.KeepBatches(lots(self._metrics.tasks.values())))
        try:
            await self._manager.ask(m.Drain, request.due_only or request.rebalancing or request.hold, request.calm).within(self._drain)
        except AskTimeout as late:
            raise undrained(self._metrics.tasks.values(), self._drain) from late
        self._metrics.pausing = True
        try:
            await self._pause()
            paused = perf_counter()
            self._phase.to(Phase.FREEZING)
            frozen = await self._wait("the tasks to be frozen", self._manager.ask(m.Freeze, self._transactional))
            if frozen.tasks:
                self._epoch += 1
            if not self._whole:
                self._resume()
            self._metrics.paused(perf_counter() - paused, paused - began)
        finally:
            self._metrics.pausing = False
        return frozen

    async def _end(self, epoch: int, frozen: m.Frozen) -> None:
        """Make the frozen state final: changelogs and output first, then the offsets, then the stores."""
        await self._wait("the stores' changes", self._state.ask(m.EncodeChangelog, frozen, epoch))
        ends = await self._wait("all that was produced to be written", self._collector.ask(m.Flush, epoch, lots(frozen.tasks.values())))
        if self._transactional:
            group = await self._wait("the group's generation", self._poller().ask(m.AskGroup))
            try:
                await self._wait("the transaction to be committed", self._collector.ask(m.CommitTransaction, frozen.positions, group))
            except (Fenced, IllegalGeneration, TransactionAborted):
                raise
            except Exception as error:
                raise Uncertain(missing_sources(error, self._matched(frozen.positions))) from error
        else:
            await self._state.ask(m.PersistUnlogged, frozen).within(self._timeout)
            try:
                await self._wait("the offsets to be committed", self._poller().ask(m.CommitOffsets, frozen.positions))
            except UnknownTopicOrPartition as error:
                raise missing_sources(error, self._matched(frozen.positions)) from error
        # From here on it has happened.
        self._collector.tell(m.NextEpoch(self._epoch))
        self._manager.tell(m.CommittedTasks(frozen.positions))
        self._purge(frozen.positions)
        try:
            if self._transactional:
                await self._state.ask(m.PersistUnlogged, frozen).within(self._timeout)
            await self._state.ask(m.CommitSucceeded, frozen, ends).within(self._timeout)
        except Exception as error:  # noqa: BLE001 - the log has it, the stores do not: they are opened anew, from the log
            self._void = error
            self._poller().tell(m.Rejoin(error))

    async def _wait(self, what: str, answer: Ask[T]) -> T:
        try:
            return await warn_if_slow("a commit", what, answer.within(self._timeout + _GRACE))
        except AskTimeout as late:
            raise TaskTimeout(f"a commit waited for {what} for {late.seconds:g} s: look what holds it up, or raise task_timeout_ms") from late

    def _purge(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        wanted = self._purger.due(positions, self.ctx.time())
        if wanted:
            self._purger.under_way = True
            self.ctx.pipe(self._purger.delete(wanted), m.Purged, m.Purged)

    async def _pause(self) -> None:
        for worker in self._workers:
            try:
                await warn_if_slow("a commit", f"{worker.path} to stand still", worker.ask(m.PauseForCommit, self._epoch).within(self._timeout))
            except (ActorStopped, NoReply):
                # It stands still for good; what it had leased is known to be broken.
                self._workers = tuple(each for each in self._workers if each is not worker)
            except AskTimeout as late:
                raise TaskTimeout(f"{worker.path} did not stand still for a commit within {self._timeout:g} s: a processor does not return") from late

    def _go_on(self) -> None:
        """Let workers go on that have stood still for the whole commit."""
        if self._whole and self._void is None:
            self._resume()

    def _resume(self, *, failed: bool = False) -> None:
        self._manager.tell(m.ResumeFeeding(failed))
        for worker in self._workers:
            worker.tell(m.Resume(self._epoch))

    # --- when it fails --------------------------------------------------------------------------------------------------------

    async def _recover(self, error: Exception, asked: float) -> Exception:
        """Go back to the last commit, for a commit `asked` for at that time has failed; return what the failure is to be called."""
        self._phase.to(Phase.IDLE)
        if isinstance(error, TasksBroken) and not self._transactional:
            # Nothing was frozen yet. That task alone is rolled back, when its supervisor asks for it.
            self._resume(failed=True)
            return error
        _log.warning("commit failed, everything since the last one is rolled back: %s", error)
        if isinstance(error, Uncertain):
            # What is committed only the log knows. Until the tasks have begun anew from there, nothing may be committed on top of what is known here.
            error = self._void = error.cause
        elif isinstance(error, StateError):
            # A database that could not be written does not take anything before it is opened anew.
            self._void = error
        elif isinstance(error, Fenced) or (isinstance(error, IllegalGeneration) and not self._rebalancing):
            migrated = TaskMigrated(f"the tasks belong to another member of the group by now: {error}")
            migrated.__cause__ = error
            error = self._void = migrated
        self._follow_up(*self._awaited.fail(None, error))
        try:
            await (self._roll_back(None, error, again=True) if self._void is None else self._drop_output())
        except Exception as worse:  # noqa: BLE001 - then nothing is certain any more
            self._void = worse
            self._instance.tell(m.Fatal(worse, rolled_back=False))
            return worse
        self._metrics.rolled_back += 1
        if isinstance(error, IllegalGeneration):
            # The group has moved on, and takes no commits before this member knows where to.
            self._held = self._moved_on = True
        if isinstance(error, TaskMigrated):
            self._poller().tell(m.Rejoin(error))
        elif self._void is error:
            self._instance.tell(m.Fatal(error, rolled_back=False))
        elif not (isinstance(error, (TasksBroken, IllegalGeneration, TransactionAborted)) or self._outage.bears(error, asked, self.ctx.time())):
            # Of a worker that died its supervisor knows by itself. A commit that came too late, for the group or for the log, is simply done again.
            self._instance.tell(m.Fatal(error, rolled_back=True))
        return error

    async def _roll_back_for(self, request: m.Rollback) -> None:
        fruitful = self._fruitful
        if request.give_up:
            self._held, self._moved_on, self._void, self._fruitful = True, True, None, False
            self._task_rests.forget()
            self._outage.over()
            self._follow_up(*self._awaited.fail(None, IllegalGeneration(str(request.cause))))
        else:
            self._follow_up(*self._awaited.fail(None if self._transactional else request.tasks, request.cause))
        try:
            await (self._drop_output() if request.give_up else self._roll_back(request.tasks, request.cause))
        except Exception as error:  # noqa: BLE001 - whoever asked decides
            self._void = error
            request.reply.fail(error)
        else:
            request.reply.tell(fruitful)

    async def _fail_undrained(self, message: m.Undrained) -> None:
        """Roll a task back whose calls do not end. No output of it is in a transaction: its output since its last commit was kept apart."""
        task = self._metrics.tasks.get(message.task)
        if self._void is not None or task is None or task.draining.since != message.since or task.drained:
            return
        error = undrained((task,), self._drain)
        self._follow_up(*self._awaited.fail((task.id,), error))
        try:
            await self._roll_back(frozenset({task.id}), error, alone=True)
        except Exception as worse:  # noqa: BLE001 - then nothing is certain any more
            self._void = worse
            self._instance.tell(m.Fatal(worse, rolled_back=False))
            return
        self._metrics.rolled_back += 1
        self._instance.tell(m.Fatal(error, rolled_back=True))

    async def _roll_back(self, tasks: frozenset[TaskId] | None, cause: Exception, *, again: bool = False, alone: bool = False) -> None:
        """Throw away what was done since the last commit, and fetch it again: after a rest if the commit fails `again` and again."""
        failed = next(iter(tasks)) if tasks else None
        self._metrics.failures[failed] = str(cause)
        if self._transactional and not alone:
            tasks = None
        _log.warning("going back to the last commit with %s: %s", "all tasks" if tasks is None else ", ".join(map(str, sorted(tasks))), cause)
        await self._pause()
        self._fetch_epoch += 1
        if tasks is None:
            await self._abort_output()
        # A commit that failed makes all rest, and a worker that died the task that it died of.
        rest = self._rests.next(self.ctx.time()) if again and not isinstance(cause, TasksBroken) else 0.0
        tasks_rest = 0.0 if again else self._task_rests.next(failed, cause, self.ctx.time())
        try:
            rewinding = self._manager.ask(m.Rewind, tasks, self._fetch_epoch, failed, tasks_rest)
            # The manager gives up on calls that do not end by itself, and tells which.
            positions = await warn_if_slow("a rollback", "calls in flight to end", rewinding.within(self._timeout + self._drain))
        except TaskCorrupted as spoiled:
            # Tasks are given up, and opened anew; until then nothing is committed. Workers go on: what they still have is waited for.
            self._void = spoiled
            self._resume(failed=True)
            self._poller().tell(m.Rejoin(spoiled))
            return
        await warn_if_slow(
            "a rollback", "fetching to go back", self._poller().ask(m.SeekAll, positions, self._fetch_epoch, rest).within(self._timeout)
        )
        self._resume(failed=not alone)

    async def _drop_output(self) -> None:
        """Throw away what was written since the last commit, of tasks that are given up anyway."""
        await self._abort_output()
        self._resume(failed=True)

    async def _abort_output(self) -> None:
        self._epoch += 1
        await self._wait("the transaction to be aborted", self._collector.ask(m.Abort, self._epoch))
