"""Topics of a log in a test of an app: create, change, write and read them."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from ks_actors._errors import OffsetOutOfRange, UnknownTopicOrPartition
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import Faults
from ks_actors.records import Batch
from ks_actors.records import partition as partition_of
from ks_actors.serdes import NeedsToRead, needs_to_write, reader, writer
from ks_actors.task import is_internal
from ks_actors.testing._topic_serdes import topic_serdes
from ks_actors.testing._topics import TestRecord
from ks_actors.topology import SourceNode, by_name, topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ks_actors.config import StreamsConfig
    from ks_actors.log.embedded import EmbeddedLog
    from ks_actors.serdes import MutableHeaders, Serde, SerdeOrType
    from ks_actors.topology import ByTopic, TopicOrName, Topology


class LogTopics:
    """Create, change, write and read topics, unaffected by the errors injected for the app.

    `version` returns the app's current topology and config, from which the topics get their serdes.
    """

    def __init__(
        self, log: EmbeddedLog, version: Callable[[], tuple[Topology, StreamsConfig]]
    ) -> None:
        self._log: EmbeddedLog = log
        self._version = version

    def create(self, topics: ByTopic[int | NewTopic]) -> None:
        """Create topics. Raises TopicExists, and LogError or ConfigError as Kafka would."""
        for name, each in by_name(topics).items():
            self._log._broker.create_topic(
                each if isinstance(each, NewTopic) else NewTopic(name, each)
            )

    def grow(self, counts: ByTopic[int]) -> None:
        """Give topics more partitions.

        Raises UnknownTopicOrPartition, and LogError for a number that is not larger.
        """
        self._log._broker.create_partitions(by_name(counts))

    def delete(self, names: Sequence[TopicOrName]) -> None:
        """Delete topics. Raises UnknownTopicOrPartition."""
        self._log._broker.delete_topics([topic_name(each) for each in names])

    async def behind(self, versions: Iterable[tuple[Topology, StreamsConfig]]) -> str:
        """Describe a partition with uncommitted records that one of the versions reads.

        Returns an empty string when there is none.
        """
        for topology, config in versions:
            found = await self._behind(topology, config.application_id)
            if found:
                return found
        return ""

    async def _behind(self, topology: Topology, application_id: str) -> str:
        nodes = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
        internal = {f"{application_id}-{name}" for name in topology.internal_topics}
        topics = ({topic for node in nodes for topic in node.topics} | internal) - set(
            topology.global_topics
        )
        patterns = [node.pattern for node in nodes if node.pattern is not None]
        committed = self._log._groups.get(application_id).committed()
        for name, partition in tuple(self._log._broker.partitions.items()):
            matched = any(
                pattern.fullmatch(name.topic) for pattern in patterns
            ) and not is_internal(name.topic, application_id)
            if name.topic in topics or matched:
                if partition.stable < partition.end:
                    return f"{name} has a transaction that is open"
                position = committed[name].offset if name in committed else partition.begin
                if position < partition.end and any(
                    len(batch)
                    for batch in await self.batches(name, position, IsolationLevel.READ_COMMITTED)
                ):
                    return f"{name} has records from offset {position} on"
        return ""

    async def produce(
        self, to: TopicOrName, records: Iterable[TestRecord[Any, Any]], partition: int | None
    ) -> None:
        """Write records; those of one partition are one batch."""
        topic: str = topic_name(to)
        key_serde, value_serde = topic_serdes(*self._version(), to, None, None)
        await needs_to_write(topic, key_serde, value_serde).meet()
        encode_key = encoder(key_serde, topic, is_key=True)
        encode_value = encoder(value_serde, topic, is_key=False)
        size = self._partitions(topic)
        batches: dict[int, Batch] = {}
        for record in records:
            headers = list(record.headers)
            key, value = encode_key(record.key, headers), encode_value(record.value, headers)
            number = (
                partition
                if partition is not None
                else 0
                if key is None
                else partition_of(key, size)
            )
            batch = batches.setdefault(number, Batch([], [], [], []))
            batch.keys.append(key)
            batch.values.append(value)
            batch.timestamps.append(record.timestamp)
            assert batch.headers is not None
            batch.headers.append(tuple(headers))
        producer = await self._log.producer(client_id="harness")
        producer._faults = Faults()
        try:
            await producer.send(
                [
                    Outgoing(TopicPartition(topic, number), batch)
                    for number, batch in batches.items()
                ]
            )
        finally:
            await producer.close()

    async def read(
        self,
        of: TopicOrName,
        key: SerdeOrType[Any] | None,
        value: SerdeOrType[Any] | None,
        isolation: IsolationLevel,
    ) -> list[TestRecord[Any, Any]]:
        """Return all records of a topic, partition by partition."""
        topic: str = topic_name(of)
        key_serde, value_serde = topic_serdes(*self._version(), of, key, value)
        decode_key = decoder(key_serde, topic, is_key=True)
        decode_value = decoder(value_serde, topic, is_key=False)
        needs = NeedsToRead(topic, key_serde, value_serde)
        found: list[TestRecord[Any, Any]] = []
        for number in range(self._partitions(topic)):
            for batch in await self.batches(TopicPartition(topic, number), 0, isolation):
                await needs.meet(batch)
                columns = zip(
                    batch.keys,
                    batch.values,
                    batch.timestamps,
                    batch.headers or repeat(()),
                    strict=False,
                )
                for data, content, timestamp, headers in columns:
                    left = list(headers)
                    read = decode_key(data, left), decode_value(content, left)
                    found.append(TestRecord(*read, timestamp, tuple(left)))
        return found

    async def batches(
        self, partition: TopicPartition, position: int, isolation: IsolationLevel
    ) -> list[Batch]:
        """Return the batches of a partition from a position on."""
        fetcher = self._log.fetcher(client_id="harness", isolation=isolation)
        fetcher._faults = Faults()
        fetcher.assign({partition: position})
        batches: list[Batch] = []
        try:
            while True:
                try:
                    fetched = await fetcher.fetch(max_wait_ms=0)
                except OffsetOutOfRange as error:
                    fetcher.seek(partition, error.begin)
                    continue
                if not fetched:
                    return batches
                batches += [one.batch for one in fetched]
        finally:
            await fetcher.close()

    def _partitions(self, topic: str) -> int:
        found = self._log._broker.topics.get(topic)
        if found is None:
            raise UnknownTopicOrPartition(f"topic {topic!r} does not exist: name it in `topics`")
        return len(found.partitions)


def encoder(
    serde: Serde[Any] | None, topic: str, *, is_key: bool
) -> Callable[[Any, MutableHeaders], bytes | None]:
    """Return the encoder of a topic's keys or values."""
    encode = None if serde is None else writer(serde, topic, is_key=is_key)

    def encoded(value: Any, headers: MutableHeaders) -> bytes | None:
        given = value is None or isinstance(value, bytes)
        data: bytes | None = value if given or encode is None else encode(value, headers)
        return data

    return encoded


def decoder(
    serde: Serde[Any] | None, topic: str, *, is_key: bool
) -> Callable[[bytes | None, MutableHeaders], Any]:
    """Return the decoder of a topic's keys or values."""
    decode = None if serde is None else reader(serde, topic, is_key=is_key)
    return lambda data, headers: data if data is None or decode is None else decode(data, headers)
