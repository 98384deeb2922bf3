"""The states of an instance and of a worker, as in Kafka Streams."""

from __future__ import annotations

from enum import Enum

from ks_actors.lifecycle import Transitions


class InstanceState(Enum):
    """The state of an app.

                   ┌──────────────────────close──────────────────────┐
                   │                                                 ▼
    CREATED ─start─┴▶ REBALANCING ◀──all run──▶ RUNNING ──close──▶ PENDING_SHUTDOWN ──▶ NOT_RUNNING
                       │       └──────close────────┼──────────────────▲
                       └──────────failed───────────┴──▶ PENDING_ERROR ──▶ ERROR

    RUNNING changes to REBALANCING as soon as one worker waits for its tasks, and back when all
    workers run. x and PENDING_ERROR close all resources; a closed app does not start again.
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
        InstanceState.REBALANCING: {
            InstanceState.RUNNING,
            InstanceState.PENDING_SHUTDOWN,
            InstanceState.PENDING_ERROR,
        },
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
    """The state of a worker.

    CREATED ──▶ STARTING ──▶ PARTITIONS_REVOKED ◀──▶ PARTITIONS_ASSIGNED ◀──▶ RUNNING
       │           │  │           │        ▲               ▲    │              │  │
       │           │  └───────────┼────────┼───────────────┘    │              │  │
       │           │              │        └────────────────────┼──────────────┘  │
       └───────────┴──────────────┴──────────stop───────────────┴─────────────────┤
                                                      DEAD ◀── PENDING_SHUTDOWN ◀─┘

    The states are those of a thread of Kafka Streams. All workers of an instance share its tasks,
    so they go through a rebalance together. Tasks that stay are processed all the time.

    - CREATED, STARTING: it has started, and the group has assigned no tasks yet.
    - PARTITIONS_REVOKED: the group rebalances, or the instance has lost its tasks.
    - PARTITIONS_ASSIGNED: some tasks of the assignment are being opened or restored.
    - RUNNING: all of them are processed.
    - PENDING_SHUTDOWN: it ends after its slice; DEAD: it has ended, or has died of an error.

    PARTITIONS_REVOKED, PARTITIONS_ASSIGNED and RUNNING may follow themselves: rebalances follow
    each other, and some change nothing.
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
        WorkerState.STARTING: {
            WorkerState.PARTITIONS_REVOKED,
            WorkerState.PARTITIONS_ASSIGNED,
            WorkerState.PENDING_SHUTDOWN,
        },
        WorkerState.PARTITIONS_REVOKED: {
            WorkerState.PARTITIONS_REVOKED,
            WorkerState.PARTITIONS_ASSIGNED,
            WorkerState.PENDING_SHUTDOWN,
        },
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
