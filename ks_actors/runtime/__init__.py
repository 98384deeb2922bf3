"""The actors that run a topology."""

from ks_actors.runtime._blocking import blocking
from ks_actors.runtime._crew import WorkerMetadata
from ks_actors.runtime._state_manager import RestoreListener
from ks_actors.runtime._states import InstanceState, TaskState, WorkerState
from ks_actors.runtime._uncaught import UncaughtHandler, UncaughtResponse

__all__ = [
    "InstanceState",
    "RestoreListener",
    "TaskState",
    "UncaughtHandler",
    "UncaughtResponse",
    "WorkerMetadata",
    "WorkerState",
    "blocking",
]
