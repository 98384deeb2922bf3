"""Parts that several actors share."""

from ks_actors.runtime.shared._awaited_serdes import AwaitedSerdes
from ks_actors.runtime.shared._internal_topics import (
    check_new_topics,
    check_sizes,
    fixed_sinks,
    plan_topics,
    prepare_topics,
    topics_prepared,
    unlisted_topics,
)
from ks_actors.runtime.shared._listeners import (
    RestoreListener,
    StandbyUpdateListener,
    SuspendReason,
)
from ks_actors.runtime.shared._metrics import Metrics
from ks_actors.runtime.shared._state_directory import (
    CLUSTER_FILE,
    PROCESS_FILE,
    StateDirectory,
    check_cluster,
    write_process_id,
)
from ks_actors.runtime.shared._states import (
    INSTANCE_TRANSITIONS,
    WORKER_TRANSITIONS,
    InstanceState,
    WorkerState,
)
from ks_actors.runtime.shared._topic_configs import misfits
from ks_actors.runtime.shared._uncaught import UncaughtHandler, UncaughtResponse, shut_down

__all__ = [
    "CLUSTER_FILE",
    "INSTANCE_TRANSITIONS",
    "PROCESS_FILE",
    "WORKER_TRANSITIONS",
    "AwaitedSerdes",
    "InstanceState",
    "Metrics",
    "RestoreListener",
    "StandbyUpdateListener",
    "StateDirectory",
    "SuspendReason",
    "UncaughtHandler",
    "UncaughtResponse",
    "WorkerState",
    "check_cluster",
    "check_new_topics",
    "check_sizes",
    "fixed_sinks",
    "misfits",
    "plan_topics",
    "prepare_topics",
    "shut_down",
    "topics_prepared",
    "unlisted_topics",
    "write_process_id",
]
