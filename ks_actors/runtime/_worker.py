"""Who processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from actors import Actor, Mailbox, Started
from ks_actors.runtime._messages import CloseWorker, Lease, NextTask, Output, PauseForCommit, Resume, TaskDone, WorkerMessage
from ks_actors.runtime._states import WORKER_TRANSITIONS, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors import Ref, Signal
    from ks_actors.runtime._messages import CollectorMessage, TaskManagerMessage
    from ks_actors.runtime._task import Task

WORKER_MAILBOX = Mailbox(capacity=64, overflow="fail_system", urgent=(PauseForCommit, Resume))  # in one lane: neither overtakes the other


class Worker(Actor[WorkerMessage]):
    """Process leased tasks, a slice at a time; own nothing in between.

    A task whose topology has functions that block is processed in the worker's own thread. What a slice has written goes to the collector in one
    message, marked with the epoch of the commit that it belongs to, which the committer tells: until then a new worker stands still. An error out of
    a
    task ends the worker: its supervisor sees to the rest. A task whose stores hold more than the worker's share uncommitted is to be committed.
    """

    def __init__(
        self,
        name: str,
        manager: Ref[TaskManagerMessage],
        collector: Ref[CollectorMessage],
        *,
        slice_ms: int,
        wall_time: Callable[[], int],
    ) -> None:
        self.name: str = name
        self.life = WORKER_TRANSITIONS.start(WorkerState.CREATED)
        self.at: Task | None = None
        self._manager = manager
        self._collector = collector
        self._seconds: float = slice_ms / 1000
        self._epoch: int = 0
        self.input_bytes: int = -1
        self.uncommitted_bytes: int = -1
        self._wall_time = wall_time
        self._paused: bool = True

    def signal(self, signal: Signal) -> None:
        """Report for work when started."""
        if isinstance(signal, Started):
            self.life.to(WorkerState.STARTING)
            self.life.to(WorkerState.PARTITIONS_ASSIGNED)
            self.life.to(WorkerState.RUNNING)
            self._manager.tell(NextTask(self.ctx.self_ref))

    async def receive(self, message: WorkerMessage) -> None:
        """Process, stand still, go on, or end."""
        match message:
            case Lease():
                if self._paused:
                    self.ctx.stash(message)
                else:
                    await self._work(message)
            case PauseForCommit():
                self._paused = True
                message.reply.tell(self.name)
            case Resume():
                self._epoch = message.epoch
                self._paused = False
                self.ctx.unstash()
            case CloseWorker():
                self.life.to(WorkerState.PENDING_SHUTDOWN)
                self.ctx.stop()
            case _:
                assert_never(message)

    async def _work(self, lease: Lease) -> None:
        if lease.task.broken:
            # It could not be rolled back while the lease lay here. Whoever gives it up waits for the lease.
            self._manager.tell(TaskDone(self.ctx.self_ref, lease.task.id, 0))
            return
        task = self.at = lease.task
        try:
            work = self._drain if lease.draining else self._slice
            if task.blocking:
                task.absence.begin()
                records = await self.ctx.blocking(work, task)
                task.absence.end()
            else:
                records = work(task)
        except BaseException as error:
            task.broken = True
            task.absence.end(quiet=isinstance(error, Exception))  # else the thread goes on
            raise
        if 0 <= self.uncommitted_bytes < task.uncommitted_bytes:
            task.commit_requested = True
        output = task.take_output()
        if output:
            self._collector.tell(Output(output, self._epoch, task.draining.lot))
        self.at = None
        self._manager.tell(TaskDone(self.ctx.self_ref, task.id, records))

    def _drain(self, task: Task) -> int:
        task.drain(self._seconds)
        return 0

    def _slice(self, task: Task) -> int:
        now = self._wall_time()
        due = task.next_punctuation
        if due is not None and due <= now:
            task.punctuate(now)
        return task.process(self._seconds)
