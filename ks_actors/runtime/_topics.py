"""The topics that an app needs: those it reads have to be there, those it makes for itself are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._errors import MissingSourceTopics, TopicExists, TopologyError
from ks_actors.log._types import NewTopic
from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log import Log, TopicDescription
    from ks_actors.runtime._setup import Setup
    from ks_actors.topology import StoreSpec, Subtopology

_REPARTITION = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800", "message.timestamp.type": "CreateTime"}
_DAY_MS = 86_400_000  # as in Kafka Streams, whatever windowstore_changelog_additional_retention_ms says
LONGEST_MS = (1 << 63) - 1
_WINDOWED = {StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION}


async def prepare_topics(log: Log, setup: Setup) -> dict[str, int]:
    """Check the topics that are read, make repartition and changelog topics, and return how many partitions every topic has.

    Raises MissingSourceTopics, which names all that are missing, NotAuthorized, and TopologyError for internal topics that are there but not as they
    have to be.
    """
    counts, wanted, existing = await plan_topics(log, setup)
    await _create(log, [topic for topic in wanted if topic.name not in existing])
    return counts


async def plan_topics(log: Log, setup: Setup) -> tuple[dict[str, int], list[NewTopic], Mapping[str, TopicDescription]]:
    """Return how many partitions every topic has or is to have, the internal topics that there have to be, and all that exist. Changes nothing.

    Raises what `prepare_topics` raises.
    """
    existing = await log.describe_topics()
    subtopologies = setup.topology.subtopologies()
    await _check_sources(log, setup, subtopologies, existing)
    counts = {name: topic.partitions for name, topic in existing.items()}
    repartitions = _repartition_counts(setup, subtopologies, counts)
    wanted = [
        NewTopic(setup.topic(name), count, {**_REPARTITION, **setup.topology.internal_topics[name].configs}) for name, count in repartitions.items()
    ]
    counts.update({topic.name: topic.partitions for topic in wanted})
    wanted += _changelogs(setup, subtopologies, counts)
    counts.update({topic.name: topic.partitions for topic in wanted})
    _check_internal(wanted, existing)
    return counts, wanted, existing


async def _create(log: Log, topics: Sequence[NewTopic]) -> None:
    """Create topics; another instance that starts at the same time may be faster with some of them, which then have to be as wanted."""
    try:
        await log.create_topics(topics)
    except TopicExists:
        _check_internal(topics, await log.describe_topics([topic.name for topic in topics]))


async def _check_sources(log: Log, setup: Setup, subtopologies: Iterable[Subtopology], existing: Mapping[str, TopicDescription]) -> None:
    internal = setup.topology.internal_topics
    needed = {topic for subtopology in subtopologies for topic in subtopology.source_topics if topic not in internal}
    missing = sorted((needed | set(setup.topology.global_topics)) - existing.keys())
    if missing:
        # Those that may not even be looked at are not told of unless they are asked for: then the log says that it is forbidden.
        await log.describe_topics(missing)
        raise MissingSourceTopics(
            f"the topology reads topics that do not exist: {', '.join(missing)}; create them, with as many partitions as are wanted"
        )


def _repartition_counts(setup: Setup, subtopologies: Iterable[Subtopology], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of repartition topics: given, or that of the largest topic they are copartitioned with, or of those upstream."""
    internal = setup.topology.internal_topics
    found = {name: topic.partitions for name, topic in internal.items() if topic.partitions is not None}
    remaining = set(internal) - set(found)
    while remaining:
        progress = False
        for name in sorted(remaining):
            count = _repartition_count(name, subtopologies, found, counts, internal)
            if count is not None:
                found[name] = count
                progress = True
        remaining -= set(found)
        if not progress:
            raise TopologyError(
                f"the sizes of repartition topics {', '.join(sorted(remaining))} depend on each other: give one of them its partitions"
            )
    _align_copartitioned(subtopologies, found, counts, internal)
    return found


def _repartition_count(
    name: str, subtopologies: Iterable[Subtopology], found: Mapping[str, int], counts: Mapping[str, int], internal: Iterable[str]
) -> int | None:
    upstream = [subtopology for subtopology in subtopologies if name in subtopology.sink_topics]
    sizes: list[int] = []
    for subtopology in upstream:
        for topic in subtopology.source_topics:
            size = found.get(topic) if topic in internal else counts.get(topic)
            if size is None:
                return None
            sizes.append(size)
    return max(sizes, default=1)


def _align_copartitioned(
    subtopologies: Iterable[Subtopology], found: dict[str, int], counts: Mapping[str, int], internal: Mapping[str, object]
) -> None:
    """Give internal topics the size of the topics that they are copartitioned with; users' topics have to agree by themselves."""
    for subtopology in subtopologies:
        for group in subtopology.copartition_groups:
            own = {topic: counts[topic] for topic in group if topic not in internal and topic in counts}
            if len(set(own.values())) > 1:
                told = ", ".join(f"{topic} has {count}" for topic, count in sorted(own.items()))
                raise TopologyError(
                    f"topics that are joined must have equally many partitions, but {told}: repartition one of them, or join with a global table"
                )
            fixed = max([*own.values()] or [found[topic] for topic in group if topic in found], default=1)
            for topic in group:
                if topic in found:
                    found[topic] = fixed


def _changelogs(setup: Setup, subtopologies: Iterable[Subtopology], counts: Mapping[str, int]) -> list[NewTopic]:
    topics = []
    for subtopology in subtopologies:
        sources = [setup.topic(topic) for topic in subtopology.source_topics]
        sources += [topic for topic in counts for pattern in subtopology.source_patterns if pattern.fullmatch(topic)]
        tasks = max((counts[topic] for topic in sources if topic in counts), default=1)
        topics += [
            NewTopic(setup.changelog(spec.name), tasks, _changelog_configs(setup, spec))
            for spec in subtopology.stores.values()
            if spec.logging and spec.source_topic is None
        ]
    return topics


def _changelog_configs(setup: Setup, spec: StoreSpec) -> dict[str, str]:
    configs = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    if spec.kind in _WINDOWED:
        configs["cleanup.policy"] = "delete" if spec.retain_duplicates else "compact,delete"
        # Unlimited windows are kept for ever: more than a log can be told is that.
        configs["retention.ms"] = str(min(spec.retention_ms + setup.config.windowstore_changelog_additional_retention_ms, LONGEST_MS))
    if spec.kind is StoreKind.VERSIONED:
        # The older versions of a key are wanted: they are not compacted away as long as they can be asked for.
        configs["min.compaction.lag.ms"] = str(min(spec.history_retention_ms + _DAY_MS, LONGEST_MS))
    return {**configs, **spec.changelog_configs}


def _check_internal(wanted: Iterable[NewTopic], existing: Mapping[str, TopicDescription]) -> None:
    wrong = [
        f"{topic.name} has {existing[topic.name].partitions} partitions and needs {topic.partitions}"
        for topic in wanted
        if topic.name in existing and existing[topic.name].partitions != topic.partitions
    ]
    if wrong:
        raise TopologyError(
            f"internal topics do not fit the topology: {'; '.join(wrong)}. Either the input topics were resized, or another topology used the same "
            "application_id: reset the application (delete its internal topics and state), or choose another application_id"
        )
