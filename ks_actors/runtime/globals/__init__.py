"""Global tables."""

from ks_actors.runtime.globals._global_stores import GlobalStores
from ks_actors.runtime.globals._global_tables import (
    GLOBAL_MAILBOX,
    GLOBAL_TASK,
    AwaitFilled,
    GlobalTables,
)

__all__ = [
    "GLOBAL_MAILBOX",
    "GLOBAL_TASK",
    "AwaitFilled",
    "GlobalStores",
    "GlobalTables",
]
