"""The life cycle of a task: that of Kafka Streams, transition by transition."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from ks_actors.lifecycle import Cycle, Transitions


class TaskState(Enum):
    """Where a task is in its life.

    CREATED ──▶ RESTORING ──▶ RUNNING ──▶ SUSPENDED ──▶ CLOSED
       ▲  │       ▲    │                   ▲ ▲   │         │
       │  └───────┼────┼───────────────────┘ │   │         │
       │          │    └─────────────────────┘   │         │
       │          └────────taken up again────────┘         │
       └───────────────────corrupted, wiped────────────────┘

    Every task is suspended before it is closed. A task with corrupted state is created again, and
    restores from the beginning.
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
"""The life of one task."""
