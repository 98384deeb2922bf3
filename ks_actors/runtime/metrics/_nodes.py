"""Metrics of sources, sinks and topics, of asynchronous calls and of exception handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.metrics import joined
from ks_actors.metrics.families import node as f
from ks_actors.task import Emission
from ks_actors.topology import ProcessorNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ks_actors.metrics import MetricSource, Readings
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import Task
    from ks_actors.topology import Topology

_EMITS: Final = {Emission.SUPPRESSED: f.SUPPRESSION_EMIT, Emission.FINAL: f.FINAL_EMIT}


def node_source(metrics: Metrics, watched: Watched) -> MetricSource:
    """Return the source of the metrics of sources, sinks and topics."""
    client = watched.config.client_id

    ends = {
        part.id: tuple(_terminal(watched.topology, part.nodes))
        for part in watched.topology.subtopologies()
    }

    def read() -> Iterator[Readings]:
        for task in tuple(metrics.tasks.values()):
            tags = {"thread-id": watched.pool, "task-id": str(task.id)}
            yield from _nodes(task, tags)
            # Records that are processed at all are processed to the end.
            spread = joined(queue.ages for queue in task.group.queues.values())
            for node in ends.get(task.id.subtopology, ()):
                yield tags | {"processor-node-id": node}, [(f.E2E_LATENCY, spread)]
        for topic, ages in tuple(watched.telemetry.ages.items()):
            yield {"client-id": client, "topic": topic}, [(f.AGES, ages.distribution())]

    return read


def _terminal(topology: Topology, nodes: Iterable[str]) -> Iterator[str]:
    """Iterate over the processors that forward to none."""
    for name in nodes:
        node = topology.nodes[name]
        if isinstance(node, ProcessorNode) and not node.children:
            yield name


def _nodes(task: Task, tags: dict[str, str]) -> Iterator[Readings]:
    consumed: dict[str, int] = {}
    for queue in task.group.queues.values():
        node, topic = queue.source.name, queue.partition.topic
        again = consumed.get(node)
        consumed[node] = (again or 0) + queue.consumed
        source = tags | {"processor-node-id": node}
        # A source that reads several topics has one age, the age of the first topic's records.
        if again is None:
            yield source, [(f.E2E_LATENCY, queue.ages.spread())]
        yield (
            source | {"topic": topic},
            [(f.CONSUMED, queue.consumed), (f.BYTES_CONSUMED, queue.bytes)],
        )
    for node, count in consumed.items():
        yield tags | {"processor-node-id": node}, [(f.PROCESS, count)]
    for node, emitted in tuple(task.sinks.emissions.items()):
        yield tags | {"processor-node-id": node}, [(_EMITS[emitted.kind], emitted.count)]
    seen: set[str] = set()
    for topic, sink in tuple(task.sinks.topics.items()):
        where = tags | {"processor-node-id": sink.node}
        if sink.node not in seen:
            seen.add(sink.node)
            yield where, [(f.E2E_LATENCY, sink.ages.spread())]
        yield (
            where | {"topic": topic},
            [(f.PRODUCED, sink.records), (f.BYTES_PRODUCED, sink.bytes)],
        )


def call_source(metrics: Metrics, watched: Watched) -> MetricSource:
    """Return the source of the metrics of asynchronous calls and of exception handlers."""
    client = watched.config.client_id

    def read() -> Iterator[Readings]:
        started = watched.started()
        now = 0.0 if started is None else started[0].ctx.time()
        for task in tuple(metrics.tasks.values()):
            for node in task.async_nodes:
                oldest = node.oldest
                times = node.times
                mean, most, _ = times.spread()
                yield (
                    {
                        "client-id": client,
                        "task-id": str(task.id),
                        "processor-node-id": node.node,
                    },
                    [
                        (f.IN_FLIGHT, node.in_flight),
                        (f.RUNNING, node.running),
                        (f.OLDEST_CALL, 0 if oldest is None else (now - oldest.began) * 1000),
                        (f.CALL, times.count),
                        (f.CALL_LATENCY, (mean * 1000, most * 1000)),
                        (f.CALL_FAILED, node.failures),
                    ],
                )
        for (handler, response), count in tuple(watched.telemetry.answers.items()):
            yield (
                {"client-id": client, "handler": handler, "response": response},
                [(f.ANSWERS, count)],
            )

    return read
