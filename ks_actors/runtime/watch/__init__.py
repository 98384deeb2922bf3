"""The watchdog: records that wait, and their reasons."""

from ks_actors.runtime.watch._coverage import Coverage as Coverage
from ks_actors.runtime.watch._health import (
    Health,
    HealthBounds,
    HealthCheck,
    HealthProblem,
    HealthReason,
    ended_problem,
    outage_problems,
)
from ks_actors.runtime.watch._partition_state import PartitionState as PartitionState
from ks_actors.runtime.watch._partition_state import PartitionStates
from ks_actors.runtime.watch._stream_times import stream_times as stream_times
from ks_actors.runtime.watch._tasks import (
    CallProgress,
    PartitionProgress,
    RestoreProgress,
    TaskMetadata,
    task_metadata,
    with_progress,
)
from ks_actors.runtime.watch._unreachable import longest_outage_ms, outages_text, wait_of_instance
from ks_actors.runtime.watch._upstream import Upstream as Upstream
from ks_actors.runtime.watch._waits import Wait, WaitReason
from ks_actors.runtime.watch._watchdog import WATCH_MAILBOX, Watch

__all__ = [
    "WATCH_MAILBOX",
    "CallProgress",
    "Health",
    "HealthBounds",
    "HealthCheck",
    "HealthProblem",
    "HealthReason",
    "PartitionProgress",
    "PartitionStates",
    "RestoreProgress",
    "TaskMetadata",
    "Wait",
    "WaitReason",
    "Watch",
    "ended_problem",
    "longest_outage_ms",
    "outage_problems",
    "outages_text",
    "task_metadata",
    "wait_of_instance",
    "with_progress",
]
