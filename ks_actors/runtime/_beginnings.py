"""Where new tasks begin to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._errors import StreamsError
from ks_actors.log._types import IsolationLevel
from ks_actors.runtime._offsets import Position, decode_position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.log import Log, Membership
    from ks_actors.log._types import TopicPartition


async def begin_positions(
    partitions: Sequence[TopicPartition], membership: Membership, log: Log, reset: Callable[[str], str]
) -> dict[TopicPartition, Position]:
    """Return offset and partition time of where to begin: what is committed, else what the topic's `reset` policy says."""
    committed = await membership.committed(partitions)
    fresh = [partition for partition in partitions if partition not in committed]
    begins = await log.begin_offsets(fresh)
    late = [partition for partition in fresh if reset(partition.topic) == "latest"]
    ends = await log.end_offsets(late, IsolationLevel.READ_COMMITTED)
    for partition in fresh:
        if reset(partition.topic) == "none":
            raise StreamsError(
                "the group has no committed offset and auto_offset_reset is none: set it to earliest or latest, or commit an offset",
                topic=partition.topic,
                partition=partition.partition,
            )
    found = {partition: decode_position(one) for partition, one in committed.items()}
    return found | {partition: Position(ends.get(partition, begins[partition])) for partition in fresh}
