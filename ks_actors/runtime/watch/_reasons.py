"""The reasons why records of a partition wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

from ks_actors.runtime.commit import Phase
from ks_actors.runtime.watch._partition_state import worker_of
from ks_actors.runtime.watch._waits import WaitReason as Why

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.config import StreamsConfig
    from ks_actors.runtime.input import Poller
    from ks_actors.runtime.processing import TaskManager
    from ks_actors.runtime.watch._partition_state import PartitionState, PartitionStates
    from ks_actors.task import RecordQueue, Task

Reason: TypeAlias = "tuple[Why, str]"


@final
class Reasons:
    """Find the reason why a partition does not move.

    `unreachable` names the brokers that do not answer, and is empty when all do.
    """

    def __init__(
        self,
        partition_states: PartitionStates,
        config: StreamsConfig,
        unreachable: Callable[[], str],
    ) -> None:
        self._partition_states = partition_states
        self._config = config
        self._unreachable = unreachable

    def of(self, place: PartitionState, call: str) -> Reason:
        """Return the reason, from causes that stop all tasks to those of one partition.

        `call` describes a long-running call, if there is one.
        """
        manager, poller = self._partition_states.manager, self._partition_states.poller
        if manager is None or poller is None:
            return Why.REBALANCING, "the app is starting"
        if manager._paused:
            return Why.PAUSED, "the app is paused"
        if place.task is None:
            return self._on_its_way(place)
        return (
            self._failed(place.task, manager, poller)
            or self._at_work(place.task, manager, call)
            or self._held_up(place.task, manager)
            or (
                self._unprocessed(place, place.task, manager, poller)
                if place.buffered
                else self._unfetched(place, poller)
            )
        )

    # --- a task that is not processed yet, or not any more ----------------------------------------

    def _on_its_way(self, place: PartitionState) -> Reason:
        state_manager, restorer = (
            self._partition_states.state_manager,
            self._partition_states.restorer,
        )
        entry = None if state_manager is None else state_manager._entries.get(place.task_id)
        if entry is None or entry.order is None:
            return (
                Why.REBALANCING,
                (
                    "the group has assigned the task, and its committed offsets are being looked "
                    f"up{self._away()}"
                ),
            )
        if not entry.is_open:
            return Why.RESTORING, "its stores are being opened"
        text = []
        for changelog, end in () if restorer is None else restorer._ends.items():
            if restorer is not None and restorer._task_of.get(changelog) == place.task_id:
                text.append(f"{changelog} at {restorer._positions.get(changelog)} of {end}")
        return (
            Why.RESTORING,
            f"its stores are being restored{': ' if text else ''}{', '.join(text)}{self._away()}",
        )

    def _failed(self, task: Task, manager: TaskManager, poller: Poller) -> Reason | None:
        if task.id in manager._suspended:
            return Why.REBALANCING, "the task is being handed over to another member of the group"
        failures = self._partition_states.metrics.failures
        if task.broken or task.id in manager._broken:
            return (
                Why.RESTING,
                (
                    "the task rests after a failure: "
                    f"{failures.get(task.id) or failures.get(None) or 'its worker has died'}"
                ),
            )
        if "fetch" in poller.ctx.timers:
            return (
                Why.RESTING,
                f"fetching rests after a failed commit: {failures.get(None, '')}",
            )
        return None

    def _at_work(self, task: Task, manager: TaskManager, call: str) -> Reason | None:
        if task.thread_guard.since is not None:
            holder = manager._leased.get(task.id)
            worker = (
                "a worker" if holder is None else worker_of(self._partition_states.workers, holder)
            )
            return (
                Why.FUNCTION,
                f"a blocking function of the task has not returned, in the thread of {worker}",
            )
        return (Why.ASYNC_CALL, call) if call else None

    # --- causes that hold up all tasks ------------------------------------------------------------

    def _held_up(self, task: Task, manager: TaskManager) -> Reason | None:
        committer, metrics = self._partition_states.committer, self._partition_states.metrics
        phase = Phase.IDLE if committer is None else committer._phase.state
        draining = manager._drains.under_way(task)
        if draining and task.in_flight:
            return (
                Why.ASYNC_CALL,
                (
                    "the task takes no records before its commit, which waits for calls in flight "
                    f"at {', '.join(task.busy_nodes())}"
                ),
            )
        if draining and manager._drains.calm is not None:
            return (
                Why.ASYNC_CALL,
                (
                    "the app closes when the calls in flight have ended, and starts no more long "
                    "calls"
                ),
            )
        if (
            committer is not None
            and phase is not Phase.IDLE
            and (draining or metrics.pausing or committer._whole or manager._uncommitted.full)
        ):
            return (
                Why.COMMIT,
                (
                    f"a commit is under way, in phase {phase.name}: "
                    f"{self._commit_waits(phase, manager)}"
                ),
            )
        if manager._pressed:
            return (
                Why.OUTPUT,
                (
                    "the log is slow to take the tasks' output, and the limit of pending output "
                    f"is reached{self._away()}"
                ),
            )
        if manager._uncommitted.full:
            limit = (
                "statestore_uncommitted_max_bytes "
                f"({self._config.statestore_uncommitted_max_bytes})"
            )
            return (
                Why.UNCOMMITTED,
                (
                    f"stores hold as many uncommitted bytes as {limit} allows, so the task waits "
                    f"for a commit{self._away()}"
                ),
            )
        return None

    def _commit_waits(self, phase: Phase, manager: TaskManager) -> str:
        tasks = self._partition_states.metrics.tasks.values()
        if phase is Phase.PAUSING:
            if manager._drains._reply is not None:
                busy = [
                    f"task {task.id} at {', '.join(task.busy_nodes())}"
                    for task in tasks
                    if task.id in manager._drains._waits_for and task.in_flight
                ]
                return (
                    f"it waits for the calls in flight of {'; '.join(busy)}"
                    if busy
                    else "it waits for tasks to forward the updates in their caches"
                )
            return "it waits for workers to pause"
        if phase is Phase.ENDING:
            return f"it waits for the log to write the output{self._away()}"
        return "the stores are being frozen"

    # --- causes that hold up one partition --------------------------------------------------------

    def _unprocessed(
        self, place: PartitionState, task: Task, manager: TaskManager, poller: Poller
    ) -> Reason:
        other = self._missing(task)
        if other is not None:
            return (
                Why.PARTITION,
                f"the task waits for {other.partition}, {self._why_missing(other, poller)}",
            )
        workers = self._partition_states.workers
        if not len(workers):
            return Why.NO_WORKER, "there is no worker; App.add_worker starts one"
        holder = manager._leased.get(task.id)
        if holder is not None:
            return Why.WORKER, f"{worker_of(workers, holder)} has the task and has not returned it"
        if task.in_flight and not task.draining.room():
            return (
                Why.ASYNC_CALL,
                (
                    "the task takes no records: max_in_flight calls have not returned at "
                    f"{', '.join(task.busy_nodes())}"
                ),
            )
        if not manager._idle:
            by_worker: dict[str, list[str]] = {}
            for task_id, ref in manager._leased.items():
                by_worker.setdefault(worker_of(workers, ref), []).append(str(task_id))
            busy = "; ".join(
                f"{worker} with task {', '.join(tasks)}" for worker, tasks in by_worker.items()
            )
            return Why.WORKER, f"no worker is free: {busy or 'none has asked for work'}"
        return (
            Why.SCHEDULE,
            (
                f"the task has {place.buffered} records of it in memory and is not given to a "
                "worker, though one is free; please report this"
            ),
        )

    def _missing(self, task: Task) -> RecordQueue | None:
        """Return the partition that the task waits for because of `max_task_idle_ms`."""
        group = task.group
        if group._idle < 0:
            return None
        empty = [queue for queue in group.queues.values() if not queue.buffered]
        known = next((queue for queue in empty if queue.lag != 0), None)
        if known is not None or group._waits_until is None:
            return known
        return next((queue for queue in empty if queue.partition in group._deadlines), None)

    def _why_missing(self, other: RecordQueue, poller: Poller) -> str:
        if other.lag is None:
            text = "and it is not known whether the log has more of it"
        elif other.lag:
            text = f"and the log has {other.lag} more offsets of it, which are not fetched yet"
        else:
            return (
                "and records of it may come within max_task_idle_ms "
                f"({self._config.max_task_idle_ms} ms)"
            )
        if other.partition in poller._stopped:
            return f"{text}: its fetching has stopped, {self._buffers()}"
        return f"{text}{self._away()}"

    def _unfetched(self, place: PartitionState, poller: Poller) -> Reason:
        if place.partition in poller._stopped:
            return Why.INPUT_BUFFER, f"fetching has stopped, {self._buffers()}"
        if away := self._unreachable():
            return Why.LOG, away
        if place.lag is None:
            return (
                Why.NOT_FETCHED,
                (
                    f"nothing has been fetched yet from offset {place.position} on, and the end of "
                    "the log is not known"
                ),
            )
        return (
            Why.NOT_FETCHED,
            f"the log has {place.lag} offsets from {place.position} on, and no fetch brings them",
        )

    def _buffers(self) -> str:
        config = self._config
        queues = [
            queue
            for task in self._partition_states.metrics.tasks.values()
            for queue in task.group.queues.values()
        ]
        most = max(queues, key=_buffered, default=None)
        full = (
            f"as input_buffer_max_bytes ({config.input_buffer_max_bytes}) or "
            "buffered_records_per_partition is used up"
        )
        return (
            full
            if most is None or not most.buffered
            else f"{full}, most by {most.partition} with {most.buffered} records"
        )

    def _away(self) -> str:
        return f"; {away}" if (away := self._unreachable()) else ""


def _buffered(queue: RecordQueue) -> int:
    return queue.buffered
