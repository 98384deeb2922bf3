"""Offset lookups that concurrent callers share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, final

from ks_actors.log.kafka.wire import OffsetRequest

if TYPE_CHECKING:
    from ks_actors.log.kafka.client._client import KafkaClient

_REPLICA = -1


@final
class Lookups:
    """Look up offsets; one request per broker serves all equal lookups of the same loop iteration.

    An instance that gets tasks looks up the begin and end of each changelog. A broker would answer
    these requests of one connection one by one.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client: KafkaClient = client
        self._waiting: dict[
            tuple[int, int, int], tuple[dict[str, set[int]], asyncio.Task[Any]]
        ] = {}

    async def ask(
        self, node: int, isolation: int, topics: list[tuple[str, list[tuple[int, int]]]]
    ) -> Any:
        """Return the broker's response for partitions, each with its requested time.

        It may include other partitions. Raises the errors of `send`.
        """
        times = {time for _, partitions in topics for _, time in partitions}
        if len(times) != 1:
            return await self._client.send(node, OffsetRequest(_REPLICA, isolation, topics))
        (time,) = times
        key = (node, isolation, time)
        if key not in self._waiting:
            together: dict[str, set[int]] = {}
            # Do not use the loop's task factory: an eager task would begin before other callers
            # can join.
            loop = asyncio.get_running_loop()
            sending = asyncio.Task(
                self._send(*key, together), loop=loop, name=f"look up offsets at broker {node}"
            )
            sending.add_done_callback(_retrieve_error)
            self._waiting[key] = together, sending
        together, sending = self._waiting[key]
        for topic, partitions in topics:
            together.setdefault(topic, set()).update(partition for partition, _ in partitions)
        return await asyncio.shield(sending)

    async def _send(self, node: int, isolation: int, time: int, topics: dict[str, set[int]]) -> Any:
        # A new task runs after all callbacks that were ready, so equal lookups have joined by now.
        del self._waiting[node, isolation, time]
        asked = [
            (topic, [(partition, time) for partition in sorted(partitions)])
            for topic, partitions in topics.items()
        ]
        return await self._client.send(node, OffsetRequest(_REPLICA, isolation, asked))


def _retrieve_error(sent: asyncio.Task[Any]) -> None:
    """Retrieve the exception: if every caller was cancelled, asyncio would log it."""
    if not sent.cancelled():
        sent.exception()
