"""Decompress record batches in threads before they are read, to keep the event loop free."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, final

from ks_actors.lifecycle import component_log
from ks_actors.log.kafka.wire import Unpacked, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor

    from ks_actors.log.kafka.consumer._partition_reader import PartitionReader
    from ks_actors.log.kafka.wire import Chunk

_log = component_log(__name__)


@final
class Unpacking:
    """Decompress the next batches of partitions in threads.

    Each partition has one piece to read and the one after it. A result that a seek or the end has
    made obsolete is dropped once its thread is done. `begin` runs a coroutine that ends with the
    fetcher; `threads` are the client's, as the loop's default executor is the user's.
    """

    def __init__(
        self, begin: Callable[[Coroutine[Any, Any, None]], None], threads: Executor | None
    ) -> None:
        self._begin: Callable[[Coroutine[Any, Any, None]], None] = begin
        self._threads: Executor | None = threads

    def start_next(self, source: PartitionReader) -> None:
        """Start decompressing a partition's next piece, if one is due."""
        chunk = source.to_unpack
        if chunk is not None:
            chunk.unpacking = True
            self._begin(self._unpack(source, chunk))

    async def _unpack(self, source: PartitionReader, chunk: Chunk) -> None:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._threads, partial(unpacked, chunk.raw, chunk.unpacked_to, chunk.limit)
            )
        except Exception as error:  # noqa: BLE001 - without thread or memory, the reader does it
            _log.warning(
                "%s: records are decompressed on the event loop, because a thread could not do "
                "it: %r",
                source.partition,
                error,
            )
            found = Unpacked({}, None)
        source.take(chunk, found)
