"""Encode columns into record batches."""

from __future__ import annotations

import struct
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors._errors import ConfigError, RecordTooLarge
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.log.kafka._aiokafka import DefaultRecordBatchBuilder, codec
from ks_actors.log.kafka.wire._batch_header import (
    ATTRIBUTES_AT,
    BEHIND_LENGTH,
    CODECS,
    HEADER,
    MAGIC,
    TRANSACTIONAL,
    checksum,
)
from ks_actors.records import Batch, LazyBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.log.kafka.client import KafkaOptions

_LENGTH_AT = 8
_CRC_AT = 17
_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qhi")
# Level 9, aiokafka's choice, is three times as slow as level 1, for hardly fewer bytes.
_LZ4_LEVEL = 1
_NO_HEADERS: list[Any] = []
# Approximate seconds to compress one byte; most explicit compression levels are slower.
_SECONDS_PER_BYTE: Final = {"none": 0.0, "gzip": 80e-9, "snappy": 3e-9, "lz4": 3e-9, "zstd": 5e-9}
# The most bytes that a batch of one record adds to its key, value and headers; also the most bytes
# that each header adds to its name and value.
_ALONE: Final = HEADER.size + 60
_VARINTS: Final = 10


class Written(NamedTuple):
    """Encoded records, not compressed yet.

    `start` is the index of the first record in its batch, `limit` the topic's size limit.
    """

    buffer: bytearray
    records: int
    start: int
    limit: int


@final
class RecordBatch:
    """Records sent to a partition as one unit; `stamped` adds the producer's identity."""

    __slots__ = ("_buffer", "_stamped", "count", "size")

    def __init__(self, buffer: bytearray, count: int) -> None:
        self._buffer: bytearray = buffer
        self._stamped = False
        self.count: int = count
        self.size: int = len(buffer)

    def stamped(self, producer_id: int, epoch: int, sequence: int) -> bytearray:
        """Return the bytes to send for a producer.

        `sequence` is the sequence number of the first record in its partition.
        """
        # Copy for each further attempt: a broken connection may still hold the earlier bytes.
        buffer = self._buffer[:] if self._stamped else self._buffer
        self._stamped = True
        _PRODUCER.pack_into(buffer, _PRODUCER_AT, producer_id, epoch, sequence)
        _sign(buffer)
        return buffer


def _sign(buffer: bytearray) -> None:
    struct.pack_into(">I", buffer, _CRC_AT, checksum(buffer))


@final
class Encoder:
    """Build record batches with the given options."""

    def __init__(self, options: KafkaOptions, *, transactional: bool) -> None:
        self._transactional: bool = transactional
        self._codec: int = CODECS.index(options.compression)
        self._compress: Callable[[bytes], bytes] | None = _compressor(options)
        self._batch_bytes: int = options.batch_bytes
        self._seconds_per_byte: float = _SECONDS_PER_BYTE[
            "gzip" if options.compression_level else options.compression
        ]

    def encode(self, batch: Batch, limit: int) -> list[RecordBatch]:
        """Return all records in as few batches as possible; `limit` is the topic's size limit.

        Raises RecordTooLarge if a single record exceeds the limit, and TypeError for keys and
        values that are not bytes.
        """
        return [self.finish(written) for written in self.write(batch, limit)]

    def write(self, batch: Batch, limit: int) -> Iterator[Written]:
        """Yield all records in as few unfinished pieces as possible.

        Raises TypeError as `encode` does.
        """
        start, total = 0, len(batch)
        size = min(self._batch_bytes, limit)
        while start < total:
            buffer, count = self._write(batch, start, size)
            yield Written(buffer, count, start, limit)
            start += count

    def seconds(self, size: int) -> float:
        """Return about how many seconds `finish` takes for `size` bytes.

        Any thread may call `finish`.
        """
        return size * self._seconds_per_byte

    def _write(self, batch: Batch, start: int, size: int) -> tuple[bytearray, int]:
        """Return an uncompressed batch of the records from `start` on, and its record count."""
        if isinstance(batch, LazyBatch):
            buffer, count, first, highest = batch.write(start, size, HEADER.size)
        elif not HAS_KERNEL or type(batch.keys) is not list or type(batch.values) is not list:
            return self._write_one_by_one(batch, start, size)
        else:
            try:
                buffer, count, first, highest = _kernel.write_records(
                    batch.keys,
                    batch.values,
                    batch.timestamps,
                    batch.headers,
                    start,
                    size,
                    HEADER.size,
                )
            except TypeError:
                # aiokafka accepts some more types, and has better error messages for all others.
                return self._write_one_by_one(batch, start, size)
        attributes = TRANSACTIONAL if self._transactional else 0
        HEADER.pack_into(
            buffer,
            0,
            0,
            len(buffer) - BEHIND_LENGTH,
            -1,
            MAGIC,
            0,
            attributes,
            count - 1,
            first,
            highest,
            -1,
            -1,
            -1,
            count,
        )
        return buffer, count

    def _write_one_by_one(self, batch: Batch, start: int, size: int) -> tuple[bytearray, int]:
        builder: Any = DefaultRecordBatchBuilder(MAGIC, 0, self._transactional, -1, -1, -1, size)
        total = len(batch)
        keys, values, timestamps = (
            batch.keys[start:],
            batch.values[start:],
            batch.timestamps[start:],
        )
        headers = (
            repeat(_NO_HEADERS) if batch.headers is None else list(map(list, batch.headers[start:]))
        )
        numbers = iter(range(total - start))
        # The builder returns None for the first record that no longer fits.
        complete = all(map(builder.append, numbers, timestamps, keys, values, headers))
        return builder.build(), total - start if complete else total - start - length_hint(
            numbers
        ) - 1

    def too_large(self, batch: Batch, limit: int) -> list[int]:
        """Return the indexes of records that exceed the limit even in a batch of their own."""
        found: list[int] = []
        if isinstance(batch, LazyBatch):  # each slice would be looked for from the first record on
            batch = Batch(batch.keys, batch.values, batch.timestamps)
        for index in range(len(batch)):
            one = batch.slice(index, index + 1)
            headers = (
                0
                if one.headers is None
                else sum(len(name) + len(value or b"") + _VARINTS for name, value in one.headers[0])
            )
            # Encode records near or above the limit, as compression may shrink them and framing
            # adds a little. Records far below the limit certainly fit.
            if len(one.keys[0] or b"") + len(one.values[0] or b"") + headers + _ALONE > limit:
                try:
                    self.encode(one, limit)
                except RecordTooLarge:
                    found.append(index)
        return found

    def finish(self, written: Written) -> RecordBatch:
        """Compress a piece, if the options ask for it. Raises RecordTooLarge."""
        buffer, count, start, limit = written
        compress = self._compress
        if compress is not None:
            packed = compress(bytes(memoryview(buffer)[HEADER.size :]))
            if len(packed) < len(buffer) - HEADER.size:
                buffer[HEADER.size :] = packed
                buffer[ATTRIBUTES_AT + 1] |= self._codec
                struct.pack_into(">i", buffer, _LENGTH_AT, len(buffer) - BEHIND_LENGTH)
        done = RecordBatch(buffer, count)
        if done.size > limit:
            raise RecordTooLarge(
                f"record {start} of the batch takes {done.size} bytes with its header, and "
                f"max.message.bytes of the topic is {limit}: raise that, or write smaller records"
            )
        return done


def _compressor(options: KafkaOptions) -> Callable[[bytes], bytes] | None:
    name, level = options.compression, options.compression_level
    if name == "none":
        return None
    if not getattr(codec, f"has_{name}")():
        raise ConfigError(
            f"compression is {name!r}, which needs the package cramjam: install it, or use 'gzip' "
            "or 'none'"
        )
    encode: Callable[..., bytes] = getattr(codec, f"{name}_encode")
    if name == "lz4":
        return lambda data: encode(data, level=_LZ4_LEVEL if level is None else level)
    if name == "zstd":
        return lambda data: encode(data, level=level)
    return encode
