"""Start positions of new tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ks_actors._errors import (
    LogTruncated,
    MissingSourceTopics,
    StreamsError,
    TaskMigrated,
    UnknownTopicOrPartition,
)
from ks_actors.lifecycle import component_log
from ks_actors.runtime.input._start_policy import words
from ks_actors.task import Position, decode_position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors._errors import OffsetOutOfRange
    from ks_actors.log import Log, Membership
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.input._membership import GroupView
    from ks_actors.runtime.input._start_policy import StartPolicy

# Brokers learn of a deleted topic at different times: seconds to look for, and between two looks.
_LOOK_S = 5.0
_LOOK_AGAIN_S = 0.1
_log = component_log(__name__)


async def reset_position(error: OffsetOutOfRange, start: StartPolicy) -> int:
    """Return the position for a partition when the current one is not in the log.

    After a truncation it is the first one whose record was not read. Otherwise it follows the
    topic's policy. Raises StreamsError when the topic's policy is none.
    """
    partition, policy = error.partition, start.of(error.partition.topic)
    if policy == "none":
        raise StreamsError(
            f"{error}; auto_offset_reset is none, so the app does not choose a position: commit an "
            "offset, or set auto_offset_reset to earliest, latest or a duration",
            topic=partition.topic,
            partition=partition.partition,
        )
    if isinstance(error, LogTruncated) and error.diverges_at is not None:
        offset = max(error.diverges_at, error.begin)
        _log.warning(
            "%s; continuing at offset %d. Results of lost records stay; the log of the brokers "
            "tells why records were lost",
            error,
            offset,
        )
        return offset
    _log.warning("%s; continuing from the %s", error, words(policy))
    return (await start.offsets((partition,)))[partition]


async def begin_positions(
    tasks: Mapping[TaskId, Sequence[TopicPartition]],
    standbys: Collection[TaskId],
    group: GroupView,
    membership: Membership,
    log: Log,
    start: StartPolicy,
) -> dict[TopicPartition, Position]:
    """Return the start offsets and partition times of tasks.

    A start offset is the committed one, or else follows the topic's policy. A partition
    added while the app runs begins at its first record, as no member could have read it. Looks up
    the sizes of topics of `standbys` as well. Deleted topics that matched a pattern are left out:
    the group will assign without them.
    """
    await group.refresh_sizes(standbys, log)
    wanted = [partition for partitions in tasks.values() for partition in partitions]
    loop = asyncio.get_running_loop()
    until = loop.time() + _LOOK_S
    while True:
        try:
            return await _positions(wanted, group, membership, log, start)
        except UnknownTopicOrPartition as error:
            gone = await gone_topics(error, log, wanted, group.matched)
            if not gone and loop.time() >= until:
                raise
            wanted = [partition for partition in wanted if partition.topic not in gone]
            await asyncio.sleep(0 if gone else _LOOK_AGAIN_S)


async def _positions(
    partitions: Sequence[TopicPartition],
    group: GroupView,
    membership: Membership,
    log: Log,
    start: StartPolicy,
) -> dict[TopicPartition, Position]:
    if not partitions:
        return {}
    committed = await membership.committed(partitions)
    fresh = [partition for partition in partitions if partition not in committed]
    added = [partition for partition in fresh if group.was_added(partition)]
    begins = {
        **await log.begin_offsets(added),
        **await start.offsets([partition for partition in fresh if partition not in added]),
    }
    for partition in fresh:
        if start.of(partition.topic) == "none":
            raise StreamsError(
                "the group has no committed offset and auto_offset_reset is none: set it to "
                "earliest, latest or a duration, or commit an offset",
                topic=partition.topic,
                partition=partition.partition,
            )
    found = {partition: decode_position(one) for partition, one in committed.items()}
    return found | {partition: Position(begins[partition], fresh=True) for partition in fresh}


async def gone_topics(
    error: UnknownTopicOrPartition,
    log: Log,
    partitions: Collection[TopicPartition],
    may_go: Callable[[Iterable[TopicPartition]], frozenset[str]],
) -> frozenset[str]:
    """Return the deleted topics after a fetch of these partitions has failed for that reason.

    Return none when they exist again or were given up. Raises MissingSourceTopics when a topic
    outside of `may_go` is gone, which is read by its name.
    """
    topics = {partition.topic for partition in partitions}
    gone = topics - (await log.describe_topics(topics, configs=False)).keys()
    if not gone <= may_go(partitions):
        raise missing_sources(error)
    return frozenset(gone)


def missing_sources(error: Exception, matched: frozenset[str] = frozenset()) -> Exception:
    """Translate a missing topic into MissingSourceTopics or TaskMigrated.

    Return other errors unchanged. Topics that only `matched` a pattern may be deleted: the group
    then assigns without them. It finds out if another topic is missing.
    """
    if not isinstance(error, UnknownTopicOrPartition):
        return error
    if matched:
        gone = TaskMigrated(
            f"a topic that matched a pattern no longer exists, so tasks are assigned anew: {error}"
        )
        gone.__cause__ = error
        return gone
    missing = MissingSourceTopics(f"a source topic no longer exists: {error}")
    missing.__cause__ = error
    return missing
