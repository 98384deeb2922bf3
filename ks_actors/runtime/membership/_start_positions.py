"""Start positions of new tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ks_actors._errors import StreamsError, TopologyError, UnknownTopicOrPartition
from ks_actors.records import TaskId
from ks_actors.runtime.fetching import gone_topics
from ks_actors.task import OWN_NUMBER, Position, decode_position

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ks_actors.log import Log, Membership
    from ks_actors.records import TopicPartition
    from ks_actors.runtime.fetching import StartPolicy
    from ks_actors.runtime.membership._group_view import GroupView

# Brokers learn of a deleted topic at different times: seconds to keep checking, and between checks.
_LOOK_S = 5.0
_LOOK_AGAIN_S = 0.1


async def begin_positions(
    tasks: Mapping[TaskId, Sequence[TopicPartition]],
    standbys: Collection[TaskId],
    group: GroupView,
    membership: Membership,
    log: Log,
    start: StartPolicy,
) -> dict[TopicPartition, Position]:
    """Return the start offsets and partition times of tasks.

    A start offset is the committed offset, or else follows the topic's policy. A partition added
    while the app runs begins at its first record, as no member could have read it. Looks up the
    sizes of topics of `standbys` as well. Deleted topics that matched a pattern are left out: the
    group will assign without them. Raises TopologyError for a partition that another task with
    state has read before.
    """
    await group.refresh_sizes(standbys, log)
    stateful = group.stateful
    owners = {
        partition: task
        for task, partitions in tasks.items()
        if task.subtopology in stateful
        for partition in partitions
    }
    wanted = [partition for partitions in tasks.values() for partition in partitions]
    loop = asyncio.get_running_loop()
    until = loop.time() + _LOOK_S
    while True:
        try:
            found = await _positions(wanted, group, membership, log, start)
            _check_grouping(owners, found)
            return found
        except UnknownTopicOrPartition as error:
            gone = await gone_topics(error, log, wanted, group.matched)
            if not gone and loop.time() >= until:
                raise
            wanted = [partition for partition in wanted if partition.topic not in gone]
            await asyncio.sleep(0 if gone else _LOOK_AGAIN_S)


def _check_grouping(
    owners: Mapping[TopicPartition, TaskId], found: Mapping[TopicPartition, Position]
) -> None:
    """Raise TopologyError for a partition whose records went to the state of another task."""
    for partition in sorted(found):
        task, at = owners.get(partition), found[partition]
        if task is None or at.task is None:
            continue
        before = partition.partition if at.task == OWN_NUMBER else at.task
        if before != task.partition:
            raise TopologyError(
                f"{partition} is grouped into task {task}, and its records up to offset "
                f"{at.offset} went to the state of task {TaskId(task.subtopology, before)}, where "
                "its later records belong, too. Use the partition grouper of before; or reset the "
                "application (ks-actors reset) to group its partitions anew"
            )


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
