"""The batch bridge: topologies over history, and topics as DataFrames, on Spark. Importing it imports neither pyspark nor pyarrow."""

from __future__ import annotations

from ks_actors.batch._backfill import Engine, backfill
from ks_actors.batch._bridge import BatchBridge
from ks_actors.batch._messages import (
    CancelJob,
    JobProgress,
    QueryEnded,
    QueryEvent,
    QueryFailed,
    QueryProgress,
    QueryStarted,
    RunJob,
    StartQuery,
    StopQuery,
)
from ks_actors.batch._plan import Choice
from ks_actors.batch._publish import publish
from ks_actors.batch._reading import LogAddress
from ks_actors.batch._result import Backfill, BackfillProgress
from ks_actors.batch._session import register
from ks_actors.batch._settings import SparkSettings
from ks_actors.batch._spark_bridge import SparkBridge, SparkFunction
from ks_actors.batch._task_run import TaskDone

__all__ = [
    "Backfill",
    "BackfillProgress",
    "BatchBridge",
    "CancelJob",
    "Choice",
    "Engine",
    "JobProgress",
    "LogAddress",
    "QueryEnded",
    "QueryEvent",
    "QueryFailed",
    "QueryProgress",
    "QueryStarted",
    "RunJob",
    "SparkBridge",
    "SparkFunction",
    "SparkSettings",
    "StartQuery",
    "StopQuery",
    "TaskDone",
    "backfill",
    "publish",
    "register",
]
