"""The metadata committed with an offset, in Kafka Streams' format.

It holds the partition's time and the progress of processors: base64 of a magic byte 2, the
partition time (int64), and processor metadata. This metadata has the number of entries (int32), and
for each entry the length of its key (int32), the key (UTF-8) and a value (int64). All numbers are
big-endian. Magic 1 is the same without processor metadata. The entry `#task`, which no store can be
named, has the number of the task where a user's grouper has chosen another than the partition's.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ks_actors.log import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.records import TopicPartition

_HEAD = struct.Struct(">bq")
_LENGTH = struct.Struct(">i")
_VALUE = struct.Struct(">q")
_WITHOUT_PROGRESS = 1
_WITH_PROGRESS = 2


class Position(NamedTuple):
    """The start position of a partition.

    It has the next offset, the partition's time (ms, -1 unknown), and the committed progress of
    processors. A `fresh` position comes from `auto_offset_reset`, because the group has committed
    no position. `task` is the number of the task that committed, None if unknown.
    """

    offset: int
    time: int = -1
    progress: Mapping[str, int] = {}
    fresh: bool = False
    task: int | None = None


OWN_NUMBER: Final = -1
"""The task number of a position that a task of the partition's own number has committed."""
_TASK: Final = "#task"


def encode_position(
    offset: int, time: int, progress: Mapping[str, int], task: int = OWN_NUMBER
) -> OffsetAndMetadata:
    """Return the offset and metadata to commit.

    `task` is the number of the partition's task where it differs from that of the partition.
    """
    parts = [_HEAD.pack(_WITH_PROGRESS, time)]
    if task != OWN_NUMBER:
        progress = {**progress, _TASK: task}
    if progress:
        parts.append(_LENGTH.pack(len(progress)))
        for key, value in progress.items():
            encoded = key.encode()
            parts += (_LENGTH.pack(len(encoded)), encoded, _VALUE.pack(value))
    return OffsetAndMetadata(offset, base64.b64encode(b"".join(parts)).decode("ascii"))


def contained(next_offsets: Mapping[TopicPartition, int]) -> dict[tuple[str, int], int]:
    """Return the offset before each next offset, for partitions that have such an offset."""
    return {partition: offset - 1 for partition, offset in next_offsets.items() if offset > 0}


def decode_position(committed: OffsetAndMetadata) -> Position:
    """Decode a committed position.

    Metadata of another format counts as none, as in Kafka Streams.
    """
    try:
        data = base64.b64decode(committed.metadata, validate=True)
        magic, time = _HEAD.unpack_from(data)
        progress = (
            _decode_progress(data) if magic == _WITH_PROGRESS and len(data) > _HEAD.size else {}
        )
    except (binascii.Error, ValueError, struct.error):
        return Position(committed.offset)
    return (
        Position(committed.offset, time, progress, task=progress.pop(_TASK, OWN_NUMBER))
        if magic in {_WITHOUT_PROGRESS, _WITH_PROGRESS}
        else Position(committed.offset)
    )


def _decode_progress(data: bytes) -> dict[str, int]:
    (count,) = _LENGTH.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _LENGTH.size
    progress: dict[str, int] = {}
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        key = data[at : at + length].decode()
        at += length
        (progress[key],) = _VALUE.unpack_from(data, at)
        at += _VALUE.size
    return progress


def merged_progress(positions: Iterable[Position]) -> dict[str, int]:
    """Return the progress that was committed.

    All partitions of a task have the same progress, unless some were committed without progress.
    """
    progress: dict[str, int] = {}
    for position in positions:
        for name, value in position.progress.items():
            progress[name] = max(value, progress.get(name, value))
    return progress
