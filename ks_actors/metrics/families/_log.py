"""Metrics of the clients of the log: the group, fetching, producing; and of the event loop."""

from __future__ import annotations

from ks_actors.metrics._family import Group
from ks_actors.metrics.families._thread import THREAD

# The poller's thread metrics, by the names of Kafka Streams' threads.
POLL = THREAD.rate("poll-rate", "Fetches that have ended", total="poll-total")
POLL_LATENCY = THREAD.spread("poll-latency", "Time of a fetch in ms, the wait for records included")
POLL_RATIO = THREAD.ratio(
    "poll-ratio", "The share of the last minute in which a fetch was under way"
)
POLL_RECORDS = THREAD.spread("poll-records", "Records of a fetch")

GROUP = Group("consumer-coordinator-metrics", "client-id")

ASSIGNED = GROUP.gauge("assigned-partitions", "Input partitions that the group has assigned here")
REBALANCES = GROUP.counter("rebalance-total", "Assignments since the start")
LAST_REBALANCE = GROUP.gauge(
    "last-rebalance-seconds-ago", "The time in s since the last assignment; NaN before the first"
)
REBALANCE_LATENCY = GROUP.spread(
    "rebalance-latency", "Time in ms from the revocation, or the start, until the assignment"
)
LAST_HEARTBEAT = GROUP.gauge(
    "last-heartbeat-seconds-ago",
    "The time in s since the group has last answered a heartbeat; NaN while it has not, and with a "
    "log in the process",
)

OWN_GROUP = Group("ks-actors-group-metrics", "client-id")

GENERATION = OWN_GROUP.gauge("generation", "The generation of the group; -1 without one")
LOST = OWN_GROUP.counter("membership-lost-total", "Times that the group has removed this member")
ASSIGNOR_FAILURES = OWN_GROUP.counter(
    "assignor-failures-total",
    "Rebalances in which the assignor or the grouper failed, and tasks stayed where they were",
)
UNCOVERED = OWN_GROUP.gauge(
    "uncovered-queries",
    "Queries of the topology that no member of the group runs; NaN while not known",
)

FETCH = Group("consumer-fetch-manager-metrics", "client-id")

FETCHES = FETCH.rate("fetch-rate", "Fetch requests that were answered", total="fetch-total")
FETCH_LATENCY = FETCH.spread("fetch-latency", "Time of a fetch request in ms")
FETCHED_BYTES = FETCH.rate(
    "bytes-consumed-rate", "Bytes of fetched batches", total="bytes-consumed-total"
)

PRODUCER = Group("producer-metrics", "client-id")

REQUESTS = PRODUCER.rate(
    "request-rate", "Produce requests that were answered", total="request-total"
)
REQUEST_LATENCY = PRODUCER.spread("request-latency", "Time of a produce request in ms")
SENT_RECORDS = PRODUCER.rate(
    "record-send-rate", "Records that brokers have taken", total="record-send-total"
)
SENT_BYTES = PRODUCER.rate(
    "outgoing-byte-rate", "Bytes of written batches", total="outgoing-byte-total"
)

LOOP = Group("ks-actors-loop-metrics", "client-id")

LAG = LOOP.spread(
    "loop-lag", "Time in ms that a timer of each second came too late, by the event loop"
)
READ_TIME = LOOP.spread("metrics-read", "Time in ms that reading all metrics has taken")
