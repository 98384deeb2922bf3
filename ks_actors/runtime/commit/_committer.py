"""The committer actor."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeVar, assert_never

from actors import Actor, ActorStopped, AskTimeout, Mailbox, NoReply, Started
from ks_actors._counted import counted
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
from ks_actors.history import CommitClock, Done
from ks_actors.lifecycle import Outage, RetryBackoff, TaskBackoff, component_log, warn_if_slow
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit._awaited_commits import AwaitedCommits, answer
from ks_actors.runtime.commit._changelog_ends import ChangelogEnds
from ks_actors.runtime.commit._commit_timing import CommitTiming
from ks_actors.runtime.commit._drains import output_ids, undrained
from ks_actors.runtime.commit._states import (
    COMMITTING,
    Permission,
    Phase,
    TasksBroken,
    Uncertain,
)
from ks_actors.runtime.fetching import missing_sources
from ks_actors.runtime.messages import CommitterMessage
from ks_actors.runtime.output import RecordsLeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from actors import Ask, Ref, Signal
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.commit._twins import Twins
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import Frozen

# Time for the log's own error to come first: that error says more than this timeout.
_GRACE = 10.0
_LEAST_S = 0.005
# A new worker is paused until the committer learns of it, and the next commit may wait for the task
# of that worker.
COMMITTER_MAILBOX = Mailbox(capacity=10_000, overflow="fail_system", urgent=(m.WorkersChanged,))
_log = component_log(__name__)
T = TypeVar("T")


class Committer(Actor[CommitterMessage]):
    """Commit all active tasks at once, in the order that gives exactly-once.

    There is one producer per instance, so its transaction covers every task: they commit together
    or not at all. The order is that of the runtime design ("Committing Active Tasks"), with one
    change: workers resume as soon as the state is frozen. Their output from then on belongs to the
    next transaction and waits in the collector. Workers pause for the `whole` commit if there are
    custom stores, which cannot separate the next transaction from the current one, or if threads
    process tasks with stores. A commit does not wait for a thread at work: it leaves out that task,
    like a task with long calls in flight.

    A failed commit is rolled back: the state must not have records that the log lacks. Under
    exactly-once, or when output was lost, all tasks rewind to their last commit. If another member
    owns the tasks by now, the instance closes the tasks and rejoins the group.
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
        member: Callable[[], Ref[m.MemberMessage]],
        twins: Twins,
        matched: Callable[[Iterable[TopicPartition]], frozenset[str]],
        metrics: Metrics,
        whole: bool = False,
    ) -> None:
        self._whole: bool = whole
        self._transactional: bool = transactional
        self._drain: float = max(1, drain_ms) / 1000
        self._timeout: float = max(1, timeout_ms) / 1000
        self._epoch: int = epoch
        self._fetch_epoch: int = 0
        self._permission = Permission()
        self._made_progress: bool = False
        self._backoff = RetryBackoff()
        self._task_backoff = TaskBackoff()
        self._outage = Outage(self._timeout)
        self._instance = instance
        self._manager = manager
        self._state = state
        self._collector = collector
        self._member = member
        self._changelog_ends = ChangelogEnds()
        self._twins = twins
        self._matched = matched
        self._metrics = metrics
        self._timing = CommitTiming(metrics, interval_ms / 1000, transactional=transactional)
        self._awaited = AwaitedCommits(
            lambda: self.ctx.self_ref.tell(
                m.Commit(None, "a task that the commit waits for received records meanwhile")
            )
        )
        self._workers: tuple[Ref[m.WorkerMessage], ...] = ()
        # Workers that the last pause has left at work in their threads.
        self._unpaused: Collection[Ref[m.WorkerMessage]] = ()
        self._phase = COMMITTING.start(Phase.IDLE)

    @property
    def phase(self) -> Phase:
        """The phase of the commit under way; IDLE without one."""
        return self._phase.state

    def signal(self, signal: Signal) -> None:
        """Start the timer."""
        if isinstance(signal, Started):
            self._set_timer(self._timing.interval)

    def _set_timer(self, seconds: float) -> None:
        self._timing.due = self.ctx.time() + seconds
        self.ctx.timers.once("commit", seconds, m.CommitTimer())

    async def receive(self, message: CommitterMessage) -> None:
        """Commit or roll back, one request after the other."""
        match message:
            case m.Commit():
                await self._commit_when_due(message)
            case m.AllowCommits():
                self._permission.open()
                # Tasks may have left before they were at rest, if their commit failed.
                self._awaited.drop(self._metrics.tasks)
                self.ctx.unstash()
            case m.CommitTimer():
                # Wait even with an interval of 0. Otherwise the loop would spin while there is
                # nothing to commit, or while the group allows no commit.
                self._set_timer(max(_LEAST_S, await self._commit_by_time()))
            case m.WorkBegins():
                self._set_timer(self._timing.after(self.ctx.time()))
            case m.WorkersChanged():
                self._workers = message.workers
                # A new worker is paused until it knows the epoch; the other workers know it
                # already.
                for worker in message.workers:
                    worker.tell(m.Resume(self._epoch))
            case m.Rollback():
                await self._roll_back_for(message)
            case m.DrainStalled():
                await self._fail_undrained(message)
            case m.EndCommits():
                closed = NotRunning("the app is closing: it makes no more commits")
                self._permission.withdraw(closed)
                self._awaited.fail(None, closed)
                message.reply.tell(None)
            case _:
                assert_never(message)

    # --- the procedure ----------------------------------------------------------------------------

    async def _commit_when_due(self, request: m.Commit) -> None:
        if request.given_up:
            return
        if self._permission.allows(request):
            await self._commit(request)
        elif (error := self._permission.refusal(request)) is not None:
            answer(request, error)
        else:
            self.ctx.stash(request)
        self._permission.follow(request)

    async def _commit_by_time(self) -> float:
        """Commit, or put the commit off a little; return the seconds until the next check."""
        request = m.Commit(None, "commit_interval_ms has passed", due_only=True)
        allowed, now = self._permission.allows(request), self.ctx.time()
        if (seconds := self._timing.wait(now, allowed=allowed)) is not None:
            away = self._metrics.unreachable_ms() / 1000
            if error := self._outage.too_long(now, away, idle=self._timing.idle):
                self._instance.tell(m.Fatal(error, rolled_back=True))
            return seconds
        await self._commit(request)
        return self._timing.next(self.ctx.time())

    async def _commit(self, request: m.Commit) -> None:
        clock, asked = CommitClock(request.reason), self.ctx.time()
        # The epoch that this commit ends. `_freeze` raises `self._epoch` for output that comes
        # after it.
        epoch = self._epoch
        # From here on a failure rolls back, whatever the step.
        self._phase.to(Phase.PAUSING)
        self._metrics.committing = True
        try:
            frozen = await self._freeze(request, clock)
            # No task was at rest or had anything to commit, so do not open an empty transaction.
            if frozen.tasks:
                self._phase.to(Phase.ENDING)
                await self._end(epoch, frozen, clock)
            if self._whole and self._permission.void is None:
                self._resume()
        except Exception as error:  # noqa: BLE001 - any error: uncommitted work must not be kept
            self._metrics.commit_failed(clock, error)
            answer(request, await self._recover(error, asked))
            return
        finally:
            self._metrics.committing = False
        self._phase.to(Phase.IDLE)
        if frozen.tasks:
            self._note_success(frozen, clock)
        self._awaited.serve(request, frozen.left_out, self._metrics.tasks)

    def _note_success(self, frozen: Frozen, clock: CommitClock) -> None:
        if self._permission.void is None:
            self._made_progress = True
            self._backoff.succeeded()
            self._outage.over()
        self._metrics.committed(clock, len(frozen.tasks), len(frozen.left_out))
        _log.debug(
            "committed %s in %.1f ms; %d are not at rest and were left out",
            counted(len(frozen.tasks), "task"),
            clock.took_ms,
            len(frozen.left_out),
        )

    async def _freeze(self, request: m.Commit, clock: CommitClock) -> Frozen:
        """Pause the workers, freeze their state, and resume them in the next epoch."""
        if self._transactional:
            # Output of tasks that were given up or restarted must not get into this transaction. A
            # message without an answer is enough: the collector's mailbox keeps it ahead of the
            # flush below.
            self._collector.tell(m.KeepBatches(output_ids(self._metrics.tasks.values())))
        # The manager fails this request when the drains that the commit waits for make no progress.
        await self._manager.ask(
            m.Drain, request.due_only or request.rebalancing or request.hold, request.calm
        ).within(inf)
        clock.end("drain")
        self._metrics.pausing = True
        try:
            await self._pause(self._metrics.in_threads())
            clock.end("pause")
            self._phase.to(Phase.FREEZING)
            frozen = await self._wait(
                "the tasks to be frozen", self._manager.ask(m.Freeze, self._transactional)
            )
            # The epoch changes before the workers resume, so that no output of theirs can be taken
            # for output of this commit. An empty commit does not change the epoch, because no flush
            # of that epoch follows.
            if frozen.tasks:
                self._epoch += 1
            if not self._whole:
                self._resume()
            clock.end("freeze")
            self._metrics.paused(clock)
        finally:
            self._metrics.pausing = False
        return frozen

    async def _end(self, epoch: int, frozen: Frozen, clock: CommitClock) -> None:
        """Make the frozen state final: changelogs and output first, then offsets, then stores."""
        known = await self._wait(
            "the stores' changes", self._state.ask(m.EncodeChangelog, frozen, epoch)
        )
        clock.end("changelogs")
        # The flush comes first: offsets may be committed only after the output that they stand for.
        written = await self._wait(
            "all output to be written",
            self._collector.ask(m.Flush, epoch, output_ids(frozen.tasks.values())),
        )
        clock.end("flush")
        clock.wrote(written.values())
        self._changelog_ends.check(known, written)
        if self._transactional:
            group = await self._wait("the group's generation", self._member().ask(m.AskGroup))
            try:
                await self._wait(
                    "the transaction to be committed",
                    self._collector.ask(m.CommitTransaction, frozen.positions, group),
                )
            except IllegalGeneration:
                now = await self._wait("the group's generation", self._member().ask(m.AskGroup))
                if now.member_id == group.member_id and now.generation > group.generation:
                    # The commit took so long that the member is in the next generation, and still
                    # has the tasks.
                    self._permission.come_too_late()
                raise
            except (Fenced, TransactionAborted):
                # The coordinator has refused the commit, so it is known that nothing is committed.
                raise
            except Exception as error:
                # Any other failure may have come after the coordinator wrote its decision.
                raise Uncertain(missing_sources(error, self._matched(frozen.positions))) from error
        else:
            # Under at-least-once, stores without a changelog go to disk before the offsets. A crash
            # in between repeats records, but never loses state that the offsets include.
            await self._state.ask(m.PersistUnlogged, frozen).within(self._timeout)
            try:
                await self._wait(
                    "the offsets to be committed",
                    self._member().ask(m.CommitOffsets, frozen.positions),
                )
            except UnknownTopicOrPartition as error:
                raise missing_sources(error, self._matched(frozen.positions)) from error
        clock.end("transaction" if self._transactional else "offsets")
        # From here on the commit is final.
        self._twins.committed()
        # Output of the next epoch was held back until now: in this transaction it would count twice
        # after a failure.
        self._collector.tell(m.NextEpoch(self._epoch))
        self._manager.tell(m.CommittedTasks(frozen.positions))
        try:
            # Under exactly-once, stores without a changelog go to disk after the offsets: state
            # ahead of an uncommitted transaction would count records twice.
            if self._transactional:
                await self._state.ask(m.PersistUnlogged, frozen).within(self._timeout)
            ends = {partition: one.end for partition, one in written.items()}
            await self._state.ask(m.CommitSucceeded, frozen, ends).within(self._timeout)
            clock.end("stores")
        except Exception as error:  # noqa: BLE001 - only the log has it: stores reopen from it
            self._permission.withdraw(error)
            self._member().tell(m.Rejoin(error))

    async def _wait(self, what: str, answer: Ask[T]) -> T:
        try:
            return await warn_if_slow("a commit", what, answer.within(self._timeout + _GRACE))
        except AskTimeout as late:
            raise TaskTimeout(
                f"a commit waited for {what} for {late.seconds:g} s: find out why that takes so "
                "long, or raise task_timeout_ms"
            ) from late

    async def _pause(self, but_for: Collection[Ref[m.WorkerMessage]] = ()) -> None:
        """Pause the workers, except `but_for`.

        The excepted workers are processing in threads, and get no leases until feeding resumes.
        Raises TaskTimeout for a worker that does not pause within `task_timeout_ms`.
        """
        self._unpaused = but_for
        for worker in self._workers:
            if worker in but_for:
                continue
            try:
                await warn_if_slow(
                    "a commit",
                    f"{worker.path} to pause",
                    worker.ask(m.PauseForCommit, self._epoch).within(self._timeout),
                )
            except (ActorStopped, NoReply):
                # The worker is dead; its leased tasks are known to be broken. Asking this worker
                # again would fail the retry, too.
                self._workers = tuple(each for each in self._workers if each is not worker)
            except AskTimeout as late:
                raise TaskTimeout(
                    f"{worker.path} did not pause for a commit within {self._timeout:g} s: one of "
                    "its processors does not return: find the function that blocks, or raise "
                    "task_timeout_ms"
                ) from late

    def _resume(self, *, failed: bool = False) -> None:
        self._manager.tell(m.ResumeFeeding(failed, self._epoch))
        for worker in self._workers:
            # A worker that is busy in its thread would collect such a message for each of many
            # commits.
            if worker not in self._unpaused:
                worker.tell(m.Resume(self._epoch))

    # --- when it fails ----------------------------------------------------------------------------

    async def _recover(self, error: Exception, asked: float) -> Exception:
        """Roll back after a failed commit; return the error to report.

        `asked` is the time of the request for the commit.
        """
        self._phase.to(Phase.IDLE)
        if isinstance(error, TasksBroken) and not self._transactional:
            # Nothing was frozen yet. The supervisor asks to roll back this task alone.
            self._resume(failed=True)
            return error
        _log.warning("commit failed; all work since the last commit is rolled back: %s", error)
        if (reason := self._reason_to_give_up(error)) is not None:
            error = reason
            self._permission.withdraw(error)
        self._awaited.fail(None, error)
        try:
            await (
                self._roll_back(None, error, again=True)
                if self._permission.void is None
                else self._drop_output()
            )
        except Exception as worse:  # noqa: BLE001 - then nothing is certain any more
            self._permission.withdraw(worse)
            self._instance.tell(m.Fatal(worse, rolled_back=False))
            return worse
        self._metrics.rolled_back += 1
        self._metrics.history.exceptions.note(error, kind="commit", done=Done.RETRIED)
        if isinstance(error, IllegalGeneration) and self._permission.void is None:
            self._permission.lose_generation()
        if isinstance(error, TaskMigrated):
            self._member().tell(m.Rejoin(error))
        elif self._permission.void is error:
            self._instance.tell(m.Fatal(error, rolled_back=False))
        elif not (
            isinstance(error, (TasksBroken, IllegalGeneration, RecordsLeftOut))
            or self._outage.bears(error, asked, self.ctx.time())
        ):
            # The supervisor handles the death of a worker. A commit that came too late for the
            # group is repeated in the group's next generation. An outage of the log may last for
            # some time.
            self._instance.tell(m.Fatal(error, rolled_back=True))
        return error

    def _reason_to_give_up(self, error: Exception) -> Exception | None:
        """Return why the tasks cannot be committed any more; None if a commit may be repeated."""
        if isinstance(error, Uncertain):
            # Only the log knows whether this is committed. Commit nothing on top of the local state
            # until the tasks have restarted from the log: a rejoin reads the committed offsets.
            return error.cause
        if isinstance(error, StateError):
            # A database that failed to write takes no writes until it is reopened.
            return error
        if isinstance(error, Fenced) and (twin := self._twins.fenced(error)) is not None:
            return twin
        if isinstance(error, Fenced) or (
            isinstance(error, IllegalGeneration) and not self._permission.may_come_too_late
        ):
            migrated = TaskMigrated(f"the tasks belong to another member of the group now: {error}")
            migrated.__cause__ = error
            return migrated
        return None

    async def _roll_back_for(self, request: m.Rollback) -> None:
        made_progress = self._made_progress
        if request.give_up:
            self._permission.lose_generation()
            self._made_progress = False
            self._task_backoff.forget()
            self._outage.over()
            self._awaited.fail(None, IllegalGeneration(str(request.cause)))
        else:
            self._awaited.fail(None if self._transactional else request.tasks, request.cause)
        try:
            await (
                self._drop_output()
                if request.give_up
                else self._roll_back(request.tasks, request.cause)
            )
        except Exception as error:  # noqa: BLE001 - whoever asked decides
            self._permission.withdraw(error)
            request.reply.fail(error)
        else:
            request.reply.tell(made_progress)

    async def _fail_undrained(self, message: m.DrainStalled) -> None:
        """Roll back a task with calls that do not end.

        No transaction has output of the task: all of it since the last commit was kept apart. If a
        thread processes the task, do not roll back but let the handler decide: a thread cannot be
        stopped, and a rollback would wait for it.
        """
        task = self._metrics.tasks.get(message.task)
        if (
            self._permission.void is not None
            or task is None
            or task.draining.since != message.since
            or task.drained
            # The task has made progress while this message waited for a commit.
            or self.ctx.time() < task.draining.moved + message.seconds
        ):
            return
        error = undrained((task,), message.seconds)
        self._awaited.fail((task.id,), error)
        if task.thread_guard.since is not None:
            self._instance.tell(m.Fatal(error, rolled_back=True))
            return
        try:
            await self._roll_back(frozenset({task.id}), error, alone=True)
        except Exception as worse:  # noqa: BLE001 - then nothing is certain any more
            self._permission.withdraw(worse)
            self._instance.tell(m.Fatal(worse, rolled_back=False))
            return
        self._metrics.rolled_back += 1
        self._instance.tell(m.Fatal(error, rolled_back=True))

    async def _roll_back(
        self,
        tasks: frozenset[TaskId] | None,
        cause: Exception,
        *,
        again: bool = False,
        alone: bool = False,
    ) -> None:
        """Discard the work since the last commit, and fetch it again.

        If the commit has failed `again`, pause first.
        """
        failed = next(iter(tasks)) if tasks else None
        self._metrics.failures[failed] = str(cause)
        # One transaction has the output of all tasks, so a failure of one aborts the work of all.
        if self._transactional and not alone:
            tasks = None
        _log.warning(
            "rolling back to the last commit, with %s: %s",
            "all tasks" if tasks is None else ", ".join(map(str, sorted(tasks))),
            cause,
        )
        # A worker in the middle of a slice would write into the state that is about to be rewound.
        await self._pause()
        # Fetches under way bring records from before the rewind: the new epoch makes them stale.
        self._fetch_epoch += 1
        if tasks is None:
            await self._abort_output()
        # After a failed commit all tasks pause; after a worker's death only the task that killed
        # the worker.
        rest = (
            self._backoff.next(self.ctx.time())
            if again and not isinstance(cause, TasksBroken)
            else 0.0
        )
        tasks_rest = 0.0 if again else self._task_backoff.next(failed, cause, self.ctx.time())
        try:
            rewinding = self._manager.ask(m.Rewind, tasks, self._fetch_epoch, failed, tasks_rest)
            # The manager itself gives up on calls that do not end, and names them.
            rewound = await warn_if_slow(
                "a rollback",
                "calls in flight to end",
                rewinding.within(self._timeout + self._drain),
            )
        except TaskCorrupted as spoiled:
            # The tasks are given up and reopened; until then nothing is committed. Workers resume:
            # the handover waits for their leases.
            self._permission.withdraw(spoiled)
            self._resume(failed=True)
            self._member().tell(m.Rejoin(spoiled))
            return
        await warn_if_slow(
            "a rollback",
            "fetching to rewind",
            self._member().ask(m.SeekAll, *rewound, self._fetch_epoch, rest).within(self._timeout),
        )
        self._resume(failed=not alone)

    async def _drop_output(self) -> None:
        """Discard the output since the last commit, of tasks that are given up anyway."""
        await self._abort_output()
        self._resume(failed=True)

    async def _abort_output(self) -> None:
        # Messages with output of the old epoch may still be on their way to the collector, which
        # drops them.
        self._epoch += 1
        await self._wait("the transaction to be aborted", self._collector.ask(m.Abort, self._epoch))
