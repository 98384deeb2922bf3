"""Batches that cannot be read: one error for all, with topic, partition and offsets, by the kernel and without."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest
from aiokafka.errors import CorruptRecordException  # type: ignore[import-untyped]
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors._errors import LogCorrupted, LogError
from ks_actors.kernel import _kernel as kernel
from ks_actors.log import TopicPartition
from ks_actors.log.kafka.wire import _batch_header, _decompression, _plain_record_reader, _record_reader
from ks_actors.log.kafka.wire._batch_reader import Chunk, Columns
from ks_actors.records._batch import Batch
from tests.examples_of import examples
from tests.ks_actors.log.kafka.wire.poisons import GZIP, LIMIT, LZ4, SNAPPY, ZSTD, made, packed, poisons, record, sealed

PARTITION = TopicPartition("topic", 3)
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]


@pytest.fixture(params=["kernel", "aiokafka"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every test pass by both ways of reading."""
    if request.param == "aiokafka":
        for module in (_record_reader, _batch_header):
            monkeypatch.setattr(module, "HAS_KERNEL", False)


def chunk(*batches: bytearray, aborted: list[tuple[int, int]] | None = None) -> Chunk:
    return Chunk(PARTITION, b"".join(batches), 1_000, aborted, limit=LIMIT)


def read(source: Chunk, position: int = 0) -> tuple[Batch, LogCorrupted | None]:
    """Return the readable records, and the error behind them."""
    columns = Columns()
    try:
        while source.read(position, 100_000, columns):
            pass
    except LogCorrupted as error:
        return columns.batch(), error
    return columns.batch(), None


def outcome(*raw: bytearray, position: int = 0) -> LogCorrupted | None:
    """Return the error of batches, if there is one."""
    try:
        return read(chunk(*raw), position)[1]
    except LogCorrupted as error:
        return error


def where(error: LogCorrupted | None) -> tuple[TopicPartition | None, int | None, int | None] | None:
    return None if error is None else (error.partition, error.offset, error.next_offset)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"name\xe2\x82", "name\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"", ""),
        ("ü\U0001f600".encode(), "ü\U0001f600"),
    ],
)
def test_header_names_that_are_no_text_are_replaced(name: bytes, text: str) -> None:
    """Bytes of a header's name that are not UTF-8 become U+FFFD, and the records before and behind are read as well."""
    raw = made(record(b"a"), record(b"b", delta=1, headers=[(name, b"1"), (b"h", None)]), record(b"c", delta=2))
    batch, error = read(chunk(raw, made(record(b"d"), base=3)))
    assert error is None
    assert batch.keys == [b"a", b"b", b"c", b"d"]
    assert batch.headers == [(), ((text, b"1"), ("h", None)), (), ()]


@settings(max_examples=examples(300))
@given(st.lists(st.binary(max_size=12), max_size=5), st.binary(max_size=30), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_the_reader_in_python_reads_as_the_kernel(names: list[bytes], spoil: bytes, time: int, append_time: bool) -> None:
    """Columns, positions and errors are equal, for any bytes."""
    data = record(b"k", None, time=time, headers=[(name, None) for name in names]) + record(delta=-3) + spoil

    def outcome(reader: object, name: str, *args: object) -> object:
        try:
            return getattr(reader, name)(data, *args)
        except ValueError as error:
            return str(error)

    for count in (-1, 0, 1, 2, 3, 1000):
        for name, args in (("read_records", (0, count, 2**63 - 1, time, append_time, True)), ("skip_records", (0, count))):
            assert outcome(_plain_record_reader, name, *args) == outcome(kernel, name, *args)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_becomes_too_large_is_not_decompressed(codec: int) -> None:
    """Its error tells the limit, and where reading can go on; no more than some times the limit is taken of memory."""
    bomb = made(record(b"k", bytes(8 * LIMIT)), record(delta=1), base=5, codec=codec)
    source = chunk(made(record(b"a"), base=4), bomb, made(record(b"z"), base=7))
    tracemalloc.start()
    batch, error = read(source, 4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert batch.keys == [b"a"]
    assert where(error) == (PARTITION, 5, 7)
    assert "max_decompressed_bytes" in str(error)
    assert peak < 4 * LIMIT


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("more", [0, 1])
def test_the_limit_is_exact(codec: int, more: int) -> None:
    """Exactly the limit is read, and one byte more is refused."""
    data = bytes(100_000)
    compressed = memoryview(packed(data, codec))
    if more:
        with pytest.raises(CorruptRecordException, match="max_decompressed_bytes"):
            _decompression.decompress(compressed, codec, len(data) - more)
    else:
        assert _decompression.decompress(compressed, codec, len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_no_memory_is_not_taken_for_bad_bytes(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that there is not enough memory for is not passed over: it is read when there is some."""

    def without_memory(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setitem(_decompression._DECODERS, _batch_header.CODECS[codec], without_memory)
    with pytest.raises(LogError, match=r"topic-3.*offset 0.*not enough memory"):
        chunk(made(record(), codec=codec)).read(0, 10, Columns())


def test_records_in_front_of_one_that_is_none_are_read() -> None:
    """The error names the first that cannot be read, and the end of the batch."""
    good = [record(b"%d" % at, delta=at) for at in range(37)]
    broken = number_of_headers(record(b"x", delta=37))
    raw = made(*good, broken, record(b"y", delta=38), base=10)
    batch, error = read(chunk(raw, made(record(), base=49)), 10)
    assert batch.keys == [b"%d" % at for at in range(37)]
    assert list(batch.offsets) == list(range(10, 47))
    assert where(error) == (PARTITION, 47, 49)
    assert where(read(chunk(raw), 20)[1]) == (PARTITION, 47, 49)


def number_of_headers(raw: bytes) -> bytes:
    """Return a record that says to have more headers than it has."""
    return raw[:-1] + b"\x50"


def test_a_cut_batch_is_an_error_of_that_batch() -> None:
    """Cut off, of unknown codec, with too many or too few records: all the same error."""
    _, error = read(chunk(made(record(), count=2, last=1)))
    assert where(error) == (PARTITION, 1, 2)
    for raw in (
        made(record(), count=-1),
        made(record(), count=5),
        made(record(), attributes=7),
        made(record(), attributes=ZSTD),
        made(record(), attributes=SNAPPY),
        made(b"\x02\x00"),
        made(b"\xff" * 30),
    ):
        _, error = read(chunk(raw))
        assert error is not None
        assert where(error) == (PARTITION, 0, 1)


@pytest.mark.parametrize("record_that_ends", [b"\x16\0\0\0\1\1" + b"\x80" * 5, b"\x14\0\0\0\1\1" + b"\x80" * 4, b"\x0c\0\0\0\1\x80"])
def test_a_number_does_not_go_on_behind_its_batch(record_that_ends: bytes) -> None:
    """With any next byte in memory, and any next batch."""
    for raw in ([made(record_that_ends)], [made(record_that_ends), made(record(), base=1)]):
        assert where(outcome(*raw)) == (PARTITION, 0, 1)


@pytest.mark.parametrize("deltas", [(9, 3), (0, 12), (-4, 2), (2**40, 2**41)])
def test_records_are_where_their_batch_says(deltas: tuple[int, int]) -> None:
    """Offsets of a batch with gaps that go back, or beyond its end, neither lead back nor past the next batch."""
    raw = made(*(record(b"%d" % delta, delta=delta) for delta in deltas), count=2, last=9, base=20)
    batch, error = read(chunk(raw, made(record(b"z"), base=30)), 20)
    assert where(error) == (PARTITION, 20, 30)
    assert batch.keys == []


def test_many_small_members_of_a_gzip_file_take_no_longer_than_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes behind a member are not copied for each of them: the work grows with the bytes, and not with their square."""
    given: list[int] = []
    member_of = zlib.decompressobj

    class Counted:
        def __init__(self, wbits: int) -> None:
            self._member = member_of(wbits)

        def decompress(self, data: memoryview, limit: int) -> bytes:
            given.append(len(data))
            return self._member.decompress(data, limit)

        @property
        def eof(self) -> bool:
            return self._member.eof

        @property
        def unused_data(self) -> bytes:
            return self._member.unused_data

    members = [packed(b"first", GZIP), *(packed(b"", GZIP), packed(b"x", GZIP), bytes(3_000), packed(bytes(20_000), GZIP)) * 700]
    data = b"".join(members)
    expected = b"first" + (b"x" + bytes(20_000)) * 700
    assert _decompression.decompress(memoryview(data), GZIP, len(expected)) == expected
    monkeypatch.setattr(zlib, "decompressobj", Counted)
    assert _decompression.decompress(memoryview(data), GZIP, len(expected)) == expected
    assert sum(given) < 3 * len(data) + 2_000 * len(members)
    for cut in (1, 9, 40, len(data) - 30, len(data) - 1):
        with pytest.raises(CorruptRecordException):
            _decompression.decompress(memoryview(data)[:cut], GZIP, len(expected))


def test_short_batches_are_no_chunk() -> None:
    """A batch that is shorter than its header is an error with partition and offset, however short."""
    for length in range(-5, 49):
        raw = made(record(), base=7)
        struct.pack_into(">i", raw, 8, length)
        with pytest.raises(LogCorrupted, match="topic-3") as raised:
            chunk(raw)
        assert (raised.value.partition, raised.value.offset) == (PARTITION, 7)
    backwards = made(record(), base=7, last=-3)
    with pytest.raises(LogCorrupted, match="topic-3"):
        chunk(backwards)


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0\0"])
def test_control_records_with_short_keys(key: bytes | None) -> None:
    """They end in the same error where a reader has to know their marks."""
    marker = made(record(key, b""), attributes=0x30, producer=7)
    _, error = read(chunk(marker, aborted=[(7, 0)]))
    assert where(error) == (PARTITION, 0, 1)
    assert read(chunk(marker))[1] is None


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY])
def test_old_formats_with_bad_lengths(magic: int, codec: int) -> None:
    """With any changed bytes, they are read, or the error is the same."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for index in range(3):
        builder.append(index, 1000 + index, b"k", b"%d" % index)
    good = bytearray(builder.build())
    for at in range(12, len(good)):
        for byte in (0, 0x7F, 0xFF):
            raw = good[:]
            raw[at] = byte
            if at >= 16:
                struct.pack_into(">I", raw, 12, zlib.crc32(raw[16 : 12 + struct.unpack_from(">i", raw, 8)[0]]))
            assert (error := outcome(raw)) is None or error.partition == PARTITION


def test_old_formats_have_the_limit_too() -> None:
    """A set of messages that becomes too large is not decompressed."""
    builder = LegacyRecordBatchBuilder(1, GZIP, 1 << 30)
    builder.append(0, 1000, b"k", bytes(2 * LIMIT))
    _, error = read(chunk(bytearray(builder.build())))
    assert error is not None
    assert "max_decompressed_bytes" in str(error)


def test_a_wrong_checksum_gives_no_next_offset() -> None:
    """Reading goes on at the next batch: the header of the damaged one may say anything."""
    raw = made(record(), base=3)
    struct.pack_into(">i", raw, 23, 1 << 30)
    _, error = read(chunk(raw, made(record(), base=4)), 3)
    assert where(error) == (PARTITION, 3, 4)
    assert where(read(chunk(raw), 3)[1]) == (PARTITION, 3, 1_000)


@settings(max_examples=examples(300))
@given(st.data())
def test_any_changed_bytes_give_the_same_error(data: st.DataObject) -> None:
    """Bytes of a batch that were changed, with a right checksum, are read, or end in one error that knows partition and offset."""
    codec = data.draw(st.sampled_from([0, *CODECS]))
    raw = made(*(record(b"%d" % at, delta=at, headers=[(b"h", b"1")]) for at in range(5)), base=7, codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(21, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    sealed(raw)
    error = outcome(raw, made(record(), base=12), position=7)
    if error is not None:
        assert error.partition == PARTITION
        assert error.offset is not None
        assert error.offset >= 7


def test_each_poison_is_read_or_refused() -> None:
    """None raises anything but the one error, and records read behind it are right."""
    for poison in poisons():
        error = outcome(poison.raw)
        assert error is None or error.partition == PARTITION, poison.name
