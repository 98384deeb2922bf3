"""Metrics of an app as a whole, by Kafka Streams' names."""

from __future__ import annotations

from ks_actors.metrics._family import Group

CLIENT = Group("stream-metrics", "client-id")

VERSION = CLIENT.text("version", "The version of ks-actors")
APPLICATION_ID = CLIENT.text("application-id", "The application id")
TOPOLOGY_DESCRIPTION = CLIENT.text(
    "topology-description", "The topology as Topology.describe() prints it"
)
STATE = CLIENT.text("state", "The state of the app")
ALIVE_THREADS = CLIENT.gauge("alive-stream-threads", "Workers that run or take part in a rebalance")
FAILED_THREADS = CLIENT.counter("failed-stream-threads", "Workers that have died since the start")
CLIENT_STATE = CLIENT.gauge(
    "client-state",
    "The state of the app as a number: CREATED 0, REBALANCING 1, RUNNING 2, PENDING_SHUTDOWN 3, "
    "NOT_RUNNING 4, PENDING_ERROR 5, ERROR 6",
    tags=("client-id", "application-id", "process-id"),
)
RECORDING_LEVEL = CLIENT.gauge(
    "recording-level",
    "metrics_recording_level as a number: INFO 0, DEBUG 1, TRACE 2",
    tags=("client-id", "process-id"),
)
