"""The common part of coordinators of groups and of transactional ids: a partition has their state, and its leader speaks for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.broker import Broker

LOADING: Final = 14
NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16


@dataclass
class Shard:
    """The part of the state that a broker has read: it speaks for it from `loaded_at` on. `busy` has the keys of which a change is being written."""

    partition: TopicPartition
    loaded_at: float
    busy: set[str] = field(default_factory=set)
    # Groups, as their coordinator has them in memory.
    live: dict[str, Any] = field(default_factory=dict)

    def end(self) -> None:
        """Speak for nothing any more."""
        for each in self.live.values():
            each.end()


def hash_of(text: str) -> int:
    """Return what Java's `String.hashCode` does, without its sign."""
    found = 0
    for character in text:
        found = (31 * found + ord(character)) & 0xFFFFFFFF
    return min(found, (1 << 32) - found) % (1 << 31)


def shard_of(broker: Broker, topic: str, key: str) -> tuple[int, Shard | None]:
    """Return the shard of a key, or the error code of a broker that has it not, or not yet."""
    image = broker.image.topics.get(topic)
    if image is None:
        return NOT_AVAILABLE, None
    partition = TopicPartition(topic, hash_of(key) % len(image.partitions))
    shard: Shard | None = broker.shards.get(partition)
    if partition not in broker.led or shard is None:
        return NOT_COORDINATOR, None
    if asyncio.get_running_loop().time() < shard.loaded_at:
        return LOADING, None
    return 0, shard


async def write(broker: Broker, shard: Shard, change: Callable[[], object]) -> int:
    """Write a change of the state; return an error code, 0 when it is written.

    A broker that ends, or is cut off, may or may not have written it.
    """
    manners, random = broker.cluster.manners, broker.cluster.random
    await asyncio.sleep(manners.replication * random.random())
    if broker.shards.get(shard.partition) is not shard:
        return NOT_COORDINATOR
    truth, led = broker.cluster.partition(shard.partition), broker.led[shard.partition]
    if not broker.connected or truth is None or truth.log is not led.log:
        # Its followers are elsewhere: what it writes is never replicated.
        await asyncio.sleep(0.5 + 4 * random.random())
        return NOT_AVAILABLE
    change()
    await asyncio.sleep(manners.replication * random.random())
    # Written, though who asks is not told so.
    return 0 if broker.shards.get(shard.partition) is shard else NOT_COORDINATOR
