"""The worker actor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never

from actors import Actor, Mailbox, Started
from ks_actors.config import ProcessingGuarantee
from ks_actors.lifecycle import component_log, passes
from ks_actors.metrics import Timing
from ks_actors.runtime.messages import (
    CloseWorker,
    Lease,
    NextTask,
    Output,
    PauseForCommit,
    Resume,
    TaskDone,
    WorkerMessage,
)
from ks_actors.task import Gathered, uncaught

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors import Ref, Signal
    from ks_actors.config import StreamsConfig
    from ks_actors.metrics import Window
    from ks_actors.records import TaskId
    from ks_actors.runtime.messages import CollectorMessage, TaskManagerMessage
    from ks_actors.runtime.output import DeadLetterWriter
    from ks_actors.task import Clocks, Task

# Both are urgent, so that neither overtakes the other.
WORKER_MAILBOX = Mailbox(capacity=64, overflow="fail_system", urgent=(PauseForCommit, Resume))
_log = component_log(__name__)


class WorkerFigures:
    """A worker's work so far, measured by slices of tasks."""

    def __init__(self, window: Window, started_ms: int, *, detailed: bool) -> None:
        self.started_ms: int = started_ms
        self.records: int = 0
        # In seconds.
        self.processing: float = 0.0
        self.punctuating: float = 0.0
        # In ms per record, in records per slice, and in ms per call.
        self.record_times: Timing = Timing(window)
        self.slice_records: Timing = Timing(window)
        self.punctuator_times: Timing = Timing(window)
        self._detailed = detailed

    def note(self, task: Task, records: int, seconds: float, calls: int, called: float) -> None:
        """Note a task's slice.

        Before it, the task had `calls` of punctuators, which took `called` seconds in all.
        """
        task.busy += seconds
        if records:
            self.records += records
            self.record_times.add(seconds * 1000 / records, records)
            self.slice_records.add(records)
            if self._detailed:
                task.record_times.add(seconds / records, records)
        if (new := task.punctuator_times.count - calls) > 0:
            punctuating = task.punctuator_times.total - called
            self.punctuator_times.add(punctuating * 1000 / new, new)
            self.punctuating += punctuating
            seconds -= punctuating
        self.processing += seconds


class Worker(Actor[WorkerMessage]):
    """Process leased tasks, a slice at a time; own nothing in between.

    A task with blocking functions is processed in the worker's own thread. The output of a slice
    goes to the collector in one message, except output kept apart by task. The message carries the
    epoch of its commit. The committer sends the epoch; until then, a new worker is paused.

    An error out of a task ends the worker after it has given back the other tasks of the lease. The
    supervisor handles that end. Under at-least-once, the worker first writes the dead letters of
    the failed record. Under exactly-once, these letters are void. A task asks for a commit when its
    stores exceed the worker's share of uncommitted bytes.
    """

    def __init__(
        self,
        name: str,
        manager: Ref[TaskManagerMessage],
        collector: Ref[CollectorMessage],
        letters: Callable[[], DeadLetterWriter],
        config: StreamsConfig,
        clocks: Clocks,
        window: Window,
    ) -> None:
        self.name: str = name
        self.at: Task | None = None
        self._manager = manager
        self._collector = collector
        self._letters: Callable[[], DeadLetterWriter] | None = (
            None if config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else letters
        )
        self._seconds: float = config.worker_slice_ms / 1000
        self._epoch: int = 0
        self.uncommitted_bytes: int = -1
        self._wall_time: Callable[[], int] = clocks.wall_time
        self._work_time: Callable[[], float] = clocks.work_time
        self.figures: WorkerFigures = WorkerFigures(
            window, clocks.wall_time(), detailed=config.metrics_recording_level != "INFO"
        )
        # The epoch is unknown at first, and output without an epoch could get into the wrong
        # transaction.
        self._paused: bool = True

    def signal(self, signal: Signal) -> None:
        """Report for work when started."""
        if isinstance(signal, Started):
            self._manager.tell(NextTask(self.ctx.self_ref))

    async def receive(self, message: WorkerMessage) -> None:
        """Process, pause, resume, or close."""
        match message:
            case Lease():
                # Leases sent before the pause arrive after it; they keep their order for `unstash`.
                if self._paused:
                    self.ctx.stash(message)
                else:
                    # The worker may have missed pauses of commits while it was in its thread.
                    self._epoch = max(self._epoch, message.epoch)
                    await self._work(message)
            case PauseForCommit():
                # This is always between two slices, as a worker handles one message after the
                # other.
                self._paused = True
                message.reply.tell(self.name)
            case Resume():
                self._epoch = message.epoch
                self._paused = False
                self.ctx.unstash()
            case CloseWorker():
                self.ctx.stop()
            case _:
                assert_never(message)

    async def _work(self, lease: Lease) -> None:
        """Process the tasks one after the other, until the slice is over."""
        output = Gathered()
        done: dict[TaskId, float] = {}
        records, clock = 0, self._work_time
        until = (now := clock()) + self._seconds
        for task in lease.tasks:
            # The first task always gets a turn, so every lease makes progress.
            if done and now >= until:
                break
            # A task that broke while the lease waited could not be rolled back: its handover waits
            # for this lease.
            began = now
            if not task.broken:
                called = task.punctuator_times
                calls, spent = called.count, called.total
                try:
                    self.at = task
                    work = self._drain if lease.draining else self._slice
                    new = (
                        await self._in_thread(task, partial(work, task, until - now))
                        if task.blocking
                        else work(task, until - now)
                    )
                    self._write(task, output)
                    now = clock()
                    self.figures.note(task, new, now - began, calls, spent)
                    records += new
                except BaseException as raised:
                    # Set before anything else can see the task: its state may be in the middle of a
                    # record.
                    task.broken = True
                    self._give_back(lease, done, records, output, failed=task)
                    if isinstance(raised, GeneratorExit) or passes(raised):
                        raise
                    error = raised if isinstance(raised, Exception) else uncaught(task, raised)
                    await self._write_parting(task, error)
                    if error is raised:
                        raise
                    raise error from raised
            done[task.id] = now - began
        self._give_back(lease, done, records, output)

    async def _in_thread(self, task: Task, work: Callable[[], int]) -> int:
        # From here on no other code may touch the task: calls that come in wait until the guard
        # ends.
        task.thread_guard.begin()
        try:
            records = await self.ctx.blocking(work)
        except BaseException as error:
            task.broken = True
            # The thread still runs when this coroutine has been cancelled or closed.
            quiet = not (isinstance(error, GeneratorExit) or passes(error))
            task.thread_guard.end(quiet=quiet)
            raise
        task.thread_guard.end()
        return records

    def _write(self, task: Task, output: Gathered) -> None:
        if 0 <= self.uncommitted_bytes < task.uncommitted_bytes:
            # Uncommitted changes of a store stay in memory: only a commit makes room.
            task.commit_requested = True
        # Output of a task with calls in flight is kept apart: a commit may leave the task out.
        output_id = task.draining.output_id
        written = output if output_id is None else Gathered()
        task.hand_over(written, self._wall_time())
        if output_id is not None and (batches := written.batches()):
            self._collector.tell(Output(batches, self._epoch, output_id))

    def _give_back(
        self,
        lease: Lease,
        done: dict[TaskId, float],
        records: int,
        output: Gathered,
        failed: Task | None = None,
    ) -> None:
        """Send the output of finished tasks, and give all tasks back, except a failed task.

        The rollback handles the failed task.
        """
        if batches := output.batches():
            self._collector.tell(Output(batches, self._epoch))
        # Return the other tasks: otherwise healthy tasks of the lease would count as lost with this
        # worker.
        untouched = tuple(task.id for task in lease.tasks[len(done) :] if task is not failed)
        if failed is None:
            self.at = None
        # If a failed task is alone in its lease, the rollback takes it back, and the worker ends.
        elif not (done or untouched):
            return
        self._manager.tell(
            TaskDone(
                self.ctx.self_ref,
                tuple(done),
                tuple(done.values()),
                records,
                untouched,
                dies=failed is not None,
            )
        )

    async def _write_parting(self, task: Task, error: Exception) -> None:
        """Write the dead letters of the record that ends the task.

        The original error counts, even if they cannot be written.
        """
        parting = task.parting.take()
        if not parting or self._letters is None:
            return
        letters = self._letters()
        try:
            await letters.write(parting)
        except Exception as worse:  # noqa: BLE001 - told to whoever hears of the error
            error.add_note(f"its dead letters could not be written: {worse}")
            _log.error(
                "could not write the dead letters of a failed record of task %s: %s",
                task.id,
                worse,
            )
        finally:
            await letters.close()

    def _drain(self, task: Task, seconds: float) -> int:
        task.drain(seconds)
        return 0

    def _slice(self, task: Task, seconds: float) -> int:
        now = self._wall_time()
        due = task.next_punctuation
        if due is not None and due <= now:
            task.punctuate(now)
        return task.process(seconds)
