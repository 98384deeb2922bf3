"""Encoded and plain output of a partition that is joined for a send."""

from __future__ import annotations

import pytest

from ks_actors.kernel import HAS_KERNEL
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.records import Batch, EncodedBatch
from ks_actors.runtime.output._coalesce import LARGEST_OF_BYTES, merged
from ks_actors.runtime.output._pending_bytes import PendingBytes

pytestmark = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")

WHERE = TopicPartition("t", 0)


def plain(count: int, size: int) -> Batch:
    return Batch([b"k"] * count, [b"v" * size] * count, list(range(count)))


def encoded(count: int, size: int) -> EncodedBatch:
    found = EncodedBatch.of(plain(count, size))
    assert found is not None
    return found


@pytest.mark.parametrize("large_first", [False, True])
def test_large_records_are_not_joined_to_encoded_batches(large_first: bool) -> None:
    """A joined batch is less than a broker takes in one record batch, in either order."""
    parts = [encoded(70, 10), plain(8, 700_000)][:: -1 if large_first else 1]
    joined = merged([Outgoing(WHERE, part) for part in parts], LARGEST_OF_BYTES)
    assert sum(len(one.batch) for one in joined) == 78
    assert all(one.batch.own_bytes <= 1 << 20 for one in joined if isinstance(one.batch, EncodedBatch))


def test_nothing_is_pending_when_records_were_dropped_from_encoded_output() -> None:
    """Batches may lose records between their setting out and their writing; bytes are balanced in the end."""
    pending = PendingBytes()
    batches = [Outgoing(WHERE, encoded(5_000, 100)), Outgoing(WHERE, plain(10, 100))]
    pending.come(batches)
    for one in batches:
        pending.set_out(one.batch)
    left = [Outgoing(WHERE, batches[0].batch.select([number > 0 for number in range(5_000)]))]
    pending.replaced(batches, left)
    assert pending.bytes > 0
    pending.gone(left)
    assert pending.bytes == 0
