"""Record batches: with and without compression, of one small record or a megabyte, with gaps, of transactions, and their markers."""

from __future__ import annotations

from functools import cache, lru_cache
from random import Random
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.util import calc_crc32c  # type: ignore[import-untyped]

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"

# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and max timestamp, producer id and epoch, sequence, count.
HEADER: Final = Struct(">qiibIhiqqqhii")
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
CODECS: Final = range(5)
NO_PRODUCER: Final = -1
_BASE: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_EPOCH_AT: Final = 12
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_SIGNED_AT: Final = 21
_ATTRIBUTES: Final = Struct(">h")
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_AT: Final = 23
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_CONTROL_KEY: Final = Struct(">HH")
_CONTROL_VALUE: Final = Struct(">hi")
_TEMPLATES: Final = 400
_START_MS: Final = 1_700_000_000_000


class Record(NamedTuple):
    """A record; its offset is that in its log, or in its batch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Batch(NamedTuple):
    """A record batch in a log: from `base` up to `behind`, with the leader epoch in which it was written.

    `kind` is `data`, `commit` or `abort`.
    """

    base: int
    behind: int
    raw: bytes
    producer: int
    producer_epoch: int
    sequence: int
    transactional: bool
    kind: str
    epoch: int
    timestamp: int


class Template(NamedTuple):
    """A batch at offset 0 that may be written anywhere, and its records."""

    raw: bytes
    behind: int
    records: tuple[Record, ...]


def _signed(raw: bytearray) -> bytes:
    _CRC.pack_into(raw, _CRC_AT, calc_crc32c(bytes(memoryview(raw)[_SIGNED_AT:])))
    return bytes(raw)


def build(records: tuple[Record, ...], behind: int, codec: int) -> bytes:
    """Return a batch of records at offset 0; `behind` may be after the last one, as compaction leaves it."""
    builder: Any = DefaultRecordBatchBuilder(2, codec, 0, NO_PRODUCER, -1, -1, 1 << 30)
    for offset, timestamp, key, value, headers in records:
        assert builder.append(offset, timestamp, key, value, list(headers)) is not None
    raw: bytearray = builder.build()
    _LAST_DELTA.pack_into(raw, _LAST_DELTA_AT, behind - 1)
    return _signed(raw)


@cache
def template(number: int) -> Template:
    """Return one of the batches that the logs of all seeds are made of: to compress them for each would take too long."""
    random = Random(f"batch {number}")
    codec = number % len(CODECS)
    count, size = random.choice([(1, 0), (1, 5), (1, 100), (3, 60), (20, 5), (20, 60), (100, 30), (100, 300), (400, 20)])
    if number % 40 >= 39:
        count, size = random.choice([(1, 900_000), (1, 300_000), (60, 15_000), (2_000, 100), (1, 60_000)])
    behind = count
    offsets = list(range(count))
    if count > 1 and random.random() < 0.2:
        offsets = sorted(random.sample(offsets, random.randint(1, count)))
    shrinks = random.random() < 0.5
    records = tuple(_record(random, number, offset, size, shrinks=shrinks) for offset in offsets)
    return Template(build(records, behind, codec), behind, records)


def _record(random: Random, number: int, offset: int, size: int, *, shrinks: bool) -> Record:
    key = random.choice([None, b"k%d" % (offset % 7), b"", b"k"])
    value = random.choice([None, b""]) if not size else bytes([65 + offset % 26]) * size if shrinks else random.randbytes(size)
    headers: Headers = ()
    if number % 4 == 0 and random.random() < 0.4:
        headers = tuple(
            random.choice([("h", None), ("h", b""), ("trace", b"x" * random.choice([1, 30])), ("ü", b"1")]) for _ in range(random.randint(1, 3))
        )
    return Record(offset, _START_MS + number * 1000 + offset, key, value, headers)


def sealed(batch: bytes, producer: int, epoch: int, sequence: int, *, attributes: int = 0) -> bytes:
    """Return a batch as a producer writes it, with more attributes."""
    raw = bytearray(batch)
    (before,) = _ATTRIBUTES.unpack_from(raw, _SIGNED_AT)
    _ATTRIBUTES.pack_into(raw, _SIGNED_AT, before | attributes)
    _PRODUCER.pack_into(raw, _PRODUCER_AT, producer, epoch, sequence)
    return _signed(raw)


@lru_cache(maxsize=4096)
def template_of(number: int, producer: int, sequence: int) -> bytes:
    """Return a template's batch as a transactional producer writes it."""
    return sealed(template(number).raw, producer, 0, sequence, attributes=TRANSACTIONAL)


def draw_template(random: Random) -> int:
    """Return the number of one of the templates."""
    return random.randrange(_TEMPLATES)


@lru_cache(maxsize=4096)
def _marker(producer: int, producer_epoch: int, timestamp: int, *, commit: bool) -> bytes:
    builder: Any = DefaultRecordBatchBuilder(2, 0, 0, producer, producer_epoch, -1, 1 << 30)
    builder.append(0, timestamp, _CONTROL_KEY.pack(0, int(commit)), _CONTROL_VALUE.pack(0, 0), [])
    raw: bytearray = builder.build()
    _ATTRIBUTES.pack_into(raw, _SIGNED_AT, TRANSACTIONAL | CONTROL)
    return _signed(raw)


def marker(producer: int, producer_epoch: int, timestamp: int, *, commit: bool) -> bytes:
    """Return the batch that ends a transaction, for offset 0."""
    return _marker(producer, producer_epoch, timestamp, commit=commit)


def placed(raw: bytes, base: int, epoch: int) -> Batch:
    """Return a batch as a leader of an epoch has it in its log, from offset `base` on. The checksum covers neither."""
    stored = bytearray(raw)
    _BASE.pack_into(stored, 0, base)
    _EPOCH.pack_into(stored, _EPOCH_AT, epoch)
    _, _, _, _, _, attributes, delta, _, newest, producer, producer_epoch, sequence, _ = HEADER.unpack_from(raw)
    kind = "data"
    if attributes & CONTROL:
        # The key of its only record, behind five fields of a byte, tells whether it is a commit.
        kind = "commit" if records_of(raw)[0].key == _CONTROL_KEY.pack(0, 1) else "abort"
    return Batch(
        base, base + delta + 1, bytes(stored), producer, producer_epoch, sequence, bool(attributes & TRANSACTIONAL), kind, epoch, newest
    )  # fmt: skip


def is_one(raw: bytes) -> bool:
    """Return whether there is one batch, whole."""
    _, length, _, magic, *_ = HEADER.unpack_from(raw)
    return bool(magic == 2 and len(raw) == length + _EPOCH_AT)


def is_transactional(raw: bytes) -> bool:
    """Return whether a batch is written in a transaction."""
    (attributes,) = _ATTRIBUTES.unpack_from(raw, _SIGNED_AT)
    return bool(attributes & TRANSACTIONAL)


def is_sound(raw: bytes) -> bool:
    """Return whether the checksum of a batch is right."""
    _, _, _, _, checksum, *_ = HEADER.unpack_from(raw)
    return bool(checksum == calc_crc32c(raw[_SIGNED_AT:]))


@lru_cache(maxsize=8192)
def records_of(raw: bytes) -> tuple[Record, ...]:
    """Return the records of a batch, as another library reads them."""
    return tuple(Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in DefaultRecordBatch(raw))
