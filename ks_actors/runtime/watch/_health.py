"""The health of an instance: live, ready, and the reasons why not."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, final

import msgspec
from msgspec.structs import force_setattr, replace

from ks_actors._times import whole_ms
from ks_actors.lifecycle import check_timeout
from ks_actors.log import TellsOutages
from ks_actors.records import TaskId, TopicPartition
from ks_actors.runtime.shared import InstanceState
from ks_actors.runtime.watch._tasks import task_metadata
from ks_actors.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.runtime.watch._partition_state import PartitionStates
    from ks_actors.runtime.watch._watchdog import Watch

_FEW_DROPS = 10
_ENDS = {InstanceState.NOT_RUNNING, InstanceState.ERROR}


class HealthReason(Enum):
    """The reason why an app is not live or not ready, or its group is incomplete."""

    ENDED = "ended"
    """Not live: the app has ended, and starts no more."""
    EVENT_LOOP = "event loop"
    """Not live: a call has blocked the event loop for `loop_ms`."""
    WORKER = "worker"
    """Not live: a `blocking` function has not returned for `stuck_ms`."""
    STATE = "state"
    """Not ready: the app starts, rebalances or closes."""
    PAUSED = "paused"
    """Not ready: the user has paused the app, or one of its queries."""
    NO_WORKER = "no worker"
    """Not ready: the app has no worker."""
    RESTORING = "restoring"
    """Not ready: stores of a task are being opened or restored."""
    LOG = "log"
    """Not ready: a broker has not answered for `outage_ms`."""
    LAG = "lag"
    """Not ready: a partition has more than `max_lag` records that are not processed."""
    DROPPING = "dropping"
    """Not ready: handlers drop more than `max_drop_ratio` of the records of the last minute."""
    ASSIGNMENT = "assignment"
    """Not ready: the group's assignor or grouper failed, so the group keeps its last assignment."""
    UNCOVERED = "uncovered"
    """No member of the group has run a query for `stall_warning_ms`; the app is ready."""
    STALLED = "stalled"
    """Not ready: records have waited for `stall_warning_ms`, and their task does not go on."""

    @property
    def fatal(self) -> bool:
        """Whether the app is not live: only a restart of the process is sure to help."""
        return self in {HealthReason.ENDED, HealthReason.EVENT_LOOP, HealthReason.WORKER}

    @property
    def elsewhere(self) -> bool:
        """Whether the app is ready all the same: the cause is outside of it."""
        return self is HealthReason.UNCOVERED

    @property
    def runbook(self) -> str:
        """The section of the documentation about this reason, `docs/runbooks/health.md#lag`."""
        return f"docs/runbooks/health.md#{self.name.lower()}"


class HealthProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why an app is not live or not ready, or its group is incomplete."""

    reason: HealthReason
    """The kind of reason."""
    text: str
    """The reason in words, with names and numbers."""
    task: TaskId | None = None
    """The task that the problem concerns; None for the whole app."""
    partition: TopicPartition | None = None
    """The partition that the problem concerns; None if it concerns no single partition."""
    query: str | None = None
    """The query that the problem concerns; None for the whole app, or if none is named."""
    waited_ms: int = 0
    """How long the problem has lasted, in ms, if that is known."""


class HealthBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits beyond which an app is not healthy."""

    max_lag: int | None = None
    """The most records of one partition that may wait, in memory and in the log; None: any."""
    max_drop_ratio: float | None = 0.5
    """The largest part, 0 to 1, of the records of the last minute that exception handlers may drop.

    Ten drops at least make an app not ready. None: any part.
    """
    outage_ms: int | timedelta = 2_000
    """The longest time without an answer of a broker, in ms."""
    stuck_ms: int | timedelta | None = None
    """The longest time of a call of a `blocking` function, in ms; None: `max_poll_interval_ms`."""
    loop_ms: int | timedelta = 10_000
    """The longest time that the event loop may be blocked, in ms; it runs each second at least."""

    def __post_init__(self) -> None:
        for role in ("outage_ms", "stuck_ms", "loop_ms"):
            if (time := getattr(self, role)) is not None:
                force_setattr(self, role, check_timeout(time, f"{role} of HealthBounds"))


@final
class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The health of an app at one moment."""

    state: InstanceState
    """The state of the app."""
    problems: tuple[HealthProblem, ...]
    """All problems, fatal ones first."""

    @property
    def live(self) -> bool:
        """Whether the app works, or can work again by itself."""
        return not any(problem.reason.fatal for problem in self.problems)

    @property
    def ready(self) -> bool:
        """Whether the app is RUNNING, with all stores restored, its log reachable and no lag."""
        return all(problem.reason.elsewhere for problem in self.problems)

    def __str__(self) -> str:
        word = "ready" if self.ready else "not ready" if self.live else "not live"
        listed = "; ".join(f"{problem.reason.value}: {problem.text}" for problem in self.problems)
        return f"{word}, {self.state.name}{f' ({listed})' if listed else ''}"


@final
class HealthCheck:
    """Check the parts of an instance; callable from any thread.

    `log` is the log without retries, None while there is none. `now_ms` is a steady clock in ms.
    """

    def __init__(
        self,
        parts: PartitionStates,
        watch: Watch | None,
        log: object,
        bounds: HealthBounds,
        *,
        now_ms: float,
    ) -> None:
        self._parts = parts
        self._watch = watch
        self._log = log
        self._bounds = bounds
        self._now_ms = now_ms

    def problems(self, state: InstanceState, *, stuck_ms: int) -> tuple[HealthProblem, ...]:
        """Return all problems of an instance that has not ended, fatal problems first."""
        pauses = self._parts.manager.pauses
        return tuple(
            replace(problem, query=pauses.query(problem.task))
            if pauses.named and problem.task is not None
            else problem
            for problem in (*self._loop(), *self._workers(stuck_ms), *self._state(state))
        )

    def _loop(self) -> Iterator[HealthProblem]:
        if self._watch is None or self._watch.looked_ms is None:
            return
        # Measured from outside: a blocked loop cannot report itself.
        still = int(self._now_ms - self._watch.looked_ms)
        if still > whole_ms(self._bounds.loop_ms):
            text = f"the event loop has not turned for {still / 1000:.0f} s: a call blocks it"
            yield HealthProblem(reason=HealthReason.EVENT_LOOP, text=text, waited_ms=still)

    def _workers(self, stuck_ms: int) -> Iterator[HealthProblem]:
        # A copy, because the loop's thread may add tasks meanwhile.
        for task in tuple(self._parts.metrics.tasks.values()):
            busy = int(task.thread_guard.seconds() * 1000)
            if busy > stuck_ms:
                text = (
                    f"a blocking function of task {task.id} has not returned for "
                    f"{busy / 1000:.0f} s, more than {stuck_ms} ms"
                )
                yield HealthProblem(
                    reason=HealthReason.WORKER, text=text, task=task.id, waited_ms=busy
                )

    def _state(self, state: InstanceState) -> Iterator[HealthProblem]:
        if state is not InstanceState.RUNNING:
            text = f"the app is {state.name}, not RUNNING"
            yield HealthProblem(reason=HealthReason.STATE, text=text)
        yield from outage_problems(self._log, whole_ms(self._bounds.outage_ms))
        pauses = self._parts.manager.pauses
        if pauses.everything:
            text = "the app is paused; App.resume resumes it"
            yield HealthProblem(reason=HealthReason.PAUSED, text=text)
        for query in () if pauses.everything else sorted(pauses.queries):
            text = f"the query {query} is paused; App.resume(query={query!r}) resumes it"
            yield HealthProblem(reason=HealthReason.PAUSED, text=text, query=query)
        if (
            not pauses.everything
            and state is InstanceState.RUNNING
            and not len(self._parts.workers)
        ):
            text = "there is no worker; App.add_worker starts one"
            yield HealthProblem(reason=HealthReason.NO_WORKER, text=text)
        if failure := self._parts.member.figures.assignor_failure:
            text = f"the group keeps its last assignment: {failure}"
            yield HealthProblem(reason=HealthReason.ASSIGNMENT, text=text)
        yield from self._uncovered()
        yield from self._restoring()
        yield from self._stalled()
        yield from self._behind()
        yield from self._dropping()

    def _uncovered(self) -> Iterator[HealthProblem]:
        if self._watch is None:
            return
        for query, seconds in self._watch.uncovered.found(self._now_ms / 1000).items():
            yield HealthProblem(
                reason=HealthReason.UNCOVERED,
                text=f"no member of the group has run the query {query} for {seconds:.0f} s",
                waited_ms=int(seconds * 1000),
                query=query,
            )

    def _restoring(self) -> Iterator[HealthProblem]:
        for task in task_metadata(self._parts):
            if not task.standby and task.state in {TaskState.CREATED, TaskState.RESTORING}:
                text = f"the stores of task {task.task} are being opened or restored"
                yield HealthProblem(reason=HealthReason.RESTORING, text=text, task=task.task)

    def _stalled(self) -> Iterator[HealthProblem]:
        for wait in () if self._watch is None else self._watch.stalled:
            yield HealthProblem(
                reason=HealthReason.STALLED,
                text=f"{wait.partition} has waited for {wait.waited_ms / 1000:.0f} s: {wait.text}",
                task=wait.task,
                partition=wait.partition,
                waited_ms=wait.waited_ms,
            )

    def _behind(self) -> Iterator[HealthProblem]:
        most = self._bounds.max_lag
        if most is None:
            return
        ends = {} if self._watch is None else self._watch.ends
        for task, partition, behind in self._parts.backlogs(ends):
            if behind > most:
                text = f"{partition} has {behind} records to process, more than {most}"
                yield HealthProblem(
                    reason=HealthReason.LAG, text=text, task=task, partition=partition
                )

    def _dropping(self) -> Iterator[HealthProblem]:
        most = self._bounds.max_drop_ratio
        if most is None or self._watch is None:
            return
        dropped, processed = self._watch.last_minute
        if dropped >= _FEW_DROPS and dropped > most * max(dropped, processed):
            text = (
                f"exception handlers have dropped {dropped} of {max(dropped, processed)} records "
                "of the last minute: the log and the dead letters have the errors"
            )
            yield HealthProblem(reason=HealthReason.DROPPING, text=text)


def outage_problems(log: object, bound_ms: int) -> Iterator[HealthProblem]:
    """Return a problem for each outage that has lasted for `bound_ms`."""
    for outage in log.outages() if isinstance(log, TellsOutages) else ():
        if (away := int(outage.seconds * 1000)) >= bound_ms:
            yield HealthProblem(reason=HealthReason.LOG, text=str(outage), waited_ms=away)


def ended_problem(state: InstanceState, error: Exception | None) -> HealthProblem:
    """Return the problem of an app that has ended, with the error that ended it."""
    assert state in _ENDS
    why = "it was closed" if error is None else f"{type(error).__name__}: {error}"
    return HealthProblem(reason=HealthReason.ENDED, text=f"the app is {state.name}: {why}")
