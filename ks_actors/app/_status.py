"""The status of an app: its health, its group and its summary in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._counted import counted
from ks_actors._times import whole_ms
from ks_actors.lifecycle import component_log, passes
from ks_actors.log import TellsGroups
from ks_actors.runtime.shared import InstanceState
from ks_actors.runtime.watch import (
    Health,
    HealthCheck,
    HealthProblem,
    HealthReason,
    ended_problem,
    outage_problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.config import StreamsConfig
    from ks_actors.log import GroupMember, Log
    from ks_actors.runtime.instance import Instance
    from ks_actors.runtime.watch import HealthBounds, TaskMetadata

_log = component_log(__name__)
_ENDS = {InstanceState.NOT_RUNNING, InstanceState.ERROR}


def health(
    state: InstanceState,
    config: StreamsConfig,
    instance: Instance | None,
    log: Log | None,
    bounds: HealthBounds,
    *,
    now_ms: Callable[[], float] | None,
) -> Health:
    """Return the health of an app; callable from any thread."""
    if state in _ENDS:
        error = None if instance is None else instance.error
        return Health(state=state, problems=(ended_problem(state, error),))
    if instance is None or instance.parts is None or now_ms is None:
        text = f"the app is {state.name}, not RUNNING"
        stage = HealthProblem(reason=HealthReason.STATE, text=text)
        return Health(
            state=state, problems=(stage, *outage_problems(log, whole_ms(bounds.outage_ms)))
        )
    check = HealthCheck(instance.parts, instance.watch, log, bounds, now_ms=now_ms())
    stuck = config.max_poll_interval_ms if bounds.stuck_ms is None else bounds.stuck_ms
    return Health(state=state, problems=check.problems(state, stuck_ms=whole_ms(stuck)))


def tell_state(
    listener: Callable[[InstanceState, InstanceState], None],
    new: InstanceState,
    old: InstanceState,
) -> None:
    """Tell a user's listener of a change of state, which the listener cannot undo."""
    try:
        listener(new, old)
    except BaseException as error:
        if passes(error):
            raise
        _log.exception("the state listener raised, about %s", new.name)


async def members_of(log: Log, group: str) -> tuple[GroupMember, ...]:
    """Return the members of a group by client id; none from a log that describes no groups."""
    if not isinstance(log, TellsGroups):
        return ()
    found = await log.group_members(group)
    return tuple(sorted(found, key=lambda member: (member.client_id, member.member_id)))


def summary(
    config: StreamsConfig, state: InstanceState, tasks: tuple[TaskMetadata, ...], workers: int
) -> str:
    """Return the repr of an app: its ids, its state, and its tasks and workers."""
    counts = task_counts(tasks, workers)
    return f"<App {config.application_id} ({config.client_id}): {state.name}, {counts}>"


def task_counts(tasks: tuple[TaskMetadata, ...], workers: int) -> str:
    """Return in words how many tasks, standbys and workers there are."""
    standbys = sum(task.standby for task in tasks)
    return ", ".join(
        counted(count, noun)
        for count, noun in (
            (len(tasks) - standbys, "active task"),
            (standbys, "standby"),
            (workers, "worker"),
        )
    )
