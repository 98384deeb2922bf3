"""The reasons why records of a partition wait."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, final

from ks_actors.runtime.commit import Phase
from ks_actors.runtime.watch._waits import WaitReason as Why
from ks_actors.task.calls import whole_commits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors import Ref
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.processing import ScheduleStatus
    from ks_actors.runtime.stores import StoresStatus
    from ks_actors.runtime.watch._partition_state import PartitionState, PartitionStates
    from ks_actors.task import AppTopics, RecordQueue, Task

Reason: TypeAlias = "tuple[Why, str]"


@final
class Reasons:
    """Find the reasons why partitions do not move at this moment, by the status of each actor.

    `unreachable` names the brokers that do not answer, and is empty when all do.
    """

    def __init__(
        self, parts: PartitionStates, topics: AppTopics, unreachable: Callable[[], str]
    ) -> None:
        self._parts = parts
        self._config = topics.config
        self._whole_commits: bool = whole_commits(topics.topology)
        self._unreachable = unreachable

    @cached_property
    def _schedule(self) -> ScheduleStatus:
        return self._parts.manager.status()

    @cached_property
    def _stopped(self) -> frozenset[TopicPartition]:
        return self._parts.poller.stopped

    @cached_property
    def _stores(self) -> Mapping[TaskId, StoresStatus]:
        return self._parts.state_manager.status()

    @cached_property
    def _reads(self) -> Mapping[TaskId, list[str]]:
        reads: dict[TaskId, list[str]] = {}
        for read in self._parts.restorer.reads():
            if read.active and read.end is not None:
                text = f"{read.changelog} at {read.position} of {read.end}"
                reads.setdefault(read.task, []).append(text)
        return reads

    def of(self, place: PartitionState, call: str) -> Reason:
        """Return the reason: causes that stop all tasks first, causes of one partition last.

        `call` describes a long-running call, if there is one.
        """
        if paused := self._parts.manager.pauses.text(place.task_id):
            return Why.PAUSED, paused
        if place.task is None:
            return self._on_its_way(place)
        return (
            self._failed(place.task)
            or self._at_work(place.task, call)
            or self._held_up(place.task)
            or (self._unprocessed(place, place.task) if place.buffered else self._unfetched(place))
        )

    # --- a task that is not processed yet, or not any more ----------------------------------------

    def _on_its_way(self, place: PartitionState) -> Reason:
        stores = self._stores.get(place.task_id)
        if stores is None or stores.positions is None:
            text = (
                "the group has assigned the task, and its committed offsets are being looked "
                f"up{self._away()}"
            )
            return Why.REBALANCING, text
        if not stores.is_open:
            return Why.RESTORING, "its stores are being opened"
        reads = ", ".join(self._reads.get(place.task_id, ()))
        text = f"its stores are being restored{': ' if reads else ''}{reads}{self._away()}"
        return Why.RESTORING, text

    def _failed(self, task: Task) -> Reason | None:
        if task.id in self._schedule.suspended:
            return Why.REBALANCING, "the task is being handed over to another member of the group"
        failures = self._parts.metrics.failures
        if task.broken or task.id in self._schedule.broken:
            why = failures.get(task.id) or failures.get(None) or "its worker has died"
            return Why.RESTING, f"the task rests after a failure: {why}"
        if self._parts.poller.rests:
            return Why.RESTING, f"fetching rests after a failed commit: {failures.get(None, '')}"
        return None

    def _at_work(self, task: Task, call: str) -> Reason | None:
        if task.thread_guard.since is not None:
            holder = self._schedule.leased.get(task.id)
            worker = "a worker" if holder is None else self._name(holder)
            return (
                Why.FUNCTION,
                f"a blocking function of the task has not returned, in the thread of {worker}",
            )
        return (Why.ASYNC_CALL, call) if call else None

    # --- causes that hold up all tasks ------------------------------------------------------------

    def _held_up(self, task: Task) -> Reason | None:
        schedule, phase = self._schedule, self._parts.committer.phase
        draining = task.id in schedule.drains.draining
        if draining and task.in_flight:
            text = (
                "the task takes no records before its commit, which waits for calls in flight "
                f"at {', '.join(task.busy_nodes())}"
            )
            return Why.ASYNC_CALL, text
        if draining and schedule.drains.last_calls:
            text = (
                "the app closes when the calls in flight have ended, and starts no more long calls"
            )
            return Why.ASYNC_CALL, text
        pausing = self._parts.metrics.pausing or self._whole_commits
        if phase is not Phase.IDLE and (draining or pausing or schedule.full):
            text = f"a commit is under way, in phase {phase.name}: {self._commit_waits(phase)}"
            return Why.COMMIT, text
        if schedule.pressed:
            text = (
                "the log is slow to take the tasks' output, and the limit of pending output "
                f"is reached{self._away()}"
            )
            return Why.OUTPUT, text
        if schedule.full:
            limit = (
                "statestore_uncommitted_max_bytes "
                f"({self._config.statestore_uncommitted_max_bytes})"
            )
            text = (
                f"stores hold as many uncommitted bytes as {limit} allows, so the task waits "
                f"for a commit{self._away()}"
            )
            return Why.UNCOMMITTED, text
        return None

    def _commit_waits(self, phase: Phase) -> str:
        if phase is Phase.PAUSING:
            if (awaited := self._schedule.drains.awaited) is not None:
                busy = [
                    f"task {task.id} at {', '.join(task.busy_nodes())}"
                    for task in self._parts.metrics.tasks.values()
                    if task.id in awaited and task.in_flight
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

    def _unprocessed(self, place: PartitionState, task: Task) -> Reason:
        if (other := task.group.awaited()) is not None:
            text = f"the task waits for {other.partition}, {self._why_missing(other)}"
            return Why.PARTITION, text
        if not len(self._parts.workers):
            return Why.NO_WORKER, "there is no worker; App.add_worker starts one"
        leased = self._schedule.leased
        if (holder := leased.get(task.id)) is not None:
            return Why.WORKER, f"{self._name(holder)} has the task and has not returned it"
        if task.in_flight and not task.draining.room():
            text = (
                "the task takes no records: max_in_flight calls have not returned at "
                f"{', '.join(task.busy_nodes())}"
            )
            return Why.ASYNC_CALL, text
        if not self._schedule.free:
            by_worker: dict[str, list[str]] = {}
            for task_id, ref in leased.items():
                by_worker.setdefault(self._name(ref), []).append(str(task_id))
            busy = "; ".join(
                f"{worker} with task {', '.join(tasks)}" for worker, tasks in by_worker.items()
            )
            return Why.WORKER, f"no worker is free: {busy or 'none has asked for work'}"
        text = (
            f"the task has {place.buffered} records of it in memory and is not given to a "
            "worker, though one is free; please report this"
        )
        return Why.SCHEDULE, text

    def _why_missing(self, other: RecordQueue) -> str:
        if other.lag is None:
            text = "and it is not known whether the log has more of it"
        elif other.lag:
            text = f"and the log has {other.lag} more offsets of it, which are not fetched yet"
        else:
            return (
                "and records of it may come within max_task_idle_ms "
                f"({self._config.max_task_idle_ms} ms)"
            )
        if other.partition in self._stopped:
            return f"{text}: its fetching has stopped, {self._buffers()}"
        return f"{text}{self._away()}"

    def _unfetched(self, place: PartitionState) -> Reason:
        if place.partition in self._stopped:
            return Why.INPUT_BUFFER, f"fetching has stopped, {self._buffers()}"
        if away := self._unreachable():
            return Why.LOG, away
        if place.lag is None:
            text = (
                f"nothing has been fetched yet from offset {place.position} on, and the end of "
                "the log is not known"
            )
            return Why.NOT_FETCHED, text
        return (
            Why.NOT_FETCHED,
            f"the log has {place.lag} offsets from {place.position} on, and no fetch brings them",
        )

    def _buffers(self) -> str:
        config = self._config
        queues = [
            queue
            for task in self._parts.metrics.tasks.values()
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

    def _name(self, worker: Ref[Any]) -> str:
        return self._parts.workers.name_of(worker) or "a worker that is stopping"

    def _away(self) -> str:
        return f"; {away}" if (away := self._unreachable()) else ""


def _buffered(queue: RecordQueue) -> int:
    return queue.buffered
