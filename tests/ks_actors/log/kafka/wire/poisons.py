"""Records and batches byte by byte, as no client would write them, and a list of such that a broker may take."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from aiokafka import codec as codecs  # type: ignore[import-untyped]

from ks_actors.log.kafka.wire._batch_header import HEADER, checksum

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LIMIT = 4 << 20
"""The forms that batches may take where these are read."""
NOW = 1_700_000_000_000
Header = tuple[bytes, bytes | None]


def number(value: int) -> bytes:
    """Return a number as records have it."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _field(data: bytes | None) -> bytes:
    return number(-1) if data is None else number(len(data)) + data


def record(
    key: bytes | None = b"k", value: bytes | None = b"v", *, delta: int = 0, time: int = 0, headers: Sequence[Header] = (), attributes: int = 0
) -> bytes:
    """Return one record with its length."""
    told = b"".join(_field(name) + _field(content) for name, content in headers)
    body = bytes([attributes]) + number(time) + number(delta) + _field(key) + _field(value) + number(len(headers)) + told
    return number(len(body)) + body


def sealed(raw: bytearray) -> bytearray:
    """Set length and checksum to fit the rest."""
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">I", raw, 17, checksum(raw))
    return raw


def made(
    *records: bytes, base: int = 0, first: int = NOW, highest: int | None = None, codec: int = 0, attributes: int = 0, last: int | None = None,
    count: int | None = None, producer: int = -1,
) -> bytearray:  # fmt: skip
    """Return a batch of records."""
    data = packed(b"".join(records), codec)
    size = len(records)
    head = HEADER.pack(
        base, 0, -1, 2, 0, codec | attributes, size - 1 if last is None else last, first, first if highest is None else highest, producer, -1, -1,
        size if count is None else count,
    )  # fmt: skip
    return sealed(bytearray(head + data))


def packed(data: bytes, codec: int) -> bytes:
    """Compress by the codec of that number."""
    if codec == GZIP:
        made = zlib.compressobj(9, wbits=31)
        return made.compress(data) + made.flush()
    if codec == SNAPPY:
        return bytes(codecs.snappy_encode(data, xerial_compatible=False))
    if codec == LZ4:
        return bytes(codecs.lz4_encode(data, level=1))
    return bytes(codecs.zstd_encode(data)) if codec == ZSTD else data


class Poison(NamedTuple):
    """A batch of one record, or of some, under a name."""

    name: str
    raw: bytearray


def _names() -> list[Poison]:
    bad = {
        "no UTF-8": b"\xff\xfe\xfd", "a lone surrogate": b"\xed\xa0\x80", "cut off": b"name\xe2\x82", "overlong": b"\xc0\x80", "NUL": b"\0",
        "nothing": b"", "beyond Unicode": b"\xf5\x80\x80\x80", "our own": b"__streams.errors.exception", "a trace": b"traceparent",
        "long": b"n" * 70_000,
    }  # fmt: skip
    return [Poison(f"header name: {why}", made(record(b"k", b"v", headers=[(name, b"1")]))) for why, name in bad.items()]


def _headers() -> list[Poison]:
    many: dict[str, list[Header]] = {
        "null value": [(b"h", None)], "twice": [(b"h", b"1"), (b"h", b"2")], "thousands": [(b"h%d" % at, b"") for at in range(5_000)],
        "large": [(b"h", b"x" * 500_000)], "binary trace": [(b"traceparent", b"\xff\0\xfe")],
        "a letter's offset": [(b"__streams.errors.offset", b"\xff")],
    }  # fmt: skip
    return [Poison(f"headers: {why}", made(record(b"k", b"v", headers=headers))) for why, headers in many.items()]


def _contents() -> list[Poison]:
    found = {
        "no UTF-8": b"\xff\xfe", "a lone surrogate": b"\xed\xa0\x80", "nothing": b"", "cut off": b"ab\xe2\x82", "zeros": b"\0" * 100,
        "large": b"x" * 700_000, "overlong": b"\xc0\xaf", "null": None,
    }  # fmt: skip
    keys = [Poison(f"key: {why}", made(record(content, b"v"))) for why, content in found.items()]
    values = [Poison(f"value: {why}", made(record(b"k", content))) for why, content in found.items()]
    both = [Poison("key and value: null", made(record(None, None))), Poison("key and value: no UTF-8", made(record(b"\xff", b"\xff")))]
    return keys + values + both


def _times() -> list[Poison]:
    times = {
        "-1": -1,
        "-2": -2,
        "lowest": -(2**63),
        "highest": 2**63 - 1,
        "0": 0,
        "next to highest": 2**63 - 2,
        "seconds": 1_700_000_000,
        "micro": NOW * 1000,
    }
    found = [Poison(f"time: {why}", made(record(b"k", b"v"), first=time)) for why, time in times.items()]
    wide = made(record(b"k", b"v", time=-NOW - 5), record(b"k", b"w", delta=1), highest=NOW)
    return [*found, Poison("time: a delta below 0", wide)]


def _sizes() -> list[Poison]:
    names = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
    found = [Poison(f"bomb: {name}", made(record(b"k", bytes(2 * LIMIT)), codec=codec)) for codec, name in names.items()]
    many = [record(b"k", b"x" * 5_000, delta=at) for at in range(1_000)]
    found += [Poison(f"bomb of records: {names[codec]}", made(*many, codec=codec)) for codec in (GZIP, LZ4, ZSTD)]
    body = bytes(3) + _field(b"k") + _field(b"v") + number(2_500_000) + (_field(b"") + _field(None)) * 2_500_000
    return [
        *found,
        Poison("bomb of headers", made(number(len(body)) + body, codec=ZSTD)),
        Poison("bomb: 64 MiB", made(record(b"k", bytes(64 << 20)), codec=ZSTD)),
    ]


def _codecs() -> list[Poison]:
    found = [Poison(f"codec {codec}", made(record(), attributes=codec)) for codec in (5, 6, 7)]
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        found.append(Poison(f"not compressed by {codec}", made(record(), attributes=codec)))
        found.append(Poison(f"good, by {codec}", made(record(), codec=codec)))
    return found


def _batches() -> list[Poison]:
    wrong = made(record())
    wrong[-1] ^= 1
    cut = bytearray(made(record())[:-3])
    return [
        Poison("attributes of a record", made(record(attributes=0xFF))),
        Poison("unknown attributes of a batch", made(record(), attributes=0x7F00)),
        Poison("append time", made(record(time=5), attributes=0x08)),
        Poison("wrong checksum", wrong),
        Poison("a record cut off", sealed(cut)),
        Poison("more records than it says", made(record(), record(delta=1), count=1, last=0)),
        Poison("fewer records than it says", made(record(), count=2, last=1)),
        Poison("offsets that fall", made(record(delta=1), record(delta=0))),
        Poison("a control batch", made(record(b"\0", b""), attributes=0x20)),
        Poison("no records", made(count=0, last=0)),
        Poison("a gap", made(record(), record(delta=5), last=5)),
    ]


def _strange_records() -> list[Poison]:
    """Return records that a broker looks into where they are not compressed, and hardly where they are."""
    long = {  # numbers in more bytes than they need, and lengths below -1
        "length of the key": b"\0\0\0" + b"\x82\x80\0k" + _field(b"v") + number(0),
        "delta of the time": b"\0" + b"\x80" * 9 + b"\0" + b"\0" + _field(b"k") + _field(b"v") + number(0),
        "delta of the offset": b"\0\0" + b"\x80" * 4 + b"\0" + _field(b"k") + _field(b"v") + number(0),
        "number of headers": b"\0\0\0" + _field(b"k") + _field(b"v") + b"\x80\x80\0",
        "key of length -2": b"\0\0\0" + number(-2) + _field(b"v") + number(0),
        "value of length -9": b"\0\0\0" + _field(b"k") + number(-9) + number(0),
        "header without a name": b"\0\0\0" + _field(b"k") + _field(b"v") + number(1) + number(-1) + _field(b"1"),
        "header with a name of length -3": b"\0\0\0" + _field(b"k") + _field(b"v") + number(1) + number(-3) + _field(b"1"),
        "header with a value of length -4": b"\0\0\0" + _field(b"k") + _field(b"v") + number(1) + _field(b"h") + number(-4),
        "headers below zero": b"\0\0\0" + _field(b"k") + _field(b"v") + number(-1),
        "bytes behind the last header": b"\0\0\0" + _field(b"k") + _field(b"v") + number(0) + b"more",
    }
    found = []
    for name, body in long.items():
        for codec, how in ((0, ""), (GZIP, ", by gzip"), (ZSTD, ", by zstd")):
            found.append(Poison(f"record: {name}{how}", made(number(len(body)) + body, codec=codec)))
    return found


def compressed(data: bytes, codec: int, count: int = 1) -> bytearray:
    """Return a batch around bytes that are compressed already."""
    head = HEADER.pack(0, 0, -1, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count)
    return sealed(bytearray(head + data))


def _strange_compression() -> list[Poison]:
    one = record()
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"notes"
    halves = one[:4], one[4:]
    framed = bytes(codecs.snappy_encode(one, xerial_compatible=True))
    return [
        Poison("gzip: many members", compressed(packed(one, GZIP) + packed(b"", GZIP) * 2_000, GZIP)),
        Poison("gzip: two members", compressed(b"".join(packed(half, GZIP) for half in halves), GZIP)),
        Poison("gzip: padding behind", compressed(packed(one, GZIP) + bytes(5_000), GZIP)),
        Poison("gzip: cut off", compressed(packed(one, GZIP)[:-5], GZIP)),
        Poison("gzip: a wrong sum", compressed(packed(one, GZIP)[:-8] + bytes(4) + packed(one, GZIP)[-4:], GZIP)),
        Poison("zstd: two frames", compressed(b"".join(packed(half, ZSTD) for half in halves), ZSTD)),
        Poison("zstd: frames to skip", compressed(skippable * 1_000 + packed(one, ZSTD), ZSTD)),
        Poison(
            "zstd: empty blocks", compressed(b"\x28\xb5\x2f\xfd\0\x58" + bytes(3) * 100_000 + struct.pack("<I", len(one) << 3 | 1)[:3] + one, ZSTD)
        ),
        Poison("zstd: says a size of 1 PiB", compressed(b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 50) + b"\x01\0\0", ZSTD)),
        Poison("zstd: a window of 3 GiB", compressed(b"\x28\xb5\x2f\xfd\0\xb4" + struct.pack("<I", len(one) << 3 | 1)[:3] + one, ZSTD)),
        Poison("snappy: in frames", compressed(framed, SNAPPY)),
        Poison("snappy: says a size of 2 GiB", compressed(b"\xff\xff\xff\xff\x07" + b"\0k", SNAPPY)),
        Poison("lz4: two frames", compressed(b"".join(packed(half, LZ4) for half in halves), LZ4)),
        Poison("lz4: cut off", compressed(packed(one, LZ4)[:-6], LZ4)),
        Poison("lz4: bytes behind", compressed(packed(one, LZ4) + b"more", LZ4)),
        Poison("compressed: nothing", compressed(b"", GZIP)),
    ]


def _crowds() -> list[Poison]:
    small = [record(b"", b"", delta=at) for at in range(20_000)]
    alike = [record(b"k", b"%d" % at, delta=at, time=-at) for at in range(3_000)]
    wide = [record(b"k", b"v", delta=0, time=2**63 - 1), record(b"k", b"v", delta=1, time=-(2**63))]
    return [
        Poison("20,000 records of 8 bytes", made(*small, codec=ZSTD)),
        Poison("3,000 records of one key, each before the last", made(*alike, codec=GZIP)),
        Poison("times that turn around", made(*wide, first=2**63 - 1, highest=2**63 - 1)),
        Poison("a time of deletion", made(record(b"k", None), attributes=0x40)),
        Poison("records, and one that is none, by zstd", made(*alike[:500], number(12) + b"\0\0\0\x7f\x7f\x7f", *alike[501:900], codec=ZSTD)),
    ]


@cache
def poisons() -> tuple[Poison, ...]:
    """Return all of them; the broker refuses some."""
    return (
        *_names(),
        *_headers(),
        *_contents(),
        *_times(),
        *_sizes(),
        *_codecs(),
        *_batches(),
        *_strange_records(),
        *_strange_compression(),
        *_crowds(),
    )
