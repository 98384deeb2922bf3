"""Whether records are there that their leader does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.log.kafka.wire import HEADER, MAGIC, error_of, fetch_once, whole_batches

if TYPE_CHECKING:
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.producer._partition_queue import Identity
    from ks_actors.records import TopicPartition

_MOST_BYTES: Final = 8 << 20
# Somebody who leads since a moment ago may not have told the end of what is there yet.
_WAIT_MS: Final = 500


async def find_written(client: KafkaClient, partition: TopicPartition, start: int, writer: Identity, sequence: int, count: int) -> int | None:
    """Return the offset behind a record batch that is to be found at `start` or later; None: it is not there.

    A leader that has been restarted knows of each producer the last batch alone. One from before that, which is repeated as its answer got lost, is
    refused then as if something before it were missing, though it is there. Raises LogError when that cannot be looked at.
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
                raise error_of(code, f"it cannot be seen whether records for {partition} are there")
            for at, position in whole_batches(partition, raw):
                if _is(raw, at, writer, sequence, count):
                    return position
            if end >= 0 and (position >= end or position == before):
                return None
            end = max(end, high)
    finally:
        client.disconnect(channel)


def _codes(answer: Any) -> list[int]:
    return [code for _, partitions in answer.topics for _, code, *_ in partitions]


def _is(raw: bytes, at: int, writer: Identity, sequence: int, count: int) -> bool:
    if at + HEADER.size > len(raw):
        return False
    _, _, _, magic, _, _, delta, _, _, producer_id, epoch, first, _ = HEADER.unpack_from(raw, at)
    found: bool = magic == MAGIC and (producer_id, epoch, first, delta + 1) == (*writer, sequence, count)
    return found
