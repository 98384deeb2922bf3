"""Metrics of nodes, of the topics that they read and write, and of asynchronous calls."""

from __future__ import annotations

from ks_actors.metrics._family import Group
from ks_actors.metrics._metric import RecordingLevel

_DEBUG = RecordingLevel.DEBUG

NODE = Group("stream-processor-node-metrics", "thread-id", "task-id", "processor-node-id")

E2E_LATENCY = NODE.spread(
    "record-e2e-latency",
    "Wall clock minus timestamp in ms, of the last record of each slice, after it: of sources and "
    "sinks",
    least=True,
)
PROCESS = NODE.rate(
    "process-rate", "Records that a source has handed on", total="process-total", level=_DEBUG
)
SUPPRESSION_EMIT = NODE.rate(
    "suppression-emit-rate",
    "Changes that a suppression has forwarded",
    total="suppression-emit-total",
    level=_DEBUG,
)
FINAL_EMIT = NODE.rate(
    "window-aggregate-final-emit-rate",
    "Results that a windowed aggregation has forwarded when their windows closed",
    total="window-aggregate-final-emit-total",
    level=_DEBUG,
)

TOPIC = Group("stream-topic-metrics", "thread-id", "task-id", "processor-node-id", "topic")

CONSUMED = TOPIC.counter("records-consumed-total", "Records that were read from the topic")
BYTES_CONSUMED = TOPIC.counter(
    "bytes-consumed-total", "Bytes of keys and values of fetched records, estimated by samples"
)
PRODUCED = TOPIC.counter("records-produced-total", "Records that were written to the topic")
BYTES_PRODUCED = TOPIC.counter(
    "bytes-produced-total", "Bytes of keys and values of written records, estimated by samples"
)

LATENCY = Group("ks-actors-latency-metrics", "client-id", "topic")

AGES = LATENCY.histogram(
    "record-e2e-latency-ms",
    "Wall clock minus timestamp in ms, of the last record of each slice that was written to the "
    "topic by this instance",
)

CALLS = Group("ks-actors-call-metrics", "client-id", "task-id", "processor-node-id")

IN_FLIGHT = CALLS.gauge("records-in-flight", "Records that the node has, results included")
RUNNING = CALLS.gauge("calls-running", "Calls of the async function that have not returned")
OLDEST_CALL = CALLS.gauge("oldest-call-ms", "The time in ms that the oldest of them has taken")
CALL = CALLS.rate("call-rate", "Calls that have ended, with their retries", total="call-total")
CALL_LATENCY = CALLS.spread("call-latency", "Time of a call with its retries in ms")
CALL_FAILED = CALLS.rate(
    "call-failed-rate", "Calls that have failed after all retries", total="call-failed-total"
)

HANDLERS = Group("ks-actors-handler-metrics", "client-id", "handler", "response")

ANSWERS = HANDLERS.rate(
    "response-rate", "Responses of an exception handler", total="response-total"
)
