"""Commit many offsets by several requests.

A coordinator writes the offsets of a request as one batch. The brokers' `message.max.bytes`, 1 MB
by default, limits this batch.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ks_actors.log.kafka.wire import (
    INVALID_COMMIT_OFFSET_SIZE,
    MESSAGE_TOO_LARGE,
    NONE,
    RECORD_LIST_TOO_LARGE,
    UNKNOWN_SERVER_ERROR,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.records import TopicPartition

_BYTES: Final = 500_000
# The most bytes of an offset's record in addition to its names and its metadata.
_RECORD: Final = 64
# From 4.0 on, brokers answer UNKNOWN_SERVER_ERROR for a batch that is too large.
_TOO_LARGE = frozenset(
    {UNKNOWN_SERVER_ERROR, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE}
)


async def commit_split(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    send: Callable[
        [Mapping[TopicPartition, OffsetAndMetadata]], Awaitable[dict[TopicPartition, int]]
    ],
) -> dict[TopicPartition, int]:
    """Commit offsets by requests that a coordinator can write; return the error codes.

    `send` makes one request. If a request is refused as too large, its two halves are sent instead.
    After any other error no further request is sent.
    """
    codes: dict[TopicPartition, int] = {}
    left = deque(_parts(group_id, offsets))
    while left and not any(codes.values()):
        part = left.popleft()
        answer = await send(part)
        refused = [partition for partition, code in answer.items() if code in _TOO_LARGE]
        if len(refused) > 1:
            answer.update(dict.fromkeys(refused, NONE))
            middle = len(refused) // 2
            for half in (refused[middle:], refused[:middle]):
                left.appendleft({partition: part[partition] for partition in half})
        codes |= answer
    return codes


def _parts(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Iterator[dict[TopicPartition, OffsetAndMetadata]]:
    part: dict[TopicPartition, OffsetAndMetadata] = {}
    size, least = 0, _RECORD + len(group_id.encode())
    for partition, offset in offsets.items():
        more = least + len(partition.topic.encode()) + len(offset.metadata.encode())
        if part and size + more > _BYTES:
            yield part
            part, size = {}, 0
        part[partition] = offset
        size += more
    if part:
        yield part
