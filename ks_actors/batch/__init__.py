"""The batch bridge: topologies over history, and topics as DataFrames, on Spark. Importing it imports neither pyspark nor pyarrow."""

from __future__ import annotations

from typing import Any

from ks_actors.batch._bridge import BatchBridge
from ks_actors.batch._messages import CancelJob, JobProgress, RunJob
from ks_actors.batch._reading import LogAddress
from ks_actors.batch._settings import SparkSettings

__all__ = ["BatchBridge", "CancelJob", "JobProgress", "LogAddress", "RunJob", "SparkSettings", "register"]


def register(session: Any) -> None:
    """Make `session.read.format("ks_actors")` known to a session of pyspark; jobs of the bridge find it known. Raises SparkUnavailable."""
    from ks_actors.batch._session import register_source  # noqa: PLC0415 - it imports pyspark

    register_source(session)
