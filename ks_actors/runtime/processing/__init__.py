"""The task manager and the workers."""

from ks_actors.runtime.processing._pauses import Pauses
from ks_actors.runtime.processing._purge import Purger
from ks_actors.runtime.processing._schedule_status import ScheduleStatus
from ks_actors.runtime.processing._task_manager import TASK_MANAGER_MAILBOX, TaskManager
from ks_actors.runtime.processing._worker import WORKER_MAILBOX, Worker, WorkerFigures

__all__ = [
    "TASK_MANAGER_MAILBOX",
    "WORKER_MAILBOX",
    "Pauses",
    "Purger",
    "ScheduleStatus",
    "TaskManager",
    "Worker",
    "WorkerFigures",
]
