"""The queue of one partition: order, position, and records that cannot be decoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ks_actors import FailOnInvalidTimestamp
from ks_actors.log import TopicPartition
from ks_actors.records._batch import Batch
from ks_actors.task._partition_group import PartitionGroup
from ks_actors.task._record_queue import RecordQueue
from ks_actors.task.origins._pages import RawRecord

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
    with_headers = None
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
def test_decisions_about_bad_records_belong_to_the_position(good: list[bool], fatal_at: int, chunks: list[int], takes: list[int]) -> None:
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


STREAMS = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=30), min_size=2, max_size=4)


def group_of(streams: list[list[int]]) -> PartitionGroup:
    queues = [RecordQueue(TopicPartition("t", number), Reader(None), 0) for number in range(len(streams))]
    for queue, times in zip(queues, streams, strict=True):
        for begin in range(0, len(times), 7):
            part = times[begin : begin + 7]
            offsets = range(begin, begin + len(part))
            values: list[bytes | None] = [b"bad" if time == 13 and begin else b"v" for time in part]
            queue.add(Batch([None] * len(part), values, part, None, offsets), offsets.stop, len(times))
    return PartitionGroup(queues, 0)


@given(STREAMS, st.integers(1, 5))
def test_queues_that_take_turns_bring_records_in_the_same_order(streams: list[list[int]], limit: int) -> None:
    """Whether turns are looked up for each take, or gone through as long as all queues have records; positions and times are the same, too."""
    by_take, by_turn = group_of(streams), group_of(streams)
    expected: list[tuple[int, int]] = []
    found: list[tuple[int, int]] = []
    while (taken := by_take.take(1)) is not None:
        expected += [(taken[0].partition.partition, offset) for offset in taken[1].offsets]
    while True:
        turn = by_turn.turn()
        if turn is not None:
            queue, until = turn
            chunk, start, stop = queue.run(limit, until)
            assert 0 < stop - start <= limit
            found += [(queue.partition.partition, offset) for offset in chunk.offsets[start:stop]]
        elif (taken := by_turn.take(1)) is not None:
            found += [(taken[0].partition.partition, offset) for offset in taken[1].offsets]
        else:
            break
    assert found == expected
    for one, other in zip(by_take.queues.values(), by_turn.queues.values(), strict=True):
        assert (one.position, one.buffered, one.partition_time) == (other.position, other.buffered, other.partition_time)


@given(st.lists(st.tuples(st.sampled_from(["add", "back", "take"]), st.integers(1, 9)), max_size=40))
def test_a_position_passes_no_record_that_the_log_has(steps: list[tuple[str, int]]) -> None:
    """After a move back, records that were fetched before do not count: the log has others at their offsets."""
    queue = RecordQueue(TopicPartition("t", 0), Reader(None), 0)
    # The offsets of buffered records, each with the log that it is of: the last one is the present log.
    waiting: list[tuple[int, int]] = []
    log = behind = 0
    for step, number in steps:
        if step == "add":
            offsets = range(behind, behind + number)
            queue.add(Batch([None] * number, [b"good"] * number, list(offsets), None, offsets), behind + number, behind + number)
            waiting += [(log, offset) for offset in offsets]
            behind += number
        elif step == "back":
            log, behind = log + 1, max(0, behind - number)
            queue.move(behind)
        elif queue.head() is not None:
            del waiting[: len(queue.take(number))]
        present = [offset for of, offset in waiting if of == log]
        assert queue.position <= min(present, default=behind)
        if len(present) == len(waiting):
            assert queue.position == min(present, default=behind)
    while queue.head() is not None:
        queue.take(9)
    assert queue.position == behind


def test_a_lag_counts_to_the_later_of_two_ends() -> None:
    """The end by the last fetch, and one that was looked up since; without any the lag is unknown."""
    queue = RecordQueue(TopicPartition("t", 0), Reader(None), 3)
    assert (queue.lag_to(None), queue.lag_to(5), queue.lag_to(2)) == (None, 2, 0)
    queue.add(Batch([None], [b"good"], [0], None, range(3, 4)), 4, 10)
    assert queue.fetch_position == 4
    assert (queue.lag_to(None), queue.lag_to(5), queue.lag_to(12)) == (6, 6, 8)


def test_a_group_names_the_queue_that_it_waits_for() -> None:
    """An empty one with an unknown end, or with records in the log, or in its idle time; none when it need not wait."""

    def group(max_task_idle_ms: int, *lags: int | None) -> PartitionGroup:
        queues = [RecordQueue(TopicPartition("t", number), Reader(None), 0) for number in range(1 + len(lags))]
        queues[0].add(Batch([None], [b"good"], [0], None, range(1)), 1, 1)
        for queue, lag in zip(queues[1:], lags, strict=True):
            if lag is not None:
                queue.note_end(lag)
        found = PartitionGroup(queues, max_task_idle_ms)
        assert found.ready(0) is (found.awaited() is None)
        return found

    waits = [group(0, None), group(0, 0, 5), group(100, 0), group(0, 0), group(-1, None)]
    assert [queue and queue.partition.partition for queue in map(PartitionGroup.awaited, waits)] == [1, 2, 1, None, None]
    assert waits[2].ready(100)
    assert waits[2].awaited() is None
