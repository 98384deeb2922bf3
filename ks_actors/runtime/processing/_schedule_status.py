"""The task manager's answer about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors import Ref
    from ks_actors.records import TaskId
    from ks_actors.runtime.commit import DrainsStatus
    from ks_actors.runtime.messages import WorkerMessage


class ScheduleStatus(NamedTuple):
    """The schedule of an instance at one moment.

    `pressed`: the log is slow to take output. `full`: stores have reached the limit of uncommitted
    bytes. `free` counts the workers without a task. `leased` has the worker of each leased task;
    the worker may be dead. `suspended` tasks are being handed over, and `broken` tasks pause after
    a failure.
    """

    pressed: bool
    full: bool
    free: int
    leased: Mapping[TaskId, Ref[WorkerMessage]]
    suspended: frozenset[TaskId]
    broken: frozenset[TaskId]
    drains: DrainsStatus
