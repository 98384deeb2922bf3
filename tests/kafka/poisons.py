"""Records and batches byte by byte, as no client would write them, and a list of such that a broker may take."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import codec as codecs  # type: ignore[import-untyped]

from ks_actors.log.kafka._format import HEADER, checksum

if TYPE_CHECKING:
    from collections.abc import Sequence

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LIMIT = 4 << 20
"""What batches may become where these are read."""
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
    """Set length and checksum to what the rest is."""
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
    headers = made(record(b"k", b"v", headers=[(b"", None)] * 2_500_000), codec=ZSTD)
    return [*found, Poison("bomb of headers", headers), Poison("bomb: 64 MiB", made(record(b"k", bytes(64 << 20)), codec=ZSTD))]


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


@cache
def poisons() -> tuple[Poison, ...]:
    """Return all of them; the broker refuses some."""
    return (*_names(), *_headers(), *_contents(), *_times(), *_sizes(), *_codecs(), *_batches())
