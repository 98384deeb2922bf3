"""Checks of the topics that an app reads and writes, and its internal topics."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from ks_actors._counted import counted
from ks_actors._errors import (
    ConfigError,
    MissingSinkTopics,
    MissingSourceTopics,
    NotAuthorized,
    TopicExists,
    TopologyError,
)
from ks_actors.lifecycle import component_log, in_background
from ks_actors.log import BaseLog, NewTopic, TopicDescription
from ks_actors.runtime.shared._task_counts import matched_sources, sources_of, task_counts
from ks_actors.runtime.shared._topic_configs import (
    AFTER_MAX,
    changelog_configs,
    misfits,
    repartition_configs,
)
from ks_actors.topology import GROWN, SinkNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors.log import Log
    from ks_actors.task import AppTopics
    from ks_actors.topology import InternalTopic, Subtopology

_log = component_log(__name__)


async def prepare_topics(log: Log, topics: AppTopics) -> dict[str, int]:
    """Check source and sink topics, create internal topics, and return all partition counts.

    Raises MissingSourceTopics or MissingSinkTopics, which name all missing topics, NotAuthorized,
    and TopologyError for existing internal topics that do not fit.
    """
    async with topics_prepared(log, topics) as counts:
        return counts


@asynccontextmanager
async def topics_prepared(log: Log, topics: AppTopics) -> AsyncIterator[dict[str, int]]:
    """Do the work of `prepare_topics`, but check existing topics' configs in the background.

    A misfit raises TopologyError at the end of the context.
    """
    counts, wanted, existing = await plan_topics(log, topics)
    await _check_sinks(log, topics, existing)
    new = [topic for topic in wanted if topic.name not in existing]
    await _create(log, topics, new, counts)
    created = await log.describe_topics([one.name for one in new], configs=False) if new else {}
    ids = {name: topic.id for name, topic in {**existing, **created}.items() if topic.id}
    # The ids at the start count: state made from a topic does not belong to a later topic of that
    # name.
    topics.topic_ids = {**ids, **topics.topic_ids}
    async with in_background(
        _check_configs(log, [topic for topic in wanted if topic.name in existing]),
        "check internal topics",
    ):
        yield counts


async def plan_topics(
    log: Log, topics: AppTopics, *, also: Mapping[str, int] = MappingProxyType({})
) -> tuple[dict[str, int], list[NewTopic], Mapping[str, TopicDescription]]:
    """Return partition counts, the required internal topics and all existing topics.

    The counts include the topics to create. The topics of `also` count as existing, with the
    numbers of partitions given there. Changes nothing. Raises MissingSourceTopics, NotAuthorized,
    and TopologyError for wrong sizes.
    """
    planned = {name: TopicDescription(name, count, {}) for name, count in also.items()}
    subtopologies = topics.topology.subtopologies()
    existing = {**planned, **await log.describe_topics(configs=False)}
    if any(subtopology.source_patterns for subtopology in subtopologies):
        # A broker may not know the newest topics. Without the largest topic that a pattern matches,
        # a changelog would always stay too small, so a second broker lists the topics, too.
        existing = {**await log.describe_topics(configs=False), **existing}
        existing |= await unlisted_topics(log, topics.matched, existing)
    existing |= await _check_sources(log, topics, subtopologies, existing)
    counts = {name: topic.partitions for name, topic in existing.items()}
    found = counts.copy()
    wanted = _wanted(topics, subtopologies, counts)
    _check_internal(topics, wanted, counts, found.get)
    return counts, wanted, existing


async def unlisted_topics(
    log: Log, topics: Iterable[str], listed: Collection[str]
) -> Mapping[str, TopicDescription]:
    """Return the existing topics among `topics` that a broker's listing lacks.

    The broker may not know them yet. Topics that the app may no longer describe are left out, as in
    a listing.
    """
    lacking = sorted(set(topics) - set(listed))
    if not lacking:
        return {}
    try:
        return await log.describe_topics(lacking, configs=False)
    except NotAuthorized:
        if len(lacking) == 1:
            return {}
    # The log may refuse one topic and not the others.
    found = [await unlisted_topics(log, [topic], ()) for topic in lacking]
    return {name: topic for each in found for name, topic in each.items()}


async def _create(
    log: Log, topics: AppTopics, new: Sequence[NewTopic], counts: Mapping[str, int]
) -> None:
    """Create topics. Another instance may create some first; raise if such topics do not fit."""
    try:
        await log.create_topics(new)
        for topic in new:
            _log.info(
                "created topic %s with %s",
                topic.name,
                counted(topic.partitions, "partition"),
                extra={"topic": topic.name},
            )
    except ConfigError as error:
        if AFTER_MAX not in str(error) or all(AFTER_MAX not in one.configs for one in new):
            raise
        await _create(log, topics, _without_bound(new), counts)
    except TopicExists:
        described = await log.describe_topics([topic.name for topic in new], configs=False)
        _check_internal(
            topics, new, counts, {name: topic.partitions for name, topic in described.items()}.get
        )


def _without_bound(topics: Iterable[NewTopic]) -> list[NewTopic]:
    """Return topics for brokers before Kafka 3.6, which have no bound on timestamps."""
    return [
        NewTopic(
            one.name,
            one.partitions,
            {name: value for name, value in one.configs.items() if name != AFTER_MAX},
        )
        for one in topics
    ]


async def check_new_topics(log: Log, topics: Sequence[NewTopic]) -> None:
    """Raise the error that creating internal topics would raise, if the log can tell in advance."""
    if not isinstance(log, BaseLog):
        return
    try:
        await log.check_new_topics(topics)
    except ConfigError as error:
        if AFTER_MAX not in str(error) or all(AFTER_MAX not in one.configs for one in topics):
            raise
        await log.check_new_topics(_without_bound(topics))


async def _check_sources(
    log: Log,
    topics: AppTopics,
    subtopologies: Iterable[Subtopology],
    existing: Mapping[str, TopicDescription],
) -> Mapping[str, TopicDescription]:
    """Return the source topics that exist though the listing lacks them.

    The broker that has listed the others may not know a new topic yet. It also omits topics that
    the app is not allowed to describe. Raises MissingSourceTopics, and NotAuthorized for such a
    topic.
    """
    internal = topics.topology.internal_topics
    needed = {
        topic
        for subtopology in subtopologies
        for topic in subtopology.source_topics
        if topic not in internal
    }
    unlisted = (needed | set(topics.topology.global_topics)) - existing.keys()
    if not unlisted:
        return {}
    found = await log.describe_topics(sorted(unlisted), configs=False)
    missing = sorted(unlisted - found.keys())
    if missing:
        raise MissingSourceTopics(
            f"the topology reads topics that do not exist: {', '.join(missing)}; "
            f"{_ways_to_create(missing)}"
        )
    return found


def fixed_sinks(topics: AppTopics) -> dict[str, list[str]]:
    """Return the topics that the app writes to, with their writers: sinks and dead letters.

    Internal topics, and topics chosen by a function, are left out.
    """
    writers: dict[str, list[str]] = {}
    for node in topics.topology.nodes.values():
        if (
            isinstance(node, SinkNode)
            and isinstance(node.topic, str)
            and node.topic not in topics.topology.internal_topics
        ):
            writers.setdefault(node.topic, []).append(f"node {node.name}")
    letters = topics.config.errors_dead_letter_queue_topic_name
    if letters is not None:
        writers.setdefault(letters, []).append("errors_dead_letter_queue_topic_name")
    return writers


async def _check_sinks(
    log: Log, topics: AppTopics, existing: Mapping[str, TopicDescription]
) -> None:
    """Raise MissingSinkTopics for missing topics of sinks and dead letters.

    Topics chosen by a function are unknown here.
    """
    writers = fixed_sinks(topics)
    unlisted = sorted(writers.keys() - existing.keys())
    # As for source topics, ask for missing topics by name.
    found = await log.describe_topics(unlisted, configs=False) if unlisted else {}
    missing = [topic for topic in unlisted if topic not in found]
    if missing:
        text = ", ".join(f"{topic} ({', '.join(writers[topic])})" for topic in missing)
        raise MissingSinkTopics(
            f"the app writes to topics that do not exist: {text}; {_ways_to_create(missing)}: the "
            "app creates only its internal topics, and never lets brokers create others "
            "(auto.create.topics.enable)"
        )


def _ways_to_create(topics: Sequence[str]) -> str:
    """Return how to create topics, with 4 partitions as an example."""
    given = ", ".join(f'"{topic}": 4' for topic in topics)
    options = " ".join(f"--topic {topic}=4" for topic in topics)
    return (
        f"create them with the number of partitions that you want, such as 4: App(…, topics="
        f"{{{given}}}) does, and so does ks-actors topics create MODULE:NAME {options}"
    )


def _repartition_counts(
    topics: AppTopics, subtopologies: Iterable[Subtopology], counts: Mapping[str, int]
) -> dict[str, int]:
    """Return the sizes of repartition topics.

    A size is explicit, or follows the largest copartitioned or upstream topic.
    """
    internal = topics.topology.internal_topics
    found = {
        name: topic.partitions for name, topic in internal.items() if topic.partitions is not None
    }
    remaining = set(internal) - set(found)
    # A size may depend on other repartition topics upstream: repeat until all are known.
    while remaining:
        progress = False
        for name in sorted(remaining):
            count = _repartition_count(name, topics, subtopologies, found, counts)
            if count is not None:
                found[name] = count
                progress = True
        remaining -= set(found)
        if not progress and _waiting_for_topics(topics, subtopologies, counts):
            break
        if not progress and not _size_around(subtopologies, remaining, found, counts):
            raise TopologyError(
                f"the partition counts of repartition topics {', '.join(sorted(remaining))} depend "
                "on each other: give one of them a number of partitions"
            )
        remaining -= set(found)
    _align_copartitioned(subtopologies, found, counts, internal)
    _align_with_patterns(topics, subtopologies, found, counts)
    return found


def _size_around(
    subtopologies: Iterable[Subtopology],
    remaining: Iterable[str],
    found: dict[str, int],
    counts: Mapping[str, int],
) -> bool:
    """Find sizes of topics that are upstream of each other, as in a foreign-key join.

    The sizes follow the users' topics that these topics are copartitioned with, or else the known
    topics upstream. Returns whether a size was found.
    """
    groups = [group for each in subtopologies for group in each.copartition_groups]
    sizes = {
        name: [counts[topic] for group in groups if name in group for topic in group & set(counts)]
        for name in remaining
    }
    if not any(sizes.values()):
        sizes = {
            name: [
                size
                for each in subtopologies
                if name in each.sink_topics
                for topic in each.source_topics
                if (size := found.get(topic, counts.get(topic))) is not None
            ]
            for name in remaining
        }
    known = {name: max(each) for name, each in sizes.items() if each}
    found.update(known)
    return bool(known)


def _repartition_count(
    name: str,
    topics: AppTopics,
    subtopologies: Iterable[Subtopology],
    found: Mapping[str, int],
    counts: Mapping[str, int],
) -> int | None:
    internal = topics.topology.internal_topics
    upstream = [subtopology for subtopology in subtopologies if name in subtopology.sink_topics]
    sizes: list[int] = []
    for subtopology in upstream:
        for topic in subtopology.source_topics:
            size = found.get(topic) if topic in internal else counts.get(topic)
            if size is None:
                return None
            sizes.append(size)
        found_by_patterns = matched_sources(topics, subtopology, counts)
        if subtopology.source_patterns and not subtopology.source_topics and not found_by_patterns:
            return None
        sizes += [counts[topic] for topic in found_by_patterns]
    return max(sizes, default=1)


def _waiting_for_topics(
    topics: AppTopics, subtopologies: Iterable[Subtopology], counts: Mapping[str, int]
) -> bool:
    """Return whether sizes may depend on a pattern that has matched no topic yet."""
    return any(
        each.source_patterns
        and not each.source_topics
        and not matched_sources(topics, each, counts)
        for each in subtopologies
    )


def _align_copartitioned(
    subtopologies: Iterable[Subtopology],
    found: dict[str, int],
    counts: Mapping[str, int],
    internal: Mapping[str, InternalTopic],
) -> None:
    """Give internal topics the size of their copartitioned topics.

    Raises TopologyError if the users' own topics differ in size, or the sizes that users gave
    differ.
    """
    for subtopology in subtopologies:
        for group in subtopology.copartition_groups:
            fixed = {
                topic: count
                for topic in group
                if (count := internal[topic].partitions if topic in internal else counts.get(topic))
                is not None
            }
            _check_equal(fixed)
            size = max(
                fixed.values() or [found[topic] for topic in group if topic in found], default=1
            )
            for topic in group:
                if topic in found:
                    found[topic] = size


def _check_equal(sizes: Mapping[str, int]) -> None:
    if len(set(sizes.values())) > 1:
        text = ", ".join(f"{topic} has {count}" for topic, count in sorted(sizes.items()))
        raise TopologyError(
            f"topics that are joined must have the same number of partitions, but {text}: "
            "repartition one of them, or join with a global table"
        )


def _align_with_patterns(
    topics: AppTopics,
    subtopologies: Iterable[Subtopology],
    found: dict[str, int],
    counts: Mapping[str, int],
) -> None:
    """Give internal topics the size of the topics that a copartitioned pattern matches.

    Raises TopologyError if these topics differ in size from the topics that they are joined with.
    """
    internal = topics.topology.internal_topics
    matched = topics.matching(counts)
    for subtopology in subtopologies:
        for sources, joined in subtopology.pattern_groups:
            fixed = {
                topic: counts[topic] for topic, node in matched.items() if node.name in sources
            }
            size = max(fixed.values(), default=None)
            for topic in joined:
                count = internal[topic].partitions if topic in internal else counts.get(topic)
                if count is not None:
                    fixed[topic] = count
            _check_equal(fixed)
            if size is not None:
                found.update(
                    {
                        topic: size
                        for topic in joined
                        if topic in found and internal[topic].partitions is None
                    }
                )


def _changelogs(
    topics: AppTopics, subtopologies: Sequence[Subtopology], counts: Mapping[str, int]
) -> list[NewTopic]:
    found: list[NewTopic] = []
    sizes = task_counts(topics, subtopologies, counts)
    for subtopology in subtopologies:
        tasks = sizes[subtopology.id]
        if not tasks:
            continue  # a pattern that has matched no topic yet
        found += [
            NewTopic(topics.changelog(spec.name), tasks, changelog_configs(topics.config, spec))
            for spec in subtopology.stores.values()
            if spec.logging and spec.source_topic is None
        ]
    return found


def _check_internal(
    topics: AppTopics,
    wanted: Iterable[NewTopic],
    counts: Mapping[str, int],
    found: Callable[[str], int | None],
) -> None:
    """Raise TopologyError for internal topics with sizes that do not fit `counts`.

    `counts` has the sizes of all topics.
    """
    wrong = [
        f"{topic.name} has {counted(there, 'partition')} and needs "
        f"{topic.partitions}{_as_many_as(topics, topic, counts)}"
        for topic in wanted
        if (there := found(topic.name)) is not None and there != topic.partitions
    ]
    if wrong:
        raise TopologyError(
            f"internal topics do not match the topology: {'; '.join(wrong)}. {GROWN}. If another "
            "topology has used the same application_id, choose another one"
        )


def _as_many_as(topics: AppTopics, internal: NewTopic, counts: Mapping[str, int]) -> str:
    """Name the topics that determine an internal topic's size; empty for an explicit size."""
    own = {topics.topic(name): name for name in topics.topology.internal_topics}
    name = own.get(internal.name)
    subtopologies = topics.topology.subtopologies()
    if name is None:
        concerned = [
            each for each in subtopologies if internal.name in map(topics.changelog, each.stores)
        ]
        groups: list[frozenset[str]] = []
    else:
        concerned = [each for each in subtopologies if name in each.sink_topics]
        groups = [
            group for each in subtopologies for group in each.copartition_groups if name in group
        ]
    read = {topic for each in concerned for topic in sources_of(topics, each, counts)} | {
        topics.topic(topic) for group in groups for topic in group
    }
    causes = sorted(
        topic
        for topic in read
        if topic != internal.name and counts.get(topic) == internal.partitions
    )
    if name is None and topics.grouping.custom:
        return f", for the tasks of the partition grouper {topics.grouping.name!r}"
    return (
        f", as many as {', '.join(causes)} has"
        if len(causes) == 1
        else f", as many as {', '.join(causes)} have"
        if causes
        else ""
    )


def check_sizes(topics: AppTopics, counts: Mapping[str, int]) -> None:
    """Raise TopologyError when source topics of these sizes need other internal topics.

    Callable from any thread. Internal topics have their sizes from the start: only users resize
    them.
    """
    subtopologies = topics.topology.subtopologies()
    if any(
        topic not in counts
        for each in subtopologies
        for topic in map(topics.topic, each.source_topics)
    ):
        return  # a missing source topic has its own error
    all_counts = dict(counts)
    wanted = _wanted(topics, subtopologies, all_counts)
    _check_internal(
        topics, wanted, all_counts, lambda topic: counts.get(topic, topics.partitions(topic))
    )


def _wanted(
    topics: AppTopics, subtopologies: Sequence[Subtopology], counts: dict[str, int]
) -> list[NewTopic]:
    """Return the required internal topics, and add their sizes to `counts`.

    `counts` already has the sizes of all other topics.
    """
    repartitions = _repartition_counts(topics, subtopologies, counts)
    wanted = [
        NewTopic(
            topics.topic(name),
            count,
            repartition_configs(topics.config, topics.topology.internal_topics[name]),
        )
        for name, count in repartitions.items()
    ]
    counts.update({topic.name: topic.partitions for topic in wanted})
    changelogs = _changelogs(topics, subtopologies, counts)
    counts.update({topic.name: topic.partitions for topic in changelogs})
    return [*wanted, *changelogs]


async def _check_configs(log: Log, topics: Sequence[NewTopic]) -> None:
    """Raise TopologyError for existing topics that do not keep the required records."""
    described = await log.describe_topics([topic.name for topic in topics]) if topics else {}
    found = [
        misfit
        for topic in topics
        if topic.name in described
        for misfit in misfits(topic, described[topic.name].configs)
    ]
    if found:
        raise TopologyError(
            f"internal topics may delete records that the app needs: {'; '.join(found)}. Change "
            "the configs (`kafka-configs --alter --entity-type topics --entity-name <topic> "
            "--add-config <name>=<value>`), or give stores and repartitions the configs that you "
            "want; if another kind of store has had that name before, give this one another name"
        )
