"""The life cycle of a task: that of Kafka Streams, transition by transition."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from ks_actors.lifecycle import Cycle, Transitions, component_log

if TYPE_CHECKING:
    from ks_actors.records import TaskId

_log = component_log(__name__)


class TaskState(Enum):
    """The state of a task.

    CREATED ──▶ RESTORING ──▶ RUNNING ──▶ SUSPENDED ──▶ CLOSED
       ▲  │       ▲    │                   ▲ ▲   │         │
       │  └───────┼────┼───────────────────┘ │   │         │
       │          │    └─────────────────────┘   │         │
       │          └────────taken up again────────┘         │
       └───────────────────corrupted, wiped────────────────┘

    - CREATED: it is assigned, and its stores are being opened.
    - RESTORING: its stores are read from their changelogs.
    - RUNNING: it is processed; a standby follows its changelogs.
    - SUSPENDED: it takes no new records, finishes its work in hand, and is committed.
    - CLOSED: its processors are closed.

    Every task is suspended before it is closed. A task with corrupted state is created again, and
    restores from the beginning. So is a standby that becomes active, or the reverse. A rollback
    leaves a task RUNNING. A suspended task is closed even if it comes back, so no task goes from
    SUSPENDED to RESTORING, which Kafka Streams allows.
    """

    CREATED = "CREATED"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CLOSED = "CLOSED"


TASK_TRANSITIONS = Transitions(
    {
        TaskState.CREATED: {TaskState.RESTORING, TaskState.SUSPENDED},
        TaskState.RESTORING: {TaskState.RUNNING, TaskState.SUSPENDED},
        TaskState.RUNNING: {TaskState.SUSPENDED},
        TaskState.SUSPENDED: {TaskState.RESTORING, TaskState.CLOSED},
        TaskState.CLOSED: {TaskState.CREATED},
    }
)


TaskLife: TypeAlias = Cycle[TaskState]
"""The life of one task on this instance.

The life belongs to the part of the app that has the task, and moves with the task to another part.
"""


def new_life(task: TaskId) -> TaskLife:
    """Begin the life of a task: it is CREATED."""

    def tell(old: TaskState, new: TaskState) -> None:
        _log.debug("task %s: %s, was %s", task, new.name, old.name)

    return TASK_TRANSITIONS.start(TaskState.CREATED, name=f"task {task}", on_change=tell)


def end_life(life: TaskLife) -> None:
    """End a life in any state: the task is suspended, if necessary, and CLOSED."""
    if life.is_(TaskState.CLOSED):
        return
    if not life.is_(TaskState.SUSPENDED):
        life.to(TaskState.SUSPENDED)
    life.to(TaskState.CLOSED)


def begin_anew(life: TaskLife) -> TaskLife:
    """End a life, and begin it again: the task is CREATED."""
    end_life(life)
    life.to(TaskState.CREATED)
    return life
