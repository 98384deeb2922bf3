"""Check whether a rejected batch was in fact written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import LogTimeout
from ks_actors.log.kafka.producer._partition_queue import SEQUENCES
from ks_actors.log.kafka.wire import (
    HEADER,
    MAGIC,
    OFFSET_OUT_OF_RANGE,
    OffsetRequest,
    error_of,
    fetch_once,
    whole_batches,
)

if TYPE_CHECKING:
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.producer._partition_queue import Identity
    from ks_actors.records import TopicPartition

_MOST_BYTES: Final = 8 << 20
# The time that a fetch may wait for records that a new leader does not return yet.
_WAIT_MS: Final = 500
_EARLIEST: Final = -2
_LATEST: Final = -1
# With this replica id the answer has the end of the log. Consumers get the high watermark: all
# batches below that offset are on all in-sync replicas.
_DEBUGGER: Final = -2
_FAILED: Final = "could not find out whether records for {} were written"


async def find_written(
    client: KafkaClient,
    partition: TopicPartition,
    start: int,
    writer: Identity,
    sequence: int,
    count: int,
) -> int | None:
    """Find a batch's records at `start` or later; return the offset after them, None if missing.

    A restarted leader only knows the last batch of each producer. If an earlier batch is repeated
    because its response was lost, the leader rejects it as out of order although it was written,
    maybe as a part of a larger batch that has been split since. Raises LogError when the log cannot
    be read.
    """
    channel = f"look at {partition}"
    position, end = start, await _offset(client, partition, _LATEST)
    try:
        # If the leader has lost records, its log may end before `start`: then read nothing.
        while position < end:
            before = position
            request = fetch_once(partition, position, _WAIT_MS, _MOST_BYTES)
            answer = await client.send_to_leader(partition, request, _codes, channel=channel)
            ((_, ((_, code, *_, raw),)),) = answer.topics
            if code == OFFSET_OUT_OF_RANGE:
                # Retention has deleted the records, or the leader has lost them meanwhile.
                position = await _offset(client, partition, _EARLIEST)
            elif code:
                raise error_of(code, _FAILED.format(partition))
            for at, position in whole_batches(partition, raw):
                behind = _records_behind(raw, at, writer, sequence, count)
                if behind is not None:
                    return position - behind
            if position <= before:
                # Followers lag behind: records that a follower still lacks cannot be read.
                raise LogTimeout(
                    f"the leader does not return the last {end - position} records of {partition}"
                )
        return None
    finally:
        # The fetch waits, so it had its own connection, which is not required again soon.
        client.disconnect(channel)


async def _offset(client: KafkaClient, partition: TopicPartition, which: int) -> int:
    """Return the first or the last offset of the leader's log; unreplicated records count."""
    request = OffsetRequest(_DEBUGGER, 0, [(partition.topic, [(partition.partition, which)])])
    answer = await client.send_to_leader(partition, request, _codes)
    ((_, ((_, code, _, offset, *_),)),) = answer.topics
    if code:
        raise error_of(code, _FAILED.format(partition))
    return int(offset)


def _codes(answer: Any) -> list[int]:
    return [code for _, partitions in answer.topics for _, code, *_ in partitions]


def _records_behind(raw: bytes, at: int, writer: Identity, sequence: int, count: int) -> int | None:
    """Return the number of records after the wanted records in a batch; None if it lacks them."""
    if at + HEADER.size > len(raw):
        return None
    _, _, _, magic, _, _, delta, _, _, producer_id, epoch, first, _ = HEADER.unpack_from(raw, at)
    behind: int = delta + 1 - (sequence - first) % SEQUENCES - count
    return behind if magic == MAGIC and (producer_id, epoch) == writer and behind >= 0 else None
