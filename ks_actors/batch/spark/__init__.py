"""Spark sessions and the bridge actor that uses them."""

from ks_actors.batch.spark._bridge import BatchBridge
from ks_actors.batch.spark._messages import (
    BridgeMessage,
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
from ks_actors.batch.spark._on_spark import on_spark, ship
from ks_actors.batch.spark._session import register
from ks_actors.batch.spark._settings import SparkSettings
from ks_actors.batch.spark._spark_bridge import SparkBridge, SparkFunction

__all__ = [
    "BatchBridge",
    "BridgeMessage",
    "CancelJob",
    "JobProgress",
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
    "on_spark",
    "register",
    "ship",
]
