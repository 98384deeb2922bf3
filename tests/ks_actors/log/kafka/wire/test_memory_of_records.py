"""Records take no more memory than they may: a header of two bytes becomes a hundred, and there may be millions in one record."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder  # type: ignore[import-untyped]

from ks_actors._errors import LogCorrupted
from ks_actors.log import TopicPartition
from ks_actors.log.kafka.wire import _batch_header, _plain_record_reader, _record_reader
from ks_actors.log.kafka.wire._batch_reader import Chunk, Columns
from tests.ks_actors.log.kafka.wire.poisons import GZIP, Header, made, record

PARTITION = TopicPartition("topic", 3)
LIMIT = 1 << 20
EMPTY = (b"", None)


@pytest.fixture(params=["kernel", "aiokafka"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every test pass by both ways of reading."""
    if request.param == "aiokafka":
        for module in (_record_reader, _batch_header):
            monkeypatch.setattr(module, "HAS_KERNEL", False)


def chunk(*batches: bytearray, limit: int = LIMIT) -> Chunk:
    return Chunk(PARTITION, b"".join(batches), 1_000, None, limit=limit)


def peak_of(call: Callable[[], object]) -> int:
    """Return how many bytes of memory a call takes at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_record_with_too_many_headers_is_refused(codec: int) -> None:
    """Before its headers are made: the error tells their number, the setting, and where reading can go on; records in front of it are read."""
    bomb = record(b"bomb", delta=1, headers=[EMPTY] * 20_000)
    source = chunk(made(record(b"a"), bomb, record(b"c", delta=2), base=4, codec=codec), made(record(b"z"), base=7))
    columns = Columns()

    def refused() -> None:
        with pytest.raises(LogCorrupted, match=r"20000 headers .* max_decompressed_bytes .1048576") as raised:
            while source.read(4, 1_000, columns):
                pass
        assert (raised.value.partition, raised.value.offset, raised.value.next_offset) == (PARTITION, 5, 7)

    assert peak_of(refused) < LIMIT // 2
    assert columns.batch().keys == [b"a"]


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("skipped", [0, 7])
def test_records_that_are_too_large_together_are_read_in_pieces(gaps: bool, skipped: int) -> None:
    """A reader that stops at its time has no more of them than the limit, and gets all of them in turn."""
    records = [record(b"%d" % at, delta=at, headers=[EMPTY] * 2_000) for at in range(30)]
    source = chunk(made(*records, last=30 if gaps else 29))
    keys, position, more = list[bytes | None](), skipped, True
    while more:
        columns = Columns()

        def take(at: int = position, to: Columns = columns) -> None:
            nonlocal more
            more = source.read(at, 1_000, to, until=0)

        assert peak_of(take) < 2 * LIMIT
        keys += columns.batch().keys
        position = source.position
    assert keys == [b"%d" % at for at in range(skipped, 30)]


@pytest.mark.parametrize(
    "header", [EMPTY, (b"\xff", b"ab"), (b"ab", b""), ("€".encode(), None), (b"\xff\xff", b"abcdefghijklmnop"), ("😀".encode() + b"a" * 90, b"a")]
)
@pytest.mark.parametrize("count", [1, 100, 10_000])
def test_no_record_takes_more_than_it_is_measured_at(header: Header, count: int) -> None:
    """With any headers, by the measure and by the factor that is used where there is much room."""
    raw = record(bytes(10), bytes(20), headers=[header] * count)
    batch = made(raw)
    columns = Columns()
    peak = peak_of(lambda: chunk(batch, limit=1 << 30).read(0, 1, columns))
    headers = columns.batch().headers
    assert headers is not None
    assert len(headers[0]) == count
    measure, _ = _plain_record_reader._measure(raw, 0)
    # Without the kernel a list of the library's is there beside the tuple, and a copy of the batch.
    in_background = 10_000 + 10 * count + 2 * len(raw)
    assert peak < measure.size + in_background
    assert peak < _record_reader._MOST_GROWTH * len(raw) + in_background


def test_measured_sizes_are_no_more_than_a_few_times_the_content() -> None:
    """Large values are not refused for the sake of a few headers."""
    raw = record(bytes(100), bytes(LIMIT // 2), headers=[(b"name", b"value")] * 20)
    columns = Columns()
    chunk(made(raw)).read(0, 10, columns)
    assert len(columns) == 1


def test_records_are_measured_up_to_one_that_is_none() -> None:
    """It is left to its reader, with the records in front of it."""
    good = record(headers=[EMPTY] * 10)
    for bad in (b"", b"\x02\x00", b"\x0e" + b"\x80" * 7, good[:-21] + b"\xc0\x84\x3d" + good[-20:]):
        assert _plain_record_reader.fitting(good + bad, 0, 3, LIMIT)[0] == 2
    assert _plain_record_reader.fitting(good, 0, 1, 1_000) == (0, (256 + 2 + 2 + 1 + 80 + 10 * 192, 10))


def test_sets_of_an_old_format_are_counted() -> None:
    """Many small messages take more than their bytes: the set is refused."""
    builder = LegacyRecordBatchBuilder(1, GZIP, 1 << 30)
    for index in range(LIMIT // 200):
        builder.append(index, 1_000, None, None)
    with pytest.raises(LogCorrupted, match="messages of a set take more memory than max_decompressed_bytes"):
        chunk(bytearray(builder.build())).read(0, 10, Columns())
