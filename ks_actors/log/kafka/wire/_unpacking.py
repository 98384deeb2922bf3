"""Decompress record batches in threads before they are read, to keep the event loop free."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors.log.kafka.wire._batch_header import BEHIND_LENGTH, CODEC, HEADER, MAGIC, checksum
from ks_actors.log.kafka.wire._decompression import MAX_DECOMPRESSED
from ks_actors.log.kafka.wire._record_reader import body_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from ks_actors.log.kafka.consumer import PartitionReader
    from ks_actors.log.kafka.wire._batch_reader import Chunk
    from ks_actors.log.kafka.wire._record_reader import Body

# The most compressed bytes of one fetch of a partition to decompress while reading; that takes a
# few ms.
LITTLE: Final = 65_536
# Compressed bytes (or one batch) that a thread decompresses in one step. Each partition has one
# such piece to read, and the next one.
PIECE: Final = 262_144
# Decompressed bytes after which a step ends too: a few bytes may become many.
_GROWN: Final = 33_554_432
_log = logging.getLogger("ks_actors")
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22


class Unpacked(NamedTuple):
    """Decompressed batches by their start, and the start of the next one; None at the end."""

    bodies: Mapping[int, Body]
    behind: int | None


def is_packed(raw: bytes, at: int) -> bool:
    """Tell whether the batch at `at` is compressed.

    Formats before Kafka 0.11 count as not compressed.
    """
    return raw[at + _MAGIC_AT] >= MAGIC and bool(raw[at + _ATTRIBUTES_AT] & CODEC)


def unpacked(raw: bytes, at: int, limit: int = MAX_DECOMPRESSED) -> Unpacked:
    """Decompress the next piece, from the batch at `at` on; any thread may call it.

    A batch that cannot be decompressed, or exceeds `limit` bytes, is left as it is: its reader gets
    the error in its turn.
    """
    bodies: dict[int, Body] = {}
    size = grown = 0
    while len(raw) - at >= HEADER.size:
        if size >= PIECE or grown >= _GROWN:
            return Unpacked(bodies, at)
        following = at + BEHIND_LENGTH + int(_LENGTH.unpack_from(raw, at + _LENGTH_AT)[0])
        if following > len(raw):
            break
        if is_packed(raw, at):
            size += following - at
            body = _body(memoryview(raw)[at:following], limit)
            if body is not None:
                bodies[at] = body
                grown += body.size
        at = following
    return Unpacked(bodies, None)


def _body(stored: memoryview, limit: int) -> Body | None:
    base, _, _, _, expected, attributes, _, first_time, highest_time, *_ = HEADER.unpack_from(
        stored
    )
    if checksum(stored) != expected:
        return None
    try:
        return body_of(stored, attributes, base, first_time, highest_time, limit)
    except Exception:  # noqa: BLE001 - each library has its own errors; the reader raises it again
        return None


@final
class Unpacking:
    """Decompress the next batches of partitions in threads.

    Each partition has one piece to read and the one after it. A result that a seek or the end has
    made obsolete is dropped once its thread is done. `begin` runs a coroutine that ends with the
    fetcher; `on_records` is called with a partition that is readable again.
    """

    def __init__(
        self,
        begin: Callable[[Coroutine[Any, Any, None]], None],
        on_records: Callable[[PartitionReader], None],
    ) -> None:
        self._begin: Callable[[Coroutine[Any, Any, None]], None] = begin
        self._on_records: Callable[[PartitionReader], None] = on_records

    def look(self, source: PartitionReader) -> None:
        """Start decompressing a partition's next piece, unless that is under way."""
        for chunk in source.chunks:
            if chunk.unpacking:
                return
            if chunk.wants_unpacking:
                chunk.unpacking = True
                self._begin(self._unpack(source, chunk))
                return
            if chunk.packed:
                return

    async def _unpack(self, source: PartitionReader, chunk: Chunk) -> None:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                None, partial(unpacked, chunk.raw, chunk.unpacked_to, chunk.limit)
            )
        except Exception as error:  # noqa: BLE001 - without thread or memory, the reader does it
            _log.warning(
                "%s: records are decompressed on the event loop, because a thread could not do "
                "it: %r",
                source.partition,
                error,
            )
            found = Unpacked({}, None)
        chunk.take(found)
        if chunk in source.chunks:
            self.look(source)
            if source.ready:
                self._on_records(source)
