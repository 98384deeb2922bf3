"""The batch bridge: topologies over history, and topics as DataFrames, on Spark. Importing it imports neither pyspark nor pyarrow."""

from __future__ import annotations

from ks_actors.batch._backfill import Engine, backfill
from ks_actors.batch._reading import LogAddress
from ks_actors.batch.backfill._plan import Choice
from ks_actors.batch.backfill._publish import publish
from ks_actors.batch.backfill._result import Backfill, BackfillProgress, TaskDone
from ks_actors.batch.spark._bridge import BatchBridge
from ks_actors.batch.spark._messages import (
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
from ks_actors.batch.spark._session import register
from ks_actors.batch.spark._settings import SparkSettings
from ks_actors.batch.spark._spark_bridge import SparkBridge, SparkFunction

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
