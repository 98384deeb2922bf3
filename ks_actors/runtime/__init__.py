"""The actors that run a topology."""

from ks_actors.runtime.instance import WorkerMetadata
from ks_actors.runtime.shared import (
    InstanceState,
    RestoreListener,
    StandbyUpdateListener,
    SuspendReason,
    UncaughtHandler,
    UncaughtResponse,
    WorkerState,
)
from ks_actors.runtime.stores import TaskMetrics
from ks_actors.runtime.watch import (
    CallProgress,
    Health,
    HealthBounds,
    HealthProblem,
    HealthReason,
    PartitionProgress,
    RestoreProgress,
    TaskMetadata,
    Wait,
    WaitReason,
)
from ks_actors.task import TaskState
from ks_actors.task.calls import blocking

__all__ = [
    "CallProgress",
    "Health",
    "HealthBounds",
    "HealthProblem",
    "HealthReason",
    "InstanceState",
    "PartitionProgress",
    "RestoreListener",
    "RestoreProgress",
    "StandbyUpdateListener",
    "SuspendReason",
    "TaskMetadata",
    "TaskMetrics",
    "TaskState",
    "UncaughtHandler",
    "UncaughtResponse",
    "Wait",
    "WaitReason",
    "WorkerMetadata",
    "WorkerState",
    "blocking",
]
