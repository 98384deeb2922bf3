"""Compressed record batches that are decompressed elsewhere, before somebody reads them: long work must not hold up the event loop."""

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

    from ks_actors.log.kafka.consumer import Source
    from ks_actors.log.kafka.wire._batch_reader import Chunk
    from ks_actors.log.kafka.wire._record_reader import Body

# Compressed bytes of one fetch of a partition that are decompressed in some ms at most, and so where they are read.
LITTLE: Final = 65_536
# Compressed bytes that a thread decompresses before they can be read, or one batch: for each partition there are so many, and the next ones.
PIECE: Final = 262_144
# Decompressed bytes after which it pauses likewise: a few bytes may become many.
_GROWN: Final = 33_554_432
_log = logging.getLogger("ks_actors")
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22


class Unpacked(NamedTuple):
    """Batches that are decompressed, by where they begin, and where that has got to; None when it is the end."""

    bodies: Mapping[int, Body]
    behind: int | None


def is_packed(raw: bytes, at: int) -> bool:
    """Return whether the batch that begins there is compressed. Batches of the formats before Kafka 0.11 are not looked at."""
    return raw[at + _MAGIC_AT] >= MAGIC and bool(raw[at + _ATTRIBUTES_AT] & CODEC)


def unpacked(raw: bytes, at: int, limit: int = MAX_DECOMPRESSED) -> Unpacked:
    """Decompress the next piece, from a batch that begins at `at` on; from any thread.

    A batch that cannot be decompressed, or becomes more than `limit` bytes, is left as it is: who reads it finds that out, at its turn.
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
    base, _, _, _, expected, attributes, _, first_time, highest_time, *_ = HEADER.unpack_from(stored)
    if checksum(stored) != expected:
        return None
    try:
        return body_of(stored, attributes, base, first_time, highest_time, limit)
    except Exception:  # noqa: BLE001 - of the libraries, each has its own: it is raised again where the batch is read
        return None


@final
class Unpacking:
    """Have threads decompress what partitions are about to read: a piece that is read, and the one behind it while that is done.

    What a seek, or the end, has made void meanwhile is dropped when its thread is done with it. `begin` runs something that ends with the fetcher,
    `news` is told of a partition that can be read again.
    """

    def __init__(self, begin: Callable[[Coroutine[Any, Any, None]], None], news: Callable[[Source], None]) -> None:
        self._begin: Callable[[Coroutine[Any, Any, None]], None] = begin
        self._on_news: Callable[[Source], None] = news

    def look(self, source: Source) -> None:
        """See that a partition's next piece is decompressed, or about to be."""
        for chunk in source.chunks:
            if chunk.unpacking:
                return
            if chunk.wants_unpacking:
                chunk.unpacking = True
                self._begin(self._unpack(source, chunk))
                return
            if chunk.packed:
                return

    async def _unpack(self, source: Source, chunk: Chunk) -> None:
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, partial(unpacked, chunk.raw, chunk.unpacked_to, chunk.limit))
        except Exception as error:  # noqa: BLE001 - there is no thread, or no memory: it is done where it is read, which tells if it cannot be
            _log.warning("%s: records are decompressed on the event loop, as a thread could not do it: %r", source.partition, error)
            found = Unpacked({}, None)
        chunk.take(found)
        if chunk in source.chunks:
            self.look(source)
            if source.ready:
                self._on_news(source)
