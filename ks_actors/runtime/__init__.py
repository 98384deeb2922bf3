"""The actors that run a topology."""

from ks_actors.runtime._blocking import blocking
from ks_actors.runtime._crew import WorkerMetadata
from ks_actors.runtime._listeners import RestoreListener, StandbyUpdateListener, SuspendReason
from ks_actors.runtime._reset import reset
from ks_actors.runtime._reset_plan import ResetOffset, ResetPlan
from ks_actors.runtime._states import InstanceState, TaskState, WorkerState
from ks_actors.runtime._task_metrics import TaskMetrics
from ks_actors.runtime._uncaught import UncaughtHandler, UncaughtResponse
from ks_actors.runtime._waits import Wait, WaitReason

__all__ = [
    "InstanceState",
    "ResetOffset",
    "ResetPlan",
    "RestoreListener",
    "StandbyUpdateListener",
    "SuspendReason",
    "TaskMetrics",
    "TaskState",
    "UncaughtHandler",
    "UncaughtResponse",
    "Wait",
    "WaitReason",
    "WorkerMetadata",
    "WorkerState",
    "blocking",
    "reset",
]
