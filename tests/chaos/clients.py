"""The requests of the tester to Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple, final

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]

from tests.chaos.feed import number_in

_SILENCE_S = 30
_TURN_S = 0.1


class Trouble(Exception):
    """Something is wrong with the broker or with the tester itself, not with the app."""


class Record(NamedTuple):
    """A record as it is in a topic; `number` is that of the input record that it tells of."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    number: int | None


@final
class Clients:
    """Topics, offsets, and all records of a topic. Nothing is kept open: the broker may go away between two calls."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics that forget nothing, and wait until they can be used."""
        admin = await self._admin()
        try:
            wanted = [NewTopic(name, partitions, 1, topic_configs={"retention.ms": "-1"}) for name, partitions in topics.items()]
            for name, code, why in (await admin.create_topics(wanted)).topic_errors:
                if code:
                    raise Trouble(f"topic {name} was not created: {why}")
            begun = monotonic()
            while any(part["leader"] < 0 for topic in await admin.describe_topics(list(topics)) for part in topic["partitions"]):
                if monotonic() - begun > _SILENCE_S:
                    raise Trouble(f"{', '.join(topics)} have no leaders")
                await asyncio.sleep(_TURN_S)
        finally:
            await admin.close()

    async def _admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, request_timeout_ms=10_000)
        await admin.start()
        return admin

    async def partitions(self, topic: str) -> int:
        """Return how many a topic has; 0 when it does not exist."""
        admin = await self._admin()
        try:
            if topic not in await admin.list_topics():
                return 0
            (found,) = await admin.describe_topics([topic])
            return len(found["partitions"])
        finally:
            await admin.close()

    async def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """Return the offsets of a group; those of open transactions do not count yet."""
        admin = await self._admin()
        try:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            found = await admin.list_consumer_group_offsets(group, partitions=wanted)
            return [max(0, found[each].offset) for each in wanted]
        finally:
            await admin.close()

    async def ends(self, topic: str, partitions: int, *, committed: bool = False) -> list[int]:
        """Return the offsets behind the last record, or behind the last one that is decided about."""
        consumer = await self._consumer(committed=committed)
        try:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            found = await consumer.end_offsets(wanted)
            return [found[each] for each in wanted]
        finally:
            await consumer.stop()

    async def _consumer(self, *, committed: bool) -> Any:
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, isolation_level=isolation, auto_offset_reset="earliest", enable_auto_commit=False,
            request_timeout_ms=10_000,
        )  # fmt: skip
        await consumer.start()
        return consumer

    async def read(self, topic: str, partitions: int, *, committed: bool) -> list[Record]:
        """Return all records of a topic, in order per partition."""
        consumer = await self._consumer(committed=committed)
        try:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            ends = await consumer.end_offsets(wanted)
            consumer.assign(wanted)
            await consumer.seek_to_beginning(*wanted)
            found: list[Record] = []
            heard = monotonic()
            while [each for each in wanted if await consumer.position(each) < ends[each]]:
                batches = await consumer.getmany(timeout_ms=200)
                if batches:
                    heard = monotonic()
                elif monotonic() - heard > _SILENCE_S:
                    raise Trouble(f"reading {topic}: nothing for {_SILENCE_S} s")
                for partition, records in batches.items():
                    found += [Record(partition.partition, each.offset, each.key, each.value, number_in(each.headers)) for each in records]
            return found
        finally:
            await consumer.stop()
