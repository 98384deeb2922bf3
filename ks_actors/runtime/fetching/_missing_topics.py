"""Source topics that no longer exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._errors import MissingSourceTopics, TaskMigrated, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ks_actors.log import Log
    from ks_actors.records import TopicPartition


async def gone_topics(
    error: UnknownTopicOrPartition,
    log: Log,
    partitions: Collection[TopicPartition],
    may_go: Callable[[Iterable[TopicPartition]], frozenset[str]],
) -> frozenset[str]:
    """Return the deleted topics after a fetch of these partitions has failed for that reason.

    Return no topics when they exist again or are not read any more. Raises MissingSourceTopics when
    a deleted topic is not in `may_go`: such a topic is read by its name.
    """
    topics = {partition.topic for partition in partitions}
    gone = topics - (await log.describe_topics(topics, configs=False)).keys()
    if not gone <= may_go(partitions):
        raise missing_sources(error)
    return frozenset(gone)


def missing_sources(error: Exception, matched: frozenset[str] = frozenset()) -> Exception:
    """Translate a missing topic into MissingSourceTopics or TaskMigrated.

    Return other errors unchanged. Topics that only `matched` a pattern may be deleted: the group
    then assigns without them. The group also finds out whether another topic is missing.
    """
    if not isinstance(error, UnknownTopicOrPartition):
        return error
    if matched:
        gone = TaskMigrated(
            f"a topic that matched a pattern no longer exists, so tasks are reassigned: {error}"
        )
        gone.__cause__ = error
        return gone
    missing = MissingSourceTopics(f"a source topic no longer exists: {error}")
    missing.__cause__ = error
    return missing
