"""The task manager actor: owns the running tasks and schedules them."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, assert_never

from actors import HANDLED, Actor, Handled, Mailbox, Signal, Stopping, Terminated
from ks_actors._errors import TaskTimeout
from ks_actors.lifecycle import as_exception, component_log
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit import Drains, TasksBroken, Uncommitted
from ks_actors.runtime.messages import TaskManagerMessage
from ks_actors.runtime.processing._inputs import Inputs
from ks_actors.runtime.processing._pauses import Pauses
from ks_actors.runtime.processing._ready_tasks import ReadyTasks
from ks_actors.runtime.processing._schedule_status import ScheduleStatus
from ks_actors.runtime.processing._shares import Shares
from ks_actors.task import Task, end_life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from actors import Ref
    from ks_actors.log import OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.processing._purge import Purger
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import StoreRegistry, TaskParts

_log = component_log(__name__)
# Commit requests must not wait behind all fetched records.
TASK_MANAGER_MAILBOX = Mailbox(
    capacity=100_000,
    overflow="fail_system",
    # CommittedTasks is as urgent as Freeze: the next Freeze must not come before it.
    urgent=(m.Drain, m.Freeze, m.CommittedTasks, m.ResumeFeeding, m.PauseProcessing),
)
_CLOSE_S = 0.0005


class TaskManager(Actor[TaskManagerMessage]):
    """Own the running tasks, their buffers and the schedule.

    A free worker gets the task of the highest `priority` (higher first). Among tasks of equal
    priority, it gets the task with the most buffered records, or a task that has waited too long.
    While tasks have little to do, it gets the next tasks as well. A leased task belongs to its
    worker alone. Every change of a task ends in a `_look`.
    """

    def __init__(
        self,
        parts: TaskParts,
        registry: StoreRegistry,
        *,
        instance: Ref[m.InstanceMessage],
        poller: Callable[[], Ref[m.PollerMessage]],
        member: Callable[[], Ref[m.MemberMessage]],
        committer: Callable[[], Ref[m.CommitterMessage]],
        purger: Purger,
        metrics: Metrics,
        priority: Callable[[TaskId], int] | None,
    ) -> None:
        config = parts.config
        self._parts = parts
        self._registry = registry
        self._instance = instance
        self._poller = poller
        self._member = member
        self._committer = committer
        self._purger = purger
        self._metrics = metrics
        self._tasks: dict[TaskId, Task] = {}
        self._leased: dict[TaskId, Ref[m.WorkerMessage]] = {}
        shares = Shares.of(parts.topics.topology)
        self.pauses: Pauses = Pauses(parts.topics.topology)
        self._ready = ReadyTasks(
            parts.clocks, self._wants, priority, slice_ms=config.worker_slice_ms, shares=shares
        )
        # Tasks leased or moved since the last commit: no other task has work to commit or in hand.
        self._touched: dict[TaskId, Task] = {}
        self._inputs = Inputs(
            config.buffered_records_per_partition,
            config.input_buffer_max_bytes,
            self._leased,
            shares,
            holds=self.pauses.holds,
        )
        metrics.buffered, metrics.touched, metrics.at_work, metrics.in_threads = (
            lambda: self._inputs.budget.buffered,
            lambda: self._touched,
            lambda: bool(self._leased),
            lambda: {
                worker
                for task_id, worker in self._leased.items()
                if (task := self._tasks.get(task_id)) and task.thread_guard.since is not None
            },
        )
        self._broken: set[TaskId] = set()
        self._idle: deque[Ref[m.WorkerMessage]] = deque()
        self._workers: set[Ref[m.WorkerMessage]] = set()
        self._retiring: set[Ref[m.WorkerMessage]] = set()
        self._closing: list[m.Close] = []
        self._suspending: list[m.SuspendTasks] = []
        self._suspended: set[TaskId] = set()
        self._void: dict[TaskId | None, int] = {}
        self._drains = Drains(
            self._tasks,
            self._touched,
            self._leased,
            committer=committer,
            wake_in=lambda name, seconds: self.ctx.timers.once(name, max(0.0, seconds), m.Wake()),
            longest=max(1, config.max_drain_ms) / 1000,
            blocked=config.task_timeout_ms / 1000,
            interval=config.commit_interval_ms / 1000,
        )
        self._epoch: int = 0
        self._woken: set[TaskId | None] = set()
        self._wakes: float | None = None
        self._rewinding: m.Rewind | None = None
        self._resets = 0
        self._uncommitted: Uncommitted = Uncommitted(config.statestore_uncommitted_max_bytes)
        self._pressed = self._ended = False

    def status(self) -> ScheduleStatus:
        """Return the schedule as it is now; call it on the event loop."""
        return ScheduleStatus(
            self._pressed,
            self._uncommitted.full,
            len(self._idle),
            dict(self._leased),
            frozenset(self._suspended),
            frozenset(self._broken),
            self._drains.status(),
        )

    def signal(self, signal: Signal) -> Handled | None:
        """Close the tasks still open after a failure; give up the tasks of a dead worker.

        The instance reports dead workers as well, but not while it closes the app.
        """
        if isinstance(signal, Terminated):
            self._workers.discard(signal.ref)
            if signal.cause is not None:
                # Signals come first, so send a message that comes after the worker's earlier
                # messages.
                self.ctx.self_ref.tell(m.WorkerLost(signal.ref))
            return HANDLED
        if isinstance(signal, Stopping):
            self._ended = True
            for task_id in list(self._tasks):
                if (error := self._close(task_id)) is not None:
                    _log.warning("could not close task %s: %s", task_id, error)
        return None

    def receive(  # noqa: C901, PLR0912, PLR0915 - one branch per message
        self, message: TaskManagerMessage
    ) -> None:
        """Update the schedule."""
        match message:
            case m.Records():
                self._add_records(message)
            case m.EndsKnown():
                self._update_ready(self._inputs.ends_known(message))
            case m.PositionReset():
                self._note_reset(message)
            case m.TaskDone():
                self._take_back(message)
            case m.NextTask():
                self._watch(message.worker)
                self._idle.append(message.worker)
            case m.Wake():
                # Do this before the check: a call that ends during the check must be able to send
                # the next Wake.
                self._woken.discard(message.task)
                if message.task is None:
                    self._drains.tick(self.ctx.time())
                self._update_ready(() if message.task is None else (message.task,))
            case m.Assign():
                self._assign(message)
            case m.SuspendTasks():
                self._suspend(message)
            case m.Close():
                self._closing.append(message)
                self._answer_waiting()
            case m.AskBusy():
                message.reply.tell(self._drains.busy(message.tasks))
            case m.Drain():
                self._drains.begin(message, self.ctx.time(), self._suspended)
                self._update_ready(
                    task_id
                    for task_id in {**self._touched, **dict.fromkeys(self._ready.ids)}
                    if self._tasks[task_id].drains
                )
            case m.ResumeFeeding():
                self._epoch = message.epoch
                self._update_ready(self._drains.end(self.ctx.time(), failed=message.failed))
                for worker in self._retiring & set(self._idle):
                    self._retire(worker)
            case m.Freeze():
                self._freeze(message)
                self._update_ready(self._drains.fed_again)
            case m.Rewind():
                # Answered later: calls in flight have to end first.
                self._begin_rewind(message)
            case m.TaskRestOver():
                self._broken.discard(message.task)
                self._update_ready((message.task,))
            case m.CommittedTasks():
                self._note_committed(message.positions)
            case m.PurgeEnded():
                self._purger.ended(message.error)
            case m.OutputPressure():
                self._pressed = message.high
            case m.PauseProcessing():
                self._pause(message)
            case m.RetireWorker():
                self._retire(message.worker)
            case m.WorkerLost():
                self._lose(message.worker)
            case _:
                assert_never(message)
        self._dispatch()

    # --- the schedule -----------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Lease tasks to free workers as long as any are ready."""
        if self._rewinding is not None:
            self._rewind_when_quiet(self._rewinding)
        self._ready.stand(
            still=self._pressed or self.pauses.everything, full=self._uncommitted.full
        )
        # Lease nothing during a commit: a worker back from its thread has not paused for the
        # commit.
        if not self._idle or self._drains.held:
            return
        self._update_ready(self._ready.due())
        while self._idle:
            if (best := self._ready.pick(len(self._idle), self._uncommitted.room)) is None:
                self._sleep()
                return
            self._lease(self._idle.popleft(), best[0], draining=best[1])

    def _lease(
        self, worker: Ref[m.WorkerMessage], tasks: tuple[Task, ...], *, draining: bool
    ) -> None:
        for task in tasks:
            self._leased[task.id] = worker
            self._touched[task.id] = task
        self._note_work()
        # Note the lease before it is sent: a rollback must not miss a task on its way to a worker.
        worker.tell(m.Lease(tasks, draining, self._epoch))

    def _wants(self, task: Task) -> bool | None:
        """Return whether a task may only finish its work in hand; None when it gets no work."""
        if (
            task.id in self._leased
            or task.id in self._broken
            or task.broken
            or (self._rewinding is not None and self._goes_back(task))
        ):
            return None
        if draining := self._drains.under_way(task):
            return True
        return None if task.id in self._suspended or self.pauses.holds(task.id) else draining

    def _update_ready(self, tasks: Iterable[TaskId]) -> None:
        """Update the schedule for tasks that have changed."""
        for task_id in tasks:
            if (task := self._tasks.get(task_id)) is None:
                continue
            self._ready.update(task)
            self._drains.note_work(task)

    def _sleep(self) -> None:
        """Set the timer for the next task that becomes ready by time alone."""
        if (seconds := self._ready.wakes_in()) is None:
            return
        at = self.ctx.time() + seconds
        # Keep an earlier timer: it costs one check, while a new timer would be set for each slice.
        if self._wakes is None or at < self._wakes - _CLOSE_S or "wake" not in self.ctx.timers:
            self._wakes = at
            self.ctx.timers.once("wake", seconds + 0.0005, m.Wake())

    def _wake(self, task: TaskId) -> None:
        """Request a check of a task; callable from its thread.

        Calls that end after the last message wake no actor.
        """
        if task not in self._woken and not self._ended:
            self._woken.add(task)
            self.ctx.self_ref.tell(m.Wake(task))

    def _take_back(self, done: m.TaskDone) -> None:
        for task_id in (back := done.tasks + done.untouched):
            self._leased.pop(task_id, None)
        self._ready.had_turn(zip(done.tasks, done.seconds, strict=True))
        if not done.dies:
            self._idle.append(done.worker)
            # A worker that was asked to end during its work ends between two leases, so that no
            # task is lost.
            if done.worker in self._retiring:
                self._retire(done.worker)
        tasks = [self._tasks[task_id] for task_id in done.tasks]
        self._drains.moved(tasks, self.ctx.time())
        if low := self._inputs.taken_back(tasks):
            self._poller().tell(m.BufferLow(low))
        self._metrics.processed(done.records)
        self._update_ready(back)
        self._ask_ends(tasks)
        if (reason := self._uncommitted.reason_to_commit(tasks)) is not None:
            self._committer().tell(m.Commit(None, reason))
        self._answer_waiting()
        self._note_work()

    def _ask_ends(self, tasks: Iterable[Task]) -> None:
        """Look up the ends of partitions for tasks with windows that the wall clock closes."""
        for task in tasks:
            if task.idle.asks:
                task.idle.asked(self._parts.clocks.steady_time())
                self._poller().tell(m.AskEnds(tuple(task.group.queues)))

    def _add_records(self, message: m.Records) -> None:
        changed, high, stale = self._inputs.add(message.fetched, message.epoch)
        self._metrics.stale += stale
        if high:
            self._poller().tell(m.BufferHigh(tuple(high)))
        self._update_ready(changed)

    def _note_reset(self, reset: m.PositionReset) -> None:
        self._resets = reset.number
        if (task := self._inputs.move(reset)) is not None:
            self._touch(task)
            self._update_ready((task.id,))

    def _pause(self, order: m.PauseProcessing) -> None:
        self.pauses.set(order.query, paused=order.paused)
        stop, again = self._inputs.held()
        if stop:
            self._poller().tell(m.BufferHigh(stop))
        if again:
            self._poller().tell(m.BufferLow(again))
        self._update_ready(self._tasks)

    # --- tasks come and go ------------------------------------------------------------------------

    def _assign(self, message: m.Assign) -> None:
        # The stores may open after the group has taken the task away again.
        if message.assignment <= max(self._void.get(message.task, -1), self._void.get(None, -1)):
            _log.debug("task %s was revoked before it had started", message.task)
            _end_unstored(message)
            return
        task = Task(
            message.task,
            self._parts,
            message.positions,
            message.stores,
            wake=partial(self._wake, message.task),
            current=message.current,
            life=message.life,
        )
        try:
            task.start()
        except BaseException as error:  # noqa: BLE001 - a user's init; the handler decides
            _end_unstored(message)
            # No actor fails here, so no other code logs the traceback.
            _log.error("could not start task %s: %s", task.id, error, exc_info=error)
            self._instance.tell(m.Fatal(as_exception(error), rolled_back=False))
            return
        # Only after `start`: a task whose init failed must not be scheduled or committed.
        self._tasks[task.id] = task
        self._inputs.begin(task, message.positions)
        self._metrics.tasks[task.id] = task
        self._registry.active(
            task,
            offsets := {
                partition: position.offset for partition, position in message.positions.items()
            },
        )
        self._update_ready((task.id,))
        self._member().tell(m.TaskReady(task.id, offsets))

    def _suspend(self, message: m.SuspendTasks) -> None:
        for task_id in (None,) if message.tasks is None else message.tasks:
            self._void[task_id] = message.assignment
        suspended = (
            self._tasks.keys() if message.tasks is None else message.tasks & self._tasks.keys()
        )
        self._suspended.update(suspended)
        for task_id in suspended:
            self._tasks[task_id].suspend()
        self._update_ready(suspended)
        self._suspending.append(message)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        """Answer the requests that wait for workers to be done with tasks."""
        suspending, self._suspending = self._suspending, []
        for request in suspending:
            if self._leased.keys() & (
                self._leased.keys() if request.tasks is None else request.tasks
            ):
                self._suspending.append(request)
            else:
                request.reply.tell(None)
        closing, self._closing = self._closing, []
        for close in closing:
            wanted = (
                frozenset(self._tasks)
                if close.tasks is None
                else close.tasks & frozenset(self._tasks)
            )
            if wanted & self._leased.keys():
                self._closing.append(close)
                continue
            errors = [error for task_id in wanted if (error := self._close(task_id)) is not None]
            if errors:
                close.reply.fail(errors[0])
            else:
                close.reply.tell(wanted)

    def _close(self, task_id: TaskId) -> Exception | None:
        task = self._tasks.pop(task_id)
        self._ready.forget(task_id)
        self._touched.pop(task_id, None)
        self._drains.forget(task_id)
        self._broken.discard(task_id)
        self.ctx.timers.cancel(f"rest {task_id}")
        self._suspended.discard(task_id)
        self._metrics.forget(task_id)
        self._registry.leave(task_id)
        self._inputs.end(task)
        self._uncommitted.forget(task_id)
        try:
            task.close()
        except BaseException as error:  # noqa: BLE001 - a user's close; told to whoever asked
            return as_exception(error)
        return None

    # --- commit and rollback ----------------------------------------------------------------------

    def _freeze(self, message: m.Freeze) -> None:
        touched = list(self._touched.values())
        broken = [task.id for task in touched if task.broken]
        # One transaction covers all tasks, so a broken task blocks the commit.
        if broken and message.transactional:
            message.reply.fail(TasksBroken.of(broken))
            return
        whole = [task for task in touched if not (task.broken or task.id in self._broken)]
        frozen = self._drains.freeze(whole, self.ctx.time())
        self._inputs.begin_commit()
        for task in whole:
            # A task left out by the freeze still has work in hand and stays touched.
            self._untouch(task)
        self._uncommitted.taken(
            frozen.tasks.values(), [task for task in whole if task.draining.since is not None]
        )
        message.reply.tell(frozen)

    def _touch(self, task: Task) -> None:
        self._touched[task.id] = task
        self._note_work()

    def _note_work(self) -> None:
        if self._metrics.commits_rest:
            self._metrics.commits_rest = False
            self._committer().tell(m.WorkBegins())

    def _untouch(self, task: Task) -> None:
        # A paused worker may have a lease that it has not begun.
        if task.drained and task.id not in self._leased:
            self._touched.pop(task.id, None)

    def _note_committed(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self._inputs.note_committed(positions):
            # Commit again: until then the group has an offset of a log that is gone, and a new
            # start would use it.
            self._committer().tell(m.Commit(None, "a partition was moved meanwhile"))
        self._purger.committed(positions)
        if wanted := self._purger.due(self._inputs.committed, self.ctx.time()):
            self.ctx.pipe(self._purger.delete(wanted), m.PurgeEnded, m.PurgeEnded)

    def _begin_rewind(self, message: m.Rewind) -> None:
        """Give up the calls in flight, then wait for them to end.

        A cancelled call may still write to a store on its way out, so it must end before the
        rewind.
        """
        for task in self._to_rewind(message):
            # Cancel the calls of all tasks first, to await their ends together.
            task.give_up()
        self._rewinding = message
        self._update_ready(task.id for task in self._to_rewind(message))
        self.ctx.timers.once("rewind", self._parts.config.max_drain_ms / 1000, m.Wake())

    def _rewind_when_quiet(self, message: m.Rewind) -> None:
        leaving = [
            f"task {task.id} at {', '.join(task.leaving)}"
            for task in self._to_rewind(message)
            if task.leaving
        ]
        if not leaving:
            self._rewinding = None
            self.ctx.timers.cancel("rewind")
            self._rewind(message)
        elif "rewind" not in self.ctx.timers:
            self._rewinding = None
            self._update_ready(task.id for task in self._to_rewind(message))
            message.reply.fail(
                TaskTimeout(
                    "asynchronous processors did not end when they were cancelled: "
                    f"{'; '.join(leaving)}. Do not catch CancelledError in them"
                )
            )

    def _goes_back(self, task: Task) -> bool:
        return self._rewinding is not None and (
            self._rewinding.tasks is None or task.id in self._rewinding.tasks
        )

    def _to_rewind(self, message: m.Rewind) -> list[Task]:
        return [
            task
            for task in self._tasks.values()
            if message.tasks is None or task.id in message.tasks
        ]

    def _rewind(self, message: m.Rewind) -> None:
        errors: list[Exception] = []
        again: dict[TopicPartition, int] = {}
        rewound = self._to_rewind(message)
        for task in rewound:
            positions = self._inputs.rewind(task, message.epoch)
            try:
                if task.stores is not None:
                    task.stores.drop()
                task.rewind(positions)
            except BaseException as error:  # noqa: BLE001 - user code or a store; the asker is told
                # The task is half rewound: only a new assignment gives it a clean state.
                task.broken = True
                errors.append(as_exception(error))
            else:
                self._untouch(task)
            # If a single task has failed, only that task waits: other tasks continue at once.
            if message.rest and message.failed in {None, task.id}:
                self._broken.add(task.id)
                self.ctx.timers.once(f"rest {task.id}", message.rest, m.TaskRestOver(task.id))
            elif f"rest {task.id}" not in self.ctx.timers:
                self._broken.discard(task.id)
            again.update((partition, position.offset) for partition, position in positions.items())
        self._uncommitted.taken(rewound)
        self._update_ready(task.id for task in rewound)
        if errors:
            message.reply.fail(errors[0])
        else:
            message.reply.tell(m.Rewound(again, self._resets))

    # --- workers ----------------------------------------------------------------------------------

    def _retire(self, worker: Ref[m.WorkerMessage]) -> None:
        self._retiring.add(worker)
        if worker not in self._idle or self._drains.held:
            return
        self._idle.remove(worker)
        # Without a worker, a commit could not flush the caches: the last worker does it before it
        # closes.
        fit = (
            task
            for task in self._tasks.values()
            if task.cached_updates
            and task.can_drain
            and not (task.broken or task.id in self._broken)
        )
        if not self._idle and not self._leased and (left := next(fit, None)) is not None:
            self._ready.forget(left.id)
            self._lease(worker, (left,), draining=True)
            return
        self._retiring.discard(worker)
        worker.tell(m.CloseWorker())

    def _watch(self, worker: Ref[m.WorkerMessage]) -> None:
        if worker not in self._workers:
            self._workers.add(worker)
            self.ctx.watch(worker)

    def _lose(self, worker: Ref[m.WorkerMessage]) -> None:
        self._retiring.discard(worker)
        self._idle = deque(other for other in self._idle if other != worker)
        for task_id in [task_id for task_id, holder in self._leased.items() if holder == worker]:
            del self._leased[task_id]
            self._broken.add(task_id)
            self._ready.had_turn(((task_id, 0.0),))
            self._update_ready((task_id,))
        # A drain that waits for this worker's tasks must fail now: nobody else finishes them.
        self._drains.answer()
        self._answer_waiting()


def _end_unstored(message: m.Assign) -> None:
    """End the life of a task that does not begin.

    The state manager ends the life of a task with stores, which may be a standby by now.
    """
    if message.stores is None:
        end_life(message.life)
