"""The watchdog: records that wait, and their reasons."""

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
from ks_actors.runtime.watch._tasks import TaskMetadata, task_metadata
from ks_actors.runtime.watch._unreachable import longest_outage_ms, outages_text, wait_of_instance
from ks_actors.runtime.watch._waits import Wait, WaitReason
from ks_actors.runtime.watch._watchdog import WATCH_MAILBOX, Watch

__all__ = [
    "WATCH_MAILBOX",
    "Health",
    "HealthBounds",
    "HealthCheck",
    "HealthProblem",
    "HealthReason",
    "PartitionStates",
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
]
