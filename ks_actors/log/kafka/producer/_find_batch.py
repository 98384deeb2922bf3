"""Check whether a rejected batch was in fact written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.log.kafka.wire import HEADER, MAGIC, error_of, fetch_once, whole_batches

if TYPE_CHECKING:
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.producer._partition_queue import Identity
    from ks_actors.records import TopicPartition

_MOST_BYTES: Final = 8 << 20
# A new leader may not report its full end offset yet, so the fetch waits this long for more.
_WAIT_MS: Final = 500


async def find_written(
    client: KafkaClient,
    partition: TopicPartition,
    start: int,
    writer: Identity,
    sequence: int,
    count: int,
) -> int | None:
    """Return the offset after a written record batch at `start` or later; None if it is missing.

    A restarted leader only knows the last batch of each producer. An earlier batch, repeated
    because its response was lost, is then rejected as out of order although it was written. Raises
    LogError when the log cannot be read.
    """
    channel = f"look at {partition}"
    position, end = start, -1
    try:
        while True:
            before = position
            request = fetch_once(partition, position, _WAIT_MS, _MOST_BYTES)
            answer = await client.send_to_leader(partition, request, _codes, channel=channel)
            ((_, ((_, code, high, *_, raw),)),) = answer.topics
            if code:
                raise error_of(
                    code, f"could not find out whether records for {partition} were written"
                )
            for at, position in whole_batches(partition, raw):
                if _is(raw, at, writer, sequence, count):
                    return position
            # Only from the second answer on: the first end offset of a new leader may be too low.
            if end >= 0 and (position >= end or position == before):
                return None
            end = max(end, high)
    finally:
        # A connection of its own, because the fetch waits; it is not needed again soon.
        client.disconnect(channel)


def _codes(answer: Any) -> list[int]:
    return [code for _, partitions in answer.topics for _, code, *_ in partitions]


def _is(raw: bytes, at: int, writer: Identity, sequence: int, count: int) -> bool:
    if at + HEADER.size > len(raw):
        return False
    _, _, _, magic, _, _, delta, _, _, producer_id, epoch, first, _ = HEADER.unpack_from(raw, at)
    found: bool = magic == MAGIC and (producer_id, epoch, first, delta + 1) == (
        *writer,
        sequence,
        count,
    )
    return found
