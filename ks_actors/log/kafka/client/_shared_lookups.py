"""Offsets that several ask for at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, final

from ks_actors.log.kafka.wire import OffsetRequest

if TYPE_CHECKING:
    from ks_actors.log.kafka.client._client import KafkaClient

_REPLICA = -1


@final
class Lookups:
    """Ask brokers for offsets, by one request for all who ask the same broker for the same in the same turn of the loop.

    An instance that gets tasks asks where each one's changelogs begin and end, and a broker answers the requests of a connection one by one.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client: KafkaClient = client
        self._waiting: dict[tuple[int, int, int], tuple[dict[str, set[int]], asyncio.Task[Any]]] = {}

    async def ask(self, node: int, isolation: int, topics: list[tuple[str, list[tuple[int, int]]]]) -> Any:
        """Return the answer about partitions, each with the time it is asked for, and maybe about others, too. Raises what `send` raises."""
        times = {time for _, partitions in topics for _, time in partitions}
        if len(times) != 1:
            return await self._client.send(node, OffsetRequest(_REPLICA, isolation, topics))
        (time,) = times
        key = (node, isolation, time)
        if key not in self._waiting:
            together: dict[str, set[int]] = {}
            sending = asyncio.create_task(self._send(*key, together), name=f"look up offsets at broker {node}")
            sending.add_done_callback(_look)
            self._waiting[key] = together, sending
        together, sending = self._waiting[key]
        for topic, partitions in topics:
            together.setdefault(topic, set()).update(partition for partition, _ in partitions)
        return await asyncio.shield(sending)

    async def _send(self, node: int, isolation: int, time: int, topics: dict[str, set[int]]) -> Any:
        # A task begins after all that was ready when it was made: who asks the same has done so.
        del self._waiting[node, isolation, time]
        asked = [(topic, [(partition, time) for partition in sorted(partitions)]) for topic, partitions in topics.items()]
        return await self._client.send(node, OffsetRequest(_REPLICA, isolation, asked))


def _look(sent: asyncio.Task[Any]) -> None:
    """Look at what it has come to, as all who asked may have gone."""
    if not sent.cancelled():
        sent.exception()
