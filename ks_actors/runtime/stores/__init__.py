"""The state manager and the restorer."""

from ks_actors.runtime.stores._flusher import Flusher
from ks_actors.runtime.stores._restore_fetcher import restore_fetcher
from ks_actors.runtime.stores._restore_limits import Limits
from ks_actors.runtime.stores._restore_progress import Progress
from ks_actors.runtime.stores._restorer import RESTORER_MAILBOX, ChangelogRead, Restorer
from ks_actors.runtime.stores._state_manager import STATE_MANAGER_MAILBOX, StateManager
from ks_actors.runtime.stores._store_entry import LoadedEntry, StoreEntry, StoresStatus
from ks_actors.runtime.stores._store_metrics import TaskMetrics, task_metrics
from ks_actors.runtime.stores._task_directories import TaskDirectories

__all__ = [
    "RESTORER_MAILBOX",
    "STATE_MANAGER_MAILBOX",
    "ChangelogRead",
    "Flusher",
    "Limits",
    "LoadedEntry",
    "Progress",
    "Restorer",
    "StateManager",
    "StoreEntry",
    "StoresStatus",
    "TaskDirectories",
    "TaskMetrics",
    "restore_fetcher",
    "task_metrics",
]
