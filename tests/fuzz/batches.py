"""Record batches by mutation, read with the kernel and without it: both give the same records, or refuse them at the same place.

No byte behind them is read. Some begin with a file of `corpus`, which has what was found, and what brokers send.
"""

from __future__ import annotations

import ctypes
import struct
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

from aiokafka import codec as codecs  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from ks_actors._errors import LogCorrupted
from ks_actors.kernel import _kernel
from ks_actors.log import TopicPartition
from ks_actors.log.kafka.wire import _batch_header, _plain_record_reader, _record_reader
from ks_actors.log.kafka.wire._batch_header import BEHIND_LENGTH, HEADER
from ks_actors.log.kafka.wire._batch_reader import Chunk, Columns, whole_batches
from ks_actors.log.kafka.wire._decompression import MAX_DECOMPRESSED
from ks_actors.log.kafka.wire._unpacking import is_packed
from tests.fuzz.values import EDGES, outcome

WHERE: Final = TopicPartition("topic", 0)
CORPUS: Final = Path(__file__).parent / "corpus"
BATCHES: Final = {path.stem: path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))}
SHORT: Final = (0, 1, 2, -1, -2, 127, 128, -128, 255, 256, 32767, -32768, 65535, (1 << 31) - 1, -(1 << 31), 60, 61, 62, 12, 24, 49)
LONG: Final = (*SHORT, *EDGES)
NAMES: Final = (b"", b"h", "ü".encode(), b"\xff", b"\xed\xa0\x80", b"a\0b")
PLACES: Final = (0, 8, 12, 16, 21, 22, 23, 27, 35, 43, 51, 53, 57)
WITHOUT: Final = ((_record_reader, "HAS_KERNEL", False), (_batch_header, "HAS_KERNEL", False))
MEMORY: Final = (MAX_DECOMPRESSED, MAX_DECOMPRESSED, MAX_DECOMPRESSED, 300, 1_000)
CHECKED_AT, SUM_AT, LENGTH_AT, MOST_PIECES = 21, 17, 8, 500


def varint(number: int) -> bytes:
    raw = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1)
    made = bytearray()
    while raw >= 0x80:
        made.append(raw & 0x7F | 0x80)
        raw >>= 7
    made.append(raw)
    return bytes(made)


NUMBERS: Final = [varint(number) for number in LONG] + [b"\x80" * count + b"\x01" for count in range(11)]


def number(random: Random, value: int, wild: float) -> bytes:
    """Return a number, sometimes another one, or in more bytes than it needs."""
    if random.random() >= wild:
        return varint(value)
    return random.choice((varint(value), random.choice(NUMBERS), varint(value)[:-1] + bytes([varint(value)[-1] | 0x80, 0])))


def data(random: Random, content: bytes | None, wild: float) -> bytes:
    return number(random, -1 if content is None else len(content), wild) + (content or b"")


def some_bytes(random: Random) -> bytes | None:
    return None if random.random() < 0.15 else random.randbytes(random.choice((0, 0, 1, 3, 8, 8, 20, 70, 200)))


def record(random: Random, delta: int, wild: float) -> bytes:
    time = random.choice((0, 1, 5, -3, 1 << 40, (1 << 63) - 1, -(1 << 63))) if random.random() < 0.3 else delta
    body = bytes(1) + number(random, time, wild) + number(random, delta, wild) + data(random, some_bytes(random), wild)
    body += data(random, some_bytes(random), wild)
    headers = [(random.choice(NAMES), some_bytes(random)) for _ in range(random.choice((0, 0, 0, 1, 2, 5)))]
    body += number(random, len(headers), wild) + b"".join(data(random, part, wild) for header in headers for part in header)
    if random.random() < 0.03:
        body += random.randbytes(random.randrange(1, 4))
    return number(random, len(body), wild) + body


def mutate(random: Random, raw: bytearray, first: int, times: int) -> None:
    """Change some bytes from a place on."""
    for _ in range(times):
        if len(raw) <= first:
            return
        at, what = random.randrange(first, len(raw)), random.random()
        if what < 0.35:
            raw[at] ^= 1 << random.randrange(8)
        elif what < 0.55:
            raw[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF))
        elif what < 0.65:
            del raw[at : at + random.randrange(1, 9)]
        elif what < 0.75:
            raw[at:at] = random.randbytes(random.randrange(1, 9))
        elif what < 0.9:
            raw[at : at + 1] = random.choice(NUMBERS)
        else:
            del raw[at:]


def compressed(body: bytes, which: int) -> bytes:
    packers = (bytes, codecs.gzip_encode, codecs.snappy_encode, codecs.lz4_encode, codecs.zstd_encode)
    return bytes(packers[which](body))


def new_batch(random: Random) -> bytearray:
    """Return a batch with a header that fits, for the most part, to records that may not."""
    count, wild = random.choice((1, 1, 2, 3, 5, 8)), random.choice((0, 0, 0.1, 0.5))
    deltas = list(range(count)) if random.random() < 0.7 else sorted(random.sample(range(count * 3), count))
    body = bytearray(b"".join(record(random, delta, wild) for delta in deltas))
    mutate(random, body, 0, random.choice((0, 0, 1, 1, 2)))
    which = 0 if random.random() < 0.8 else random.randrange(1, 5)
    packed = compressed(bytes(body), which)
    attributes = which | random.choice((0, 0, 0, 8, 0x10, 0x20, 0x30))
    said, last = count, deltas[-1]
    if random.random() < 0.1:
        said = random.choice(SHORT)
    if random.random() < 0.1:
        last = random.choice(SHORT)
    base = random.choice((0, 5, 1 << 40)) if random.random() < 0.97 else random.choice(EDGES)
    first = random.choice((0, 1000, 1 << 41)) if random.random() < 0.95 else random.choice(EDGES)
    length = len(packed) + HEADER.size - BEHIND_LENGTH
    return bytearray(HEADER.pack(base, length, 0, 2, 0, attributes, last, first, first, random.choice((-1, 7, 8)), 0, 0, said) + packed)


def batch(random: Random) -> bytes:
    """Return a batch: one of the corpus or a new one, changed in its header or behind it, with a checksum that fits, for the most part."""
    raw = bytearray(random.choice(list(BATCHES.values()))) if random.random() < 0.5 else new_batch(random)
    what = random.random()
    if what < 0.7:
        mutate(random, raw, HEADER.size, random.choice((0, 1, 1, 2, 3)))
    elif what < 0.85:
        at, width = random.choice(PLACES), random.choice((1, 2, 4, 8))
        changed = random.choice(EDGES).to_bytes(8, "big", signed=True)[-width:] if random.random() < 0.7 else random.randbytes(width)
        raw[at : at + width] = changed
    if len(raw) > CHECKED_AT:
        if random.random() < 0.97:
            struct.pack_into(">i", raw, LENGTH_AT, len(raw) - BEHIND_LENGTH)
        if random.random() < 0.97:
            struct.pack_into(">I", raw, SUM_AT, _kernel.crc32c(bytes(raw[CHECKED_AT:])))
    if random.random() < 0.03:
        del raw[random.randrange(len(raw) + 1) :]
    return bytes(raw)


def parts_of(columns: Columns) -> tuple[Any, ...]:
    batch = columns.batch()
    return batch.keys, batch.values, batch.timestamps, batch.headers, list(batch.offsets)


def only_plain(_: Any, plain: Any) -> Any:
    """Return the reader that stands in for aiokafka where aiokafka refuses records."""
    return plain


def is_misread(data: bytes) -> bool:
    """Tell whether a record has attributes of 128 or more: aiokafka takes them, one byte for Kafka, for the beginning of a longer number."""
    at = HEADER.size
    while at < len(data):
        try:
            begin, at = _plain_record_reader._enter(data, at)
        except ValueError:
            return False
        if data[begin] & 0x80:
            return True
    return False


def read(
    raw: bytes, aborted: list[tuple[int, int]] | None, position: int, limit: int, memory: int, patches: tuple[tuple[Any, str, Any], ...] = ()
) -> tuple[Any, ...]:
    """Read all there is; return the records, where that ended, and whether by an error. Nothing but LogCorrupted may be raised.

    No more than `limit` records are read at a time, and none that take more than `memory` bytes.
    """
    found: list[Any] = []
    with ExitStack() as way:
        for place in patches:
            way.enter_context(patch.object(*place))
        try:
            chunk = Chunk(WHERE, raw, 100, aborted, limit=memory)
        except LogCorrupted as error:
            return found, error.offset, error.next_offset
        for _ in range(MOST_PIECES):
            columns = Columns()
            try:
                more = chunk.read(position, limit, columns)
            except LogCorrupted as error:
                return found, parts_of(columns), error.offset, error.next_offset
            records = columns.batch()
            lengths = {len(column) for column in (records.keys, records.values, records.timestamps, records.offsets)}
            assert len(lengths) == 1, lengths
            assert records.headers is None or len(records.headers) == len(records.keys)
            found.append(parts_of(columns))
            if not more:
                return found, chunk.position, chunk.next_offset
            position = max(position, chunk.position)
    raise AssertionError(f"{raw!r} never comes to an end")


def compare(raw: bytes, aborted: list[tuple[int, int]] | None, position: int, limit: int, memory: int = MAX_DECOMPRESSED) -> None:
    """Read with the kernel, with its twin, and without the kernel, when aiokafka reads the records."""
    misread: list[bool] = []

    def by_aiokafka(data: bytes) -> Any:
        misread.append(is_misread(data))
        return MemoryRecords(data)

    given = (raw, aborted, position, limit, memory)
    with_kernel = read(*given)
    twin = read(*given, (*WITHOUT, (_record_reader, "IteratedBody", only_plain)))
    assert with_kernel == twin, (*given, with_kernel, twin)
    without = read(*given, (*WITHOUT, (_record_reader, "MemoryRecords", by_aiokafka)))
    assert with_kernel == without or any(misread), (*given, with_kernel, without)


def read_exactly(random: Random, body: bytes) -> None:
    """Read bytes that end where their memory ends, from anywhere on."""
    exact = (ctypes.c_char * len(body)).from_buffer_copy(body)
    at, count = random.choice((0, 0, 0, random.randrange(-2, len(body) + 3))), random.choice((1, 1, 2, 5, random.choice(EDGES)))
    base, time, append, offsets = random.choice(EDGES), random.choice(EDGES), random.random() < 0.2, random.random() < 0.5
    found, error = outcome(_kernel.read_records, exact, at, count, base, time, append, offsets)
    behind, other = outcome(_kernel.skip_records, exact, at, count)
    assert error in (None, ValueError)
    assert other in (None, ValueError)
    assert error is not None or behind == found[0]
    if 0 <= at <= len(body):
        assert found == outcome(_plain_record_reader.read_records, body, at, count, base, time, append, offsets)[0], (body, at, count)
        assert behind == outcome(_plain_record_reader.skip_records, body, at, count)[0], (body, at, count)


def read_batches_exactly(random: Random, raw: bytes) -> None:
    """Read batches that end where their memory ends, from anywhere on; the offset behind them is that which the way through each gives."""
    exact = (ctypes.c_char * len(raw)).from_buffer_copy(raw)
    at, end = random.choice((0, 0, 0, random.randrange(-2, len(raw) + 3))), random.choice((len(raw), len(raw), 1, random.choice(EDGES)))
    position, most, plain = (
        random.choice((0, 0, 5, random.choice(EDGES))),
        random.choice((1, 3, 1000, random.choice(EDGES))),
        random.choice((8, 0x18, -1)),
    )
    found, error = outcome(_kernel.read_batches, exact, at, end, position, most, plain, random.choice((*MEMORY, random.choice(EDGES))))
    assert error is None or (error is ValueError and not 0 <= at <= len(raw)), (raw, at, error)
    if found is not None:
        behind, keys, values, timestamps, headers, runs = found
        assert at < behind <= len(raw)
        assert len(keys) == len(values) == len(timestamps) == sum(last - first for first, last in runs) <= most
        assert headers is None or len(headers) == len(keys)
        assert position <= runs[0][0]
        assert all(before[1] < after[0] for before, after in pairwise(runs))
    quick = _kernel.behind_batches(exact)
    try:
        ends = [(behind, struct.unpack_from(">i", raw, at + BEHIND_LENGTH)[0]) for at, behind in whole_batches(WHERE, raw)]
    except LogCorrupted:
        ends = []
    assert quick is None or [quick[:2]] == ends[-1:], (raw, quick, ends)
    assert quick is None or quick[2] == any(is_packed(raw, at) for at, _ in whole_batches(WHERE, raw)), (raw, quick)


def session(random: Random) -> None:
    """Read some batches, one behind the other."""
    raw = b"".join(batch(random) for _ in range(random.choice((1, 1, 1, 2, 3, 8))))
    aborted = random.choice((None, [], [(7, 0)], [(7, 3), (8, 1 << 40)]))
    compare(raw, aborted, random.choice((0, 0, 0, 1, 6, 1 << 40)), random.choice((1, 2, 1000)), random.choice(MEMORY))
    read_exactly(random, raw[HEADER.size :])
    read_batches_exactly(random, raw)
