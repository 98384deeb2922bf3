"""The actors that run a topology."""

from ks_actors.app._reset import reset
from ks_actors.app._reset_plan import ResetOffset, ResetPlan
from ks_actors.runtime.instance._workers import WorkerMetadata
from ks_actors.runtime.shared._listeners import RestoreListener, StandbyUpdateListener, SuspendReason
from ks_actors.runtime.shared._states import InstanceState, WorkerState
from ks_actors.runtime.shared._uncaught import UncaughtHandler, UncaughtResponse
from ks_actors.runtime.stores._store_metrics import TaskMetrics
from ks_actors.runtime.watch._waits import Wait, WaitReason
from ks_actors.task._states import TaskState
from ks_actors.task.calls._blocking import blocking

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
