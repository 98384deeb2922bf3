"""The number of tasks of each subtopology, which is that of its changelogs' partitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.task import AppTopics
    from ks_actors.topology import Subtopology

_RESPONSES: Final = re.compile(r".+-subscription-response-(.+-)?topic", re.IGNORECASE)


def matched_sources(topics: AppTopics, subtopology: Subtopology, names: Iterable[str]) -> list[str]:
    """Return the topics among `names` that a subtopology's patterns match."""
    return [
        topic for topic, node in topics.matching(names).items() if node.name in subtopology.nodes
    ]


def sources_of(topics: AppTopics, subtopology: Subtopology, counts: Iterable[str]) -> list[str]:
    """Return the topics that a subtopology reads, by their names in the log."""
    return [
        *map(topics.topic, subtopology.source_topics),
        *matched_sources(topics, subtopology, counts),
    ]


def task_counts(
    topics: AppTopics, subtopologies: Sequence[Subtopology], counts: Mapping[str, int]
) -> dict[int, int]:
    """Return one more than the largest number of a task, by subtopology; 0 without tasks.

    Raises GrouperFailed if a user's grouper fails, or regroups partitions that must not be.
    """
    read = {
        each.id: [topic for topic in sources_of(topics, each, counts) if topic in counts]
        for each in subtopologies
    }
    tasks = topics.grouping.tasks(read, counts, topics.copartition_groups())
    found = dict.fromkeys(read, 0)
    for task in tasks:
        found[task.subtopology] = max(found[task.subtopology], task.partition + 1)
    if not topics.grouping.custom:
        return found
    reasons = {each.id: why for each in subtopologies if (why := _needs_own_number(each))}
    wrong = [
        f"{partition} in task {task}, as subtopology {task.subtopology} {reasons[task.subtopology]}"
        for task, partitions in tasks.items()
        if task.subtopology in reasons
        for partition in partitions
        if partition.partition != task.partition
    ]
    if wrong:
        raise topics.grouping.failed(
            "must leave each partition of some subtopologies in the task of its own number: it "
            f"puts {wrong[0]}. Take the groups of group_partitions for this subtopology"
        )
    return found


def _needs_own_number(subtopology: Subtopology) -> str:
    """Return why a subtopology's partitions must be in tasks of their own number; empty if not."""
    if any(spec.source_topic is not None for spec in subtopology.stores.values()):
        return "restores a table from its source topic"
    if any(_RESPONSES.fullmatch(topic) for topic in subtopology.source_topics):
        return "joins by a foreign key"
    return "joins topics that a pattern matches" if subtopology.pattern_groups else ""
