"""Metrics of the partitions that tasks read."""

from __future__ import annotations

from ks_actors.metrics._family import Group

INPUT = Group("ks-actors-input-metrics", "client-id", "task-id", "topic", "partition")

LAG = INPUT.gauge(
    "records-lag",
    "Offsets of the log that are not processed: buffered records count, those in async calls do "
    "not; NaN while the end is not known",
)
LAG_SECONDS = INPUT.gauge(
    "lag-seconds",
    "The age in s of the next record by its timestamp, or of the last processed one while the "
    "next is not in memory; 0 when all records are processed, NaN while that is not known",
)
BUFFERED = INPUT.gauge("buffered-records", "Records that were fetched and not processed")
POSITION = INPUT.gauge("position", "The offset of the next record to process")
END_OFFSET = INPUT.gauge("end-offset", "The end of the log as last seen")
