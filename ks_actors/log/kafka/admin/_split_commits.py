"""Commit many offsets by several requests.

A coordinator writes the offsets of a request as one batch, which must not be larger than
`message.max.bytes` of the brokers, 1 MB by default.
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
# The bytes of an offset's record besides its names and its metadata, at most.
_RECORD: Final = 64
# Brokers from 4.0 on say UNKNOWN_SERVER_ERROR for a batch that is too large.
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

    `send` makes one request. A refused request is repeated in halves, as the broker may allow less.
    After an error no further request is sent.
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
