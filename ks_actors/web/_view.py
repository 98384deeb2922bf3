"""One moment of an app, as the page shows it."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ks_actors.runtime import WaitReason
from ks_actors.web._group import GroupView
from ks_actors.web._trends import TrendsView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.app import App
    from ks_actors.runtime import Health, HealthProblem, TaskMetadata, Wait

IDLE = frozenset({WaitReason.RECORDS, WaitReason.PROCESSING})
"""The waits that are as they should be."""
PRESSURE = frozenset(
    {WaitReason.OUTPUT, WaitReason.INPUT_BUFFER, WaitReason.UNCOMMITTED, WaitReason.WORKER}
)
"""The waits that are back-pressure: records come faster than they are processed or written."""


class WaitView(msgspec.Struct, frozen=True):
    """A wait of a task: `stuck` for longer than the app's bound, or back-pressure, or neither."""

    partition: str | None
    reason: str
    text: str
    waited_ms: int
    stuck: bool
    pressure: bool


class PartitionView(msgspec.Struct, frozen=True):
    """A partition of a task: the next offset, records in memory, the end, the lag."""

    partition: str
    topic: str
    position: int | None
    buffered: int
    end: int | None
    lag: int | None


class RestoreView(msgspec.Struct, frozen=True):
    """A changelog that is read; `share` is the part read so far (0 to 1), None for a standby."""

    changelog: str
    position: int
    end: int | None
    share: float | None


class CallView(msgspec.Struct, frozen=True):
    """The calls in flight of an asynchronous node."""

    node: str
    in_flight: int
    room: int


class TaskView(msgspec.Struct, frozen=True):
    """A task of this instance; `query` is None if the topology names no queries."""

    task: str
    query: str | None
    state: str
    standby: bool
    stuck: bool
    partitions: tuple[PartitionView, ...]
    restores: tuple[RestoreView, ...]
    calls: tuple[CallView, ...]
    waits: tuple[WaitView, ...]


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that this instance reads or writes.

    Rates are records per second: those that were processed, and those that were written. `lag_s` is
    the age of the oldest record to process, in s.
    """

    topic: str
    rate: float | None = None
    written_rate: float | None = None
    lag: int | None = None
    lag_s: float | None = None
    buffered: int = 0
    pressure: bool = False


class NodeView(msgspec.Struct, frozen=True):
    """An asynchronous node: its calls in all tasks here.

    `full`: a task has its maximum number of calls. `stuck` has the reason when a call does not
    return.
    """

    node: str
    in_flight: int
    full: bool
    stuck: str | None


class ProblemView(msgspec.Struct, frozen=True):
    """A problem of the app's health; `runbook` is the section of the documentation about it."""

    reason: str
    fatal: bool
    text: str
    task: str | None
    partition: str | None
    waited_ms: int
    runbook: str
    query: str | None = None


class HealthView(msgspec.Struct, frozen=True):
    """The health of the app."""

    state: str
    live: bool
    ready: bool
    problems: tuple[ProblemView, ...]


class WorkerView(msgspec.Struct, frozen=True):
    """A worker of this instance."""

    name: str
    state: str
    task: str | None


class EventView(msgspec.Struct, frozen=True):
    """An event that the page saw: when, by the wall clock in ms, and in words."""

    at_ms: int
    text: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows of one moment."""

    at_ms: int
    application_id: str
    name: str
    version: str
    guarantee: str
    uptime_s: float | None
    health: HealthView
    paused: bool
    processed: int
    processed_rate: float | None
    produced: int
    produced_rate: float | None
    dropped: int
    dropped_rate: float | None
    lag: int | None
    trends: TrendsView
    workers: tuple[WorkerView, ...]
    tasks: tuple[TaskView, ...]
    topics: tuple[TopicView, ...]
    nodes: tuple[NodeView, ...]
    group: GroupView = GroupView()
    events: tuple[EventView, ...] = ()


def health_view(health: Health) -> HealthView:
    """Return the health for the page."""
    return HealthView(
        health.state.name, health.live, health.ready, tuple(map(_problem, health.problems))
    )


def _problem(problem: HealthProblem) -> ProblemView:
    return ProblemView(
        problem.reason.value,
        problem.reason.fatal,
        problem.text,
        _text(problem.task),
        _text(problem.partition),
        problem.waited_ms,
        problem.reason.runbook,
        problem.query,
    )


def worker_views(app: App) -> tuple[WorkerView, ...]:
    """Return the workers for the page."""
    return tuple(WorkerView(one.name, one.state.name, one.task) for one in app.workers())


def task_view(task: TaskMetadata, bound_ms: int) -> TaskView:
    """Return a task for the page; a wait of `bound_ms` is stuck (0 or less: no wait is)."""
    full = any(one.in_flight and not one.room for one in task.calls)
    waits = tuple(
        _wait(wait, bound_ms, full=full) for wait in task.waits if wait.reason not in IDLE
    )
    return TaskView(
        str(task.task),
        task.query,
        task.state.name,
        task.standby,
        any(wait.stuck for wait in waits),
        tuple(
            PartitionView(
                str(one.partition),
                one.partition.topic,
                one.position,
                one.buffered,
                one.end,
                one.lag,
            )
            for one in task.progress
        ),
        tuple(
            RestoreView(str(one.changelog), one.position, one.end, one.share)
            for one in task.restores
        ),
        tuple(CallView(one.node, one.in_flight, one.room) for one in task.calls),
        waits,
    )


def _wait(wait: Wait, bound_ms: int, *, full: bool) -> WaitView:
    stuck = 0 < bound_ms <= wait.waited_ms and wait.reason is not WaitReason.PAUSED
    return WaitView(
        _text(wait.partition),
        wait.reason.value,
        wait.text,
        wait.waited_ms,
        stuck,
        wait.reason in PRESSURE or (full and wait.reason is WaitReason.ASYNC_CALL),
    )


def node_views(tasks: Iterable[TaskView], text: dict[str, str]) -> tuple[NodeView, ...]:
    """Return the asynchronous nodes of all tasks; `text` has the reasons of stuck nodes."""
    found: dict[str, list[CallView]] = {}
    for task in tasks:
        for call in task.calls:
            found.setdefault(call.node, []).append(call)
    return tuple(
        NodeView(
            name,
            sum(call.in_flight for call in calls),
            any(call.in_flight and not call.room for call in calls),
            text.get(name),
        )
        for name, calls in found.items()
    )


def stuck_nodes(tasks: Iterable[TaskView]) -> dict[str, str]:
    """Return the reason of each asynchronous node of a task that is stuck on a call."""
    return {
        call.node: wait.text
        for task in tasks
        for wait in task.waits
        if wait.stuck and wait.reason == WaitReason.ASYNC_CALL.value
        for call in task.calls
        if call.in_flight
    }


class Figures(NamedTuple):
    """Figures of the app's metrics: totals, and by topic the age of the oldest record in s."""

    processed: int
    produced: int
    dropped: int
    written: Mapping[str, float]
    lag_s: Mapping[str, float]


def figures(app: App) -> Figures:
    """Read the metrics of the app."""
    values = app.metrics()
    written: dict[str, float] = {}
    for metric in values.find("records-produced-total"):
        if isinstance(metric.value, float | int):
            topic = metric.tags["topic"]
            written[topic] = written.get(topic, 0.0) + metric.value
    ages: dict[str, float] = {}
    for metric in values.find("lag-seconds"):
        if isinstance(metric.value, float | int) and not isnan(metric.value):
            topic = metric.tags["topic"]
            ages[topic] = max(ages.get(topic, 0.0), metric.value)
    processed, produced = values["process-total"], values["produced-records-total"]
    dropped = values["dropped-records-total"]
    return Figures(int(processed), int(produced), int(dropped), written, ages)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
