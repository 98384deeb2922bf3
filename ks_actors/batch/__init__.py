"""Batch bridge: run topologies over history, and read topics as Spark DataFrames.

Importing this package imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from ks_actors.batch._backfill import Engine, backfill
from ks_actors.batch._export_progress import ExportProgress
from ks_actors.batch._reading import LogAddress
from ks_actors.batch.backfill import Backfill, BackfillProgress, Choice, TaskDone, publish_backfill
from ks_actors.batch.spark import (
    BatchBridge,
    CancelJob,
    JobProgress,
    QueryEnded,
    QueryEvent,
    QueryFailed,
    QueryProgress,
    QueryStarted,
    RunJob,
    SparkBridge,
    SparkFunction,
    SparkSettings,
    StartQuery,
    StopQuery,
    register,
)

__all__ = [
    "Backfill",
    "BackfillProgress",
    "BatchBridge",
    "CancelJob",
    "Choice",
    "Engine",
    "ExportProgress",
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
    "publish_backfill",
    "register",
]
