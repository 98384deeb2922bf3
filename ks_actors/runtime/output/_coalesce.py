"""Merging and splitting of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.log import Outgoing
from ks_actors.records import (
    WORTHWHILE,
    Batch,
    EncodedBatch,
    LazyBatch,
    TopicPartition,
    mean_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LARGEST: Final = 1_000
"""Records per batch, for logs that take a turn of the event loop for each batch."""

LARGEST_OF_BYTES: Final = 10_000
"""Records per batch, for logs that write all batches of a send in one turn of the event loop.

Such logs split a batch that is too large for one record batch.
"""

_JOINED_BYTES: Final = 512 << 10
"""Bytes of encoded records per batch: less than a broker takes in one record batch."""


def merged(batches: Sequence[Outgoing], largest: int = LARGEST) -> list[Outgoing]:
    """Merge small batches of a partition into batches of up to `largest` records, in order."""
    if len(batches) == 1:
        return list(batches)
    by_partition: dict[TopicPartition, list[Batch]] = {}
    for outgoing in batches:
        by_partition.setdefault(outgoing.partition, []).append(outgoing.batch)
    return [
        Outgoing(partition, batch)
        for partition, parts in by_partition.items()
        for batch in _joined(parts, largest)
    ]


def _joined(parts: list[Batch], largest: int) -> list[Batch]:
    if len(parts) == 1:
        return parts
    joined: list[Batch] = []
    # The last batch, if records can be appended to it.
    last: Batch | None = None
    for part in parts:
        room = 0 if last is None else largest - len(last)
        if isinstance(part, EncodedBatch):
            whole = _encoded(last) if len(part) <= room and _fit(last, part) else None
            if whole is None or whole.own_bytes + part.own_bytes > _JOINED_BYTES:
                last = part.copy()
                joined.append(last)
            else:
                whole.append(part)
                joined[-1] = last = whole
        # Appending to a batch that is already encoded as columns would decode it. Later records
        # start a new batch, to keep the order.
        elif isinstance(part, LazyBatch) and len(part) >= WORTHWHILE:
            last = None
            joined.append(part)
        elif (
            isinstance(last, EncodedBatch)
            and len(part) <= room
            and _fit(last, part)
            and (more := _encoded(part))
            and last.own_bytes + more.own_bytes <= _JOINED_BYTES
        ):
            last.append(more)
        elif last is not None and not isinstance(last, EncodedBatch) and len(part) <= room:
            _append(last, part)
        else:
            last = Batch(
                # A copy: the caller may still hold the first batch, and appending must not change
                # it.
                part.keys[:],
                part.values[:],
                part.timestamps[:],
                None if part.headers is None else part.headers[:],
            )
            joined.append(last)
    return joined


def _fit(last: Batch | None, part: Batch) -> bool:
    """Return whether two batches are probably small enough to be joined when they are encoded."""
    both = () if last is None else (last, part)
    return sum(len(one) * mean_bytes(one) for one in both) <= _JOINED_BYTES


def _encoded(batch: Batch | None) -> EncodedBatch | None:
    """Return a batch encoded, to join it with batches that are; None if that is impossible."""
    if batch is None or isinstance(batch, EncodedBatch):
        return batch
    return EncodedBatch.of(batch)


def _append(whole: Batch, part: Batch) -> None:
    """Append to a batch that no other code has seen yet."""
    if part.headers is not None or whole.headers is not None:
        if whole.headers is None:
            whole.headers = [()] * len(whole)
        whole.headers += part.headers if part.headers is not None else [()] * len(part)
    whole.keys += part.keys
    whole.values += part.values
    whole.timestamps += part.timestamps


def split(
    topic: str, batch: Batch, partitions: int, choose: Callable[[bytes, int], int]
) -> list[Outgoing]:
    """Return the records of a batch by partition; records without a key go to the first."""
    by_partition: dict[int, list[int]] = {}
    for index, key in enumerate(batch.keys):
        by_partition.setdefault(0 if key is None else choose(key, partitions), []).append(index)
    headers = batch.headers
    return [
        Outgoing(
            TopicPartition(topic, number),
            Batch(
                [batch.keys[index] for index in picked],
                [batch.values[index] for index in picked],
                [batch.timestamps[index] for index in picked],
                None if headers is None else [headers[index] for index in picked],
            ),
        )
        for number, picked in by_partition.items()
    ]
