"""The queue of one partition: order, position, and records that cannot be decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ks_actors import FailOnInvalidTimestamp
from ks_actors._batch import Batch
from ks_actors.log import TopicPartition
from ks_actors.runtime._queue import RecordQueue

if TYPE_CHECKING:
    from ks_actors.runtime._queue import RawRecord

BAD = b"bad"


def decode(data: bytes) -> bytes:
    if data == BAD:
        raise ValueError("bad")
    return data


class Reader:
    """A source that leaves bad records out, but for one that ends the task."""

    name = "source"
    decode_key = staticmethod(decode)
    decode_value = staticmethod(decode)
    extract = FailOnInvalidTimestamp()
    keeps_valid = True

    def __init__(self, fatal: int | None) -> None:
        self.fatal = fatal
        self.told: list[int] = []

    def undecodable(self, raw: RawRecord, error: Exception) -> None:
        assert isinstance(error, ValueError)
        self.told.append(raw.offset)
        if raw.offset == self.fatal:
            raise LookupError(raw.offset)

    def unstampable(self, raw: RawRecord, error: Exception) -> Exception:
        raise AssertionError(raw)

    def untimely(self, raw: RawRecord, timestamp: int) -> None:
        raise AssertionError((raw, timestamp))


@given(
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.integers(0, 60),
    st.lists(st.integers(1, 9), min_size=40, max_size=40),
    st.lists(st.integers(1, 6), min_size=41, max_size=41),
)
def test_what_is_decided_about_bad_records_belongs_to_the_position(good: list[bool], fatal_at: int, chunks: list[int], takes: list[int]) -> None:
    """A bad record is told when the position passes it; the one that ends the task is raised when all in front of it are done, and stays."""
    bad = [offset for offset, fine in enumerate(good) if not fine]
    fatal = fatal_at if fatal_at in bad else None
    reader = Reader(fatal)
    queue = RecordQueue(TopicPartition("t", 0), reader, 0)
    begin = 0
    for size in chunks:
        end = min(len(good), begin + size)
        values: list[bytes | None] = [b"good" if fine else BAD for fine in good[begin:end]]
        queue.add(Batch([None] * len(values), values, list(range(begin, end)), None, range(begin, end)), end, len(good))
        begin = end
    taken: list[int] = []
    failure: LookupError | None = None
    try:
        for limit in takes:
            if queue.head() is None:
                break
            taken += queue.take(limit).offsets
            assert [offset for offset in bad if offset < queue.position] == [offset for offset in reader.told if offset != fatal]
            assert taken[-1] < queue.position
    except LookupError as raised:
        failure = raised
    if fatal is None:
        assert failure is None
        assert taken == [offset for offset, fine in enumerate(good) if fine]
        assert reader.told == bad
        assert (queue.position, queue.buffered) == (len(good), 0)
    else:
        assert failure is not None
        assert taken == [offset for offset, fine in enumerate(good[:fatal]) if fine]
        assert queue.position == fatal
        assert reader.told.count(fatal) == 1
