"""Metrics of the named queries."""

from __future__ import annotations

from ks_actors.metrics._family import Group

QUERY = Group("ks-actors-query-metrics", "client-id", "query")

PAUSED = QUERY.gauge("paused", "1 while the query is paused here, else 0")
PROCESS = QUERY.rate("process-rate", "Records that were processed", total="process-total")
PROCESS_LATENCY = QUERY.spread("process-latency", "Time per record of a slice in ns")
LAG = QUERY.gauge(
    "lag",
    "Offsets of the log that are not processed, as far as ends are known; NaN while none is known",
)
LAG_SECONDS = QUERY.gauge(
    "lag-seconds-max", "The largest lag-seconds of its partitions; NaN while none is known"
)
