"""The plan of a backfill: its tasks, ranges and stages, and the reasons to refuse it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec

from ks_actors._errors import BackfillRefused, ConfigError
from ks_actors.assignment import check_copartitioning, group_partitions
from ks_actors.batch._reading import LogRange, check_read, plan_ranges
from ks_actors.log import IsolationLevel
from ks_actors.processors.aggregates import StreamCount
from ks_actors.records import (
    TaskId,
    TopicPartition,
)
from ks_actors.runtime.shared import plan_topics
from ks_actors.state import has_rows
from ks_actors.task import TaskParts
from ks_actors.topology import ProcessorNode, without_engines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ks_actors.batch._reading import Bounds
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log
    from ks_actors.task import AppTopics, StoreSpecs
    from ks_actors.topology import Subtopology, Topology

Choice: TypeAlias = Literal[
    "order_after_rekey", "wall_clock", "incomplete_snapshot", "topics_read_back"
]
CHOICES: Final[tuple[str, ...]] = get_args(Choice)
_READ_BACK: Final = (
    "topic {} is written and read by this topology, but a backfill does not read back its own "
    "output. Use repartition(), or allow 'topics_read_back' to read the records that the topic "
    "has now"
)
_ORDER: Final = (
    "{} has state that may depend on the order of records in {}: a stream takes records of "
    "several tasks and topics in the order of arrival, a backfill by their times. Allow "
    "'order_after_rekey' if the order does not matter, or if the order of times is right"
)
_INCOMPLETE: Final = (
    "store {} {}: a stream that starts from the snapshot has it empty. Allow "
    "'incomplete_snapshot' to accept that"
)


class TaskPlan(msgspec.Struct, frozen=True):
    """One task and its part of history: ranges of topics, and partitions of repartition topics.

    Earlier stages have written those repartition topics.
    """

    task: TaskId
    ranges: tuple[LogRange, ...]
    exchanged: tuple[TopicPartition, ...]


class Stage(msgspec.Struct, frozen=True):
    """The tasks of one subtopology; they are independent of each other."""

    subtopology: int
    tasks: tuple[TaskPlan, ...]


class Plan(msgspec.Struct, frozen=True):
    """All stages with the partition counts of all topics.

    Each stage comes after those that write its repartition topics. `resume` has the end offsets of
    the repartition topics in the log: the streaming app must not read anything before them. `sinks`
    are the topics with fixed names that the topology writes to.
    """

    stages: tuple[Stage, ...]
    counts: Mapping[str, int]
    globals: tuple[LogRange, ...]
    resume: Mapping[TopicPartition, int]
    repartitions: frozenset[str]
    sinks: frozenset[str]

    @property
    def records(self) -> int:
        """The total number of offsets to read, without global tables."""
        return sum(
            one.end - one.start
            for stage in self.stages
            for task in stage.tasks
            for one in task.ranges
        )


def first_source(plan: Plan, stage: Stage) -> int:
    """Return the number of a stage's first task, counted across all stages.

    This number is the task's source number in the exchange.
    """
    return sum(len(each.tasks) for each in plan.stages[: plan.stages.index(stage)])


def parts_of(topology: Topology, config: StreamsConfig, counts: Mapping[str, int]) -> TaskParts:
    """Return the parts shared by all tasks of a backfill.

    Before a task processes a record, it waits for earlier records of its other partitions. Output
    must be repeatable, and so independent of any clock; caches are off because they flush by time.
    Stores are in RocksDB or memory, because snapshots are written from there.
    """
    parts = TaskParts.of(
        without_engines(topology, config.default_dsl_store),
        config.replace(max_task_idle_ms=0, statestore_cache_max_bytes=0),
        partitions=counts.get,
    )
    parts.topics.know_topics(counts)
    unlogged = frozenset(map(parts.topics.topic, topology.internal_topics))
    return msgspec.structs.replace(parts, replayable=True, unlogged=unlogged)


async def make_plan(
    log: Log,
    topology: Topology,
    config: StreamsConfig,
    bounds: Bounds,
    allow: Collection[str],
    *,
    snapshot: bool,
) -> Plan:
    """Return the plan; `snapshot` says whether the state goes into a snapshot.

    Raises BackfillRefused with all reasons. Also raises ConfigError, MissingSourceTopics,
    TopologyError and OffsetOutOfRange.
    """
    if strange := sorted(set(allow) - set(CHOICES)):
        raise ConfigError(
            f"allow: {', '.join(strange)} are unknown; possible are {', '.join(CHOICES)}"
        )
    parts = parts_of(topology, config, {})
    topics = parts.topics
    counts, _, existing = await plan_topics(log, topics)
    topics.know_topics(counts)
    sources = topics.subtopology_topics()
    check_copartitioning(topics.copartition_groups(), counts)
    repartitions = frozenset(map(topics.topic, topology.internal_topics))
    tasks = group_partitions(sources, counts)
    external = [topic for topic in topics.source_topics if topic not in repartitions]
    ranges = {(one.topic, one.partition): one for one in await plan_ranges(log, external, bounds)}
    # Apps fill global tables with their whole topics, whatever the times of the records: a bound by
    # time would empty tables that were filled after that time.
    whole = msgspec.structs.replace(bounds, starts={}, from_ms=None, until_ms=None)
    globals_ = (
        await plan_ranges(log, topology.global_topics, whole) if topology.global_topics else []
    )
    check_read("until", bounds.ends, [*ranges.values(), *globals_], by="the topology")
    stages = tuple(
        Stage(
            number,
            tuple(
                _task_plan(task, partitions, ranges)
                for task, partitions in tasks.items()
                if task.subtopology == number
            ),
        )
        for number in _in_order(topics)
    )
    reasons = _reasons(
        topics,
        {stage.subtopology: len(stage.tasks) for stage in stages},
        sources,
        parts.stores if snapshot else None,
    )
    refused = [text for choice, text in reasons if choice not in allow]
    if refused:
        raise BackfillRefused(refused)
    there = [
        TopicPartition(topic, number)
        for topic in sorted(repartitions & set(existing))
        for number in range(counts[topic])
    ]
    # Take the uncommitted ends: the stream must skip the records of open transactions, too.
    ends = await log.end_offsets(there, IsolationLevel.READ_UNCOMMITTED)
    sinks = frozenset(_writers(topics)) - repartitions
    return Plan(stages, counts, tuple(globals_), dict(ends), repartitions, sinks)


def _task_plan(
    task: TaskId, partitions: Iterable[TopicPartition], ranges: Mapping[tuple[str, int], LogRange]
) -> TaskPlan:
    read = tuple(ranges[one] for one in partitions if one in ranges)
    return TaskPlan(task, read, tuple(one for one in partitions if one not in ranges))


def _writers(topics: AppTopics) -> dict[str, list[int]]:
    """Return the subtopologies that write each topic with a fixed name."""
    writers: dict[str, list[int]] = {}
    for subtopology in topics.topology.subtopologies():
        for topic in subtopology.sink_topics:
            writers.setdefault(topics.topic(topic), []).append(subtopology.id)
    return writers


def _in_order(topics: AppTopics) -> list[int]:
    """Sort the subtopologies so that each follows the writers of its repartition topics."""
    writers = _writers(topics)
    needs: dict[int, set[int]] = {
        subtopology.id: {
            writer
            for topic in subtopology.repartition_topics
            for writer in writers.get(topics.topic(topic), ())
        }
        for subtopology in topics.topology.subtopologies()
        if subtopology.source_topics or subtopology.source_patterns
    }
    order: list[int] = []
    while needs:
        ready = sorted(number for number, others in needs.items() if not others & set(needs))
        if not ready:
            around = ", ".join(map(str, sorted(needs)))
            raise BackfillRefused(
                [
                    (
                        f"subtopologies {around} write repartition topics that lead back to them, "
                        "as the two tables of a foreign-key join do, so they cannot be run one "
                        "after the other: read this history with a stream"
                    )
                ]
            )
        order += ready
        for number in ready:
            del needs[number]
    return order


def _reasons(
    topics: AppTopics,
    tasks: Mapping[int, int],
    sources: Mapping[int, Collection[str]],
    stores: StoreSpecs | None,
) -> Iterable[tuple[str, str]]:
    """Yield each difference from a stream, with the choice that allows it."""
    writers = _writers(topics)
    for subtopology in topics.topology.subtopologies():
        internal = {topics.topic(topic) for topic in subtopology.repartition_topics}
        for topic in sources.get(subtopology.id, ()):
            if topic in writers and topic not in internal:
                yield "topics_read_back", _READ_BACK.format(topic)
        # The records of one writing task keep their order; those of several tasks interleave.
        mixed = sorted(
            topic
            for topic in internal
            if sum(tasks.get(writer, 0) for writer in writers.get(topic, ())) > 1
        )
        # If the task reads another topic, too, even the records of one writer mix with others.
        if internal and len(sources.get(subtopology.id, ())) > 1:
            mixed = sorted(internal)
        for node in _dependent(topics, subtopology) if mixed else ():
            yield "order_after_rekey", _ORDER.format(node, ", ".join(mixed))
        for spec in stores.by_subtopology[subtopology.id] if stores is not None else ():
            if not has_rows(spec):
                kind = f"is of kind {spec.kind.value}, which snapshots do not support"
                why = kind if spec.logging else "has no changelog"
                yield "incomplete_snapshot", _INCOMPLETE.format(spec.name, why)


def _dependent(topics: AppTopics, subtopology: Subtopology) -> list[str]:
    """Return the nodes with stores, whose results may depend on record order; counts do not."""
    nodes = (topics.topology.nodes[name] for name in subtopology.nodes)
    return [
        node.name
        for node in nodes
        if isinstance(node, ProcessorNode)
        and node.stores
        and not isinstance(node.operator, StreamCount)
    ]
