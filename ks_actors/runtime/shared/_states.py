"""The life cycles of an instance, of a worker and of a task: Kafka Streams' own, arrow by arrow."""

from __future__ import annotations

from enum import Enum

from ks_actors.lifecycle import Transitions


class InstanceState(Enum):
    """Where an app is in its life.

                   ┌──────────────────────close──────────────────────┐
                   │                                                 ▼
    CREATED ─start─┴▶ REBALANCING ◀──all run──▶ RUNNING ──close──▶ PENDING_SHUTDOWN ──▶ NOT_RUNNING
                       │       └──────close────────┼──────────────────▲
                       └──────────failed───────────┴──▶ PENDING_ERROR ──▶ ERROR

    RUNNING is left for REBALANCING as soon as one worker waits for its tasks, and reached again when all workers run. It may go to itself.
    PENDING_SHUTDOWN and PENDING_ERROR close what there is; what was closed is not started again.
    """

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


INSTANCE_TRANSITIONS = Transitions(
    {
        InstanceState.CREATED: {InstanceState.REBALANCING, InstanceState.PENDING_SHUTDOWN},
        InstanceState.REBALANCING: {InstanceState.RUNNING, InstanceState.PENDING_SHUTDOWN, InstanceState.PENDING_ERROR},
        InstanceState.RUNNING: {
            InstanceState.REBALANCING,
            InstanceState.RUNNING,
            InstanceState.PENDING_SHUTDOWN,
            InstanceState.PENDING_ERROR,
        },
        InstanceState.PENDING_SHUTDOWN: {InstanceState.NOT_RUNNING},
        InstanceState.NOT_RUNNING: (),
        InstanceState.PENDING_ERROR: {InstanceState.ERROR},
        InstanceState.ERROR: (),
    }
)


class WorkerState(Enum):
    """Where a worker is in its life.

    CREATED ──▶ STARTING ──▶ PARTITIONS_REVOKED ◀──▶ PARTITIONS_ASSIGNED ◀──▶ RUNNING
       │           │  │           │        ▲               ▲    │              │  │
       │           │  └───────────┼────────┼───────────────┘    │              │  │
       │           │              │        └────────────────────┼──────────────┘  │
       └───────────┴──────────────┴──────────stop───────────────┴─────────────────┴──▶ PENDING_SHUTDOWN ──▶ DEAD

    PARTITIONS_REVOKED, PARTITIONS_ASSIGNED and RUNNING may go to themselves: rebalances follow each other, some change nothing.
    """

    CREATED = "CREATED"
    STARTING = "STARTING"
    PARTITIONS_REVOKED = "PARTITIONS_REVOKED"
    PARTITIONS_ASSIGNED = "PARTITIONS_ASSIGNED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    DEAD = "DEAD"


WORKER_TRANSITIONS = Transitions(
    {
        WorkerState.CREATED: {WorkerState.STARTING, WorkerState.PENDING_SHUTDOWN},
        WorkerState.STARTING: {WorkerState.PARTITIONS_REVOKED, WorkerState.PARTITIONS_ASSIGNED, WorkerState.PENDING_SHUTDOWN},
        WorkerState.PARTITIONS_REVOKED: {WorkerState.PARTITIONS_REVOKED, WorkerState.PARTITIONS_ASSIGNED, WorkerState.PENDING_SHUTDOWN},
        WorkerState.PARTITIONS_ASSIGNED: {
            WorkerState.PARTITIONS_REVOKED,
            WorkerState.PARTITIONS_ASSIGNED,
            WorkerState.RUNNING,
            WorkerState.PENDING_SHUTDOWN,
        },
        WorkerState.RUNNING: {
            WorkerState.PARTITIONS_REVOKED,
            WorkerState.PARTITIONS_ASSIGNED,
            WorkerState.RUNNING,
            WorkerState.PENDING_SHUTDOWN,
        },
        WorkerState.PENDING_SHUTDOWN: {WorkerState.DEAD},
        WorkerState.DEAD: (),
    }
)
