"""Record batches of brokers to columns, without a broker."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.util import calc_crc32c  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ks_actors._errors import LogCorrupted, LogError
from ks_actors.kernel import HAS_KERNEL
from ks_actors.log import TopicPartition
from ks_actors.log.kafka.client import LeaderEpochs
from ks_actors.log.kafka.consumer._partition_reader import Budget, PartitionReader
from ks_actors.log.kafka.wire import _batch_header, _batch_reader, _record_reader
from ks_actors.log.kafka.wire._batch_reader import Chunk, Columns
from ks_actors.records._batch import Batch

PARTITION = TopicPartition("topic", 0)
TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1
Header = tuple[str, bytes | None]


@pytest.fixture(params=["kernel", "aiokafka"], autouse=True)
def by_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Every test is passed by both ways of reading; tell whether it is the kernel's."""
    if request.param == "aiokafka":
        for module in (_record_reader, _batch_header):
            monkeypatch.setattr(module, "HAS_KERNEL", False)
    return HAS_KERNEL and bool(request.param == "kernel")


def sealed(raw: bytearray) -> bytes:
    """Set the checksum to fit the rest."""
    struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
    return bytes(raw)


def stored(
    base: int,
    *values: bytes | None,
    offsets: Sequence[int] | None = None,
    producer: int = -1,
    attributes: int = 0,
    headers: Sequence[list[Header]] | None = None,
    codec: int = 0,
    last: int | None = None,
) -> bytes:
    """A batch as a broker has it; `offsets` are those that were not compacted away."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, producer, 0, 0, 1 << 30)
    places = [base + index for index in range(len(values))] if offsets is None else offsets
    for index, (place, value) in enumerate(zip(places, values, strict=True)):
        assert builder.append(place - base, 1000 + place, b"k%d" % place, value, [] if headers is None else headers[index]) is not None
    raw = bytearray(builder.build())
    struct.pack_into(">q", raw, 0, base)
    struct.pack_into(">h", raw, 21, struct.unpack_from(">h", raw, 21)[0] | attributes)
    struct.pack_into(">i", raw, 23, (places[-1] if last is None else last) - base)
    return sealed(raw)


def marker(base: int, producer: int, kind: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer, 0, -1, 1 << 30)
    builder.append(0, 1000, struct.pack(">HH", 0, kind), struct.pack(">hi", 0, 0), [])
    raw = bytearray(builder.build())
    struct.pack_into(">q", raw, 0, base)
    struct.pack_into(">h", raw, 21, TRANSACTIONAL | CONTROL)
    return sealed(raw)


def chunk(*batches: bytes, aborted: Iterable[tuple[int, int]] | None = None) -> Chunk:
    return Chunk(PARTITION, b"".join(batches), 100, None if aborted is None else list(aborted))


def read(source: Chunk, position: int = 0, limit: int = 1000) -> tuple[Batch, bool]:
    columns = Columns()
    more = source.read(position, limit, columns)
    return columns.batch(), more


def test_batches_become_columns() -> None:
    """All that a record has, and offsets that cost nothing where there are no gaps."""
    source = chunk(stored(5, b"a", None), stored(7, b""))
    batch, more = read(source, 5)
    assert (batch.keys, batch.values, batch.timestamps, batch.headers) == ([b"k5", b"k6", b"k7"], [b"a", None, b""], [1005, 1006, 1007], None)
    assert batch.offsets == range(5, 8)
    assert not more
    assert source.next_offset == 8


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_batches_of_unknown_formats_are_refused(magic: int) -> None:
    """As by Kafka's clients, with the place where reading can go on."""
    unknown = bytearray(stored(5, b"a"))
    unknown[16] = magic
    with pytest.raises(LogCorrupted, match=f"format {magic}") as caught:
        read(chunk(bytes(unknown), stored(6, b"b")), 5)
    assert (caught.value.offset, caught.value.next_offset) == (5, 6)


def test_more_is_asked_for_when_half_is_read() -> None:
    """One chunk is being read, and one may come behind it: records that will not be read soon take up room."""
    source = PartitionReader(PARTITION, 0, Budget(1 << 30), LeaderEpochs(), lambda _: None)
    wanted = [source.wanted]
    assert source.add(chunk(*(stored(base, b"v" * 100) for base in range(4))))
    wanted.append(source.wanted)
    for _ in range(3):
        source.read(1)
        wanted.append(source.wanted)
    assert source.add(chunk(stored(4, b"v")))
    wanted.append(source.wanted)
    source.read(9)
    wanted.append(source.wanted)
    assert wanted == [True, False, False, True, True, False, True]


def test_headers_begin_with_the_first_record_that_has_some() -> None:
    """Records before it, and behind it in other batches, have none."""
    batch, _ = read(chunk(stored(0, b"a"), stored(1, b"b", b"c", headers=[[], [("h", b"1"), ("h", None)]]), stored(3, b"d")))
    assert batch.headers == [(), (), (("h", b"1"), ("h", None)), ()]
    assert batch.values == [b"a", b"b", b"c", b"d"]


def test_reading_goes_on_at_its_last_position() -> None:
    """No more than the limit at a time, within a batch and across."""
    source = chunk(stored(0, b"a", b"b", b"c"), stored(3, b"d"))
    seen = []
    position, more = 0, True
    while more:
        batch, more = read(source, position, 2)
        seen.append((list(batch.offsets), batch.values))
        position = source.position
    assert seen == [([0, 1], [b"a", b"b"]), ([2, 3], [b"c", b"d"]), ([], [])]
    assert position == 4


def test_records_before_the_position_are_left_out() -> None:
    """A broker sends whole batches."""
    assert read(chunk(stored(0, b"a", b"b", b"c"), stored(3, b"d")), 2)[0].values == [b"c", b"d"]
    assert read(chunk(stored(0, b"a", b"c", b"d", offsets=[0, 2, 3])), 1)[0].values == [b"c", b"d"]
    assert read(chunk(stored(0, b"a", b"b")), 2)[0].values == []


def test_compacted_records_leave_gaps() -> None:
    """Gaps at the end of a batch count: the next offset is behind them."""
    source = chunk(stored(0, b"a", b"c", offsets=[0, 2], last=4), stored(5, b"f"))
    first, more = read(source, 0, 1)
    assert more
    assert (list(first.offsets), source.position) == ([0], 1)
    rest, _ = read(source, source.position)
    assert (list(rest.offsets), rest.values) == ([2, 5], [b"c", b"f"])
    gap = chunk(stored(0, b"a", offsets=[0], last=4))
    assert list(read(gap)[0].offsets) == [0]
    assert (gap.next_offset, gap.position) == (5, 5)


def test_markers_are_stepped_over() -> None:
    """For any reader, and any marks."""
    for aborted in (None, ()):
        source = chunk(stored(0, b"a", producer=7, attributes=TRANSACTIONAL), marker(1, 7, COMMIT), marker(2, 7, ABORT), aborted=aborted)
        batch, more = read(source)
        assert (batch.values, more, source.next_offset, source.position) == ([b"a"], False, 3, 3)


def test_committed_readers_do_not_see_aborted_records() -> None:
    """From the first offset of the transaction to its marker, and only of its producer."""
    batches = (
        stored(0, b"before", producer=7, attributes=TRANSACTIONAL),
        marker(1, 7, COMMIT),
        stored(2, b"bad", producer=7, attributes=TRANSACTIONAL),
        stored(3, b"good", producer=8, attributes=TRANSACTIONAL),
        stored(4, b"plain", producer=7),
        marker(5, 7, ABORT),
        stored(6, b"after", producer=7, attributes=TRANSACTIONAL),
        stored(7, b"again", producer=8, attributes=TRANSACTIONAL),
        marker(8, 8, ABORT),
        marker(9, 7, COMMIT),
    )
    batch, _ = read(chunk(*batches, aborted=[(8, 7), (7, 2)]))
    assert batch.values == [b"before", b"good", b"plain", b"after"]
    everything, _ = read(chunk(*batches))
    assert everything.values == [b"before", b"bad", b"good", b"plain", b"after", b"again"]


def test_an_aborted_transaction_that_began_earlier_is_left_out() -> None:
    """Its first offset is before the first batch that was fetched."""
    source = chunk(stored(10, b"bad", producer=7, attributes=TRANSACTIONAL), marker(11, 7, ABORT), stored(12, b"x"), aborted=[(7, 3)])
    assert read(source, 10)[0].values == [b"x"]


def test_a_batch_that_is_cut_off_comes_the_next_time() -> None:
    """Brokers fill up to the limit of bytes."""
    whole, cut = stored(0, b"a", b"b"), stored(2, b"c" * 50)
    for end in (1, 12, 30, len(cut) - 1):
        source = chunk(whole, cut[:end])
        assert read(source)[0].values == [b"a", b"b"]
        assert source.next_offset == 2
    only = chunk(cut[:-1])
    assert only.next_offset is None
    assert read(only, 2)[0].values == []


def test_damaged_bytes_are_not_read() -> None:
    """Records in front of them are read; then an error names their offsets, each time."""
    damaged = bytearray(stored(2, b"c"))
    damaged[-2] ^= 1
    source = chunk(stored(0, b"a", b"b"), bytes(damaged))
    columns = Columns()
    with pytest.raises(LogCorrupted, match=r"topic-0.*offset 2.*checksum"):
        source.read(0, 1000, columns)
    assert columns.batch().values == [b"a", b"b"]
    assert source.position == 2
    again = Columns()
    with pytest.raises(LogCorrupted):
        source.read(2, 1000, again)
    assert again.values == []


def test_bytes_without_batches_are_no_chunk() -> None:
    """An impossible length would make any reader of it loop for ever."""
    damaged = bytearray(stored(2, b"c"))
    struct.pack_into(">i", damaged, 8, -12)
    with pytest.raises(LogCorrupted, match="topic-0"):
        chunk(stored(0, b"a", b"b"), bytes(damaged))


def test_a_codec_that_is_not_installed_is_named() -> None:
    """With the package to install."""
    raw = bytearray(stored(0, b"a"))
    raw[22] |= 5
    with pytest.raises(LogError, match="cramjam"):
        chunk(sealed(raw)).read(0, 10, Columns())


@pytest.mark.parametrize(
    "codec", [DefaultRecordBatch.CODEC_GZIP, DefaultRecordBatch.CODEC_SNAPPY, DefaultRecordBatch.CODEC_LZ4, DefaultRecordBatch.CODEC_ZSTD]
)
def test_compressed_batches_are_read(codec: int) -> None:
    """Batches compressed by any codec of Kafka are read."""
    values = [b"%d" % index * 20 for index in range(100)]
    assert read(chunk(stored(0, *values, codec=codec)))[0].values == values


@pytest.mark.parametrize("codec", [0, 1])
def test_messages_of_old_formats_are_read(codec: int) -> None:
    """Topics from before Kafka 0.11 may have some."""
    builder = LegacyRecordBatchBuilder(1, codec, 1 << 20)
    for index in range(3):
        builder.append(index, 1000 + index, b"k", b"%d" % index)
    raw = bytearray(builder.build())
    if codec:
        # The broker gives a compressed set the offset of its last message.
        struct.pack_into(">q", raw, 0, 2)
    source = chunk(bytes(raw))
    batch, _ = read(source)
    assert (batch.values, list(batch.offsets), batch.timestamps) == ([b"0", b"1", b"2"], [0, 1, 2], [1000, 1001, 1002])
    assert source.next_offset == 3


def test_all_of_a_batch_may_be_before_the_position() -> None:
    """The batch is skipped also when some of it was compacted away, or when it is empty."""
    first, empty = stored(0, b"a", b"c", offsets=[0, 2]), stored(3, offsets=[], last=4)
    source = chunk(first, empty, stored(5, b"f"))
    columns = Columns()
    assert not source.read(3, 10, columns)
    assert columns.batch().values == [b"f"]


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Return the batches of a partition, some of them special, and its aborted transactions."""
    batches: list[bytes] = []
    aborted: dict[int, int] = {}
    open_since: dict[int, int] = {}
    base = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["plain", "plain", "compacted", "gzip", "headers", "transaction", "transaction", "end"]))
        count = draw(st.integers(1, 4))
        producer = draw(st.integers(1, 2)) if kind in ("transaction", "end") else -1
        if kind == "end":
            abort = draw(st.booleans())
            batches.append(marker(base, producer, ABORT if abort else COMMIT))
            if (begin := open_since.pop(producer, None)) is not None and abort:
                aborted[begin] = producer
            base += 1
            continue
        if kind == "transaction":
            open_since.setdefault(producer, base)
        batches.append(
            stored(
                base,
                *(b"%d" % number for number in range(count)),
                producer=producer,
                attributes=TRANSACTIONAL if kind == "transaction" else 0,
                codec=1 if kind == "gzip" else 0,
                headers=[[("h", b"%d" % base)] for _ in range(count)] if kind == "headers" else None,
                last=base + count if kind == "compacted" else None,
            )
        )
        base += count + (kind == "compacted")
    # Transactions without an end are behind the last stable offset: such a reader gets none of them.
    for begin, producer in ((begin, producer) for producer, begin in open_since.items()):
        batches.append(marker(base, producer, COMMIT))
        base += 1
        assert begin not in aborted
    return batches, sorted((producer, begin) for begin, producer in aborted.items())


def read_by_pieces(source: Chunk, position: int, limit: int) -> list[tuple[object, ...]]:
    """Return all records, read so many at a time."""
    found: list[tuple[object, ...]] = []
    more = True
    while more:
        batch, more = read(source, position, limit)
        headers = [()] * len(batch) if batch.headers is None else batch.headers
        found += zip(batch.offsets, batch.keys, batch.values, batch.timestamps, headers, strict=True)
        position = max(position, source.position)
    return [*found, (source.position,)]


@given(partitions(), st.booleans(), st.integers(0, 8), st.integers(1, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_that_are_read_at_once_are_the_same(
    made: tuple[list[bytes], list[tuple[int, int]]], committed: bool, position: int, limit: int
) -> None:
    """Reading batches at once, where nothing about them is special, gives what the way through each step gives."""
    batches, aborted = made

    def both() -> Chunk:
        return chunk(*batches, aborted=aborted if committed else None)

    quick = read_by_pieces(both(), position, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chunk, "_read_plain", lambda *_: False)
        assert read_by_pieces(both(), position, limit) == quick


def test_batches_that_follow_each_other_are_read_in_one_call(by_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the first one that is special; records, headers and offsets are those of all of them."""
    calls: list[int] = []
    quick = _record_reader.plain_batches

    def counted(*given: Any) -> Any:
        found = quick(*given)
        calls.append(0 if found is None else len(found.records.keys))
        return found

    monkeypatch.setattr(_batch_reader, "plain_batches", counted)
    small = [stored(base, b"v", headers=[[("h", b"1")]] if base == 7 else None) for base in range(10)]
    gap = stored(10, b"a", b"b", offsets=[10, 12])
    batch, _ = read(chunk(*small, gap, stored(15, b"c"), stored(20, b"d", attributes=0x08)))
    # Without the kernel aiokafka reads batch by batch.
    assert calls == ([10, 0, 2] if by_kernel else [0] * len(calls))
    assert list(batch.offsets) == [*range(10), 10, 12, 15, 20]
    assert batch.headers is not None
    assert [index for index, headers in enumerate(batch.headers) if headers] == [7]


def test_a_call_reads_64_kib_of_batches_and_any_single_one(by_kernel: bool) -> None:
    """A fetch may have megabytes, and the loop has other things to do."""
    raw = b"".join([*(stored(base, b"v" * 20_000) for base in range(4)), stored(4, b"w" * 100_000)])
    at, found = 0, []
    while piece := _record_reader.plain_batches(raw, at, len(raw), 0, 1000, 0, 1 << 30):
        found.append(piece.offsets)
        at = piece.behind
    assert found == ([range(3), range(3, 4), range(4, 5)] if by_kernel else [])
