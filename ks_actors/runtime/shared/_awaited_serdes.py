"""Await what serdes require, such as schemas of a registry, before the start and before records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors.serdes import (
    Needs,
    NeedsToRead,
    collecting,
    is_complete,
    reader,
    with_default,
    wraps_key,
    writer,
)
from ks_actors.system import Later, is_loaded
from ks_actors.topology import SinkNode, SourceNode, StoreKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ks_actors.log import Fetched, Fetcher
    from ks_actors.records import TopicPartition
    from ks_actors.serdes import Serde
    from ks_actors.task import AppTopics

if TYPE_CHECKING:
    from ks_actors.processors import foreign_keys
else:
    foreign_keys = Later("ks_actors.processors.foreign_keys")


@final
class AwaitedSerdes:
    """Await async jobs that serdes require, so that serdes never wait in the middle of records.

    `prepare` makes the functions of all serdes of the topology once, for their topics, and awaits
    the jobs that these functions request. `learn` awaits jobs for records before they are decoded,
    because records may have new schema ids.
    """

    def __init__(self, topics: AppTopics) -> None:
        self._topics = topics
        self._needs = Needs()
        self._reads: dict[str, NeedsToRead] = {}
        self._any = False

    async def prepare(self) -> None:
        """Await the jobs that all serdes require before the start. Raises RegistryError."""
        self._any = any(map(_waits, (*self._uses(), *self._patterns())))
        if not self._any:
            return
        with collecting(self._needs):
            for use in self._uses():
                if use.writes:
                    writer(use.serde, use.topic, is_key=use.is_key)
                reader(use.serde, use.topic, is_key=use.is_key)
        await self._needs.meet()

    async def learn(self, fetched: Iterable[Fetched]) -> None:
        """Await the jobs that serdes require for these records. Raises RegistryError."""
        for one in fetched:
            self._needs_of(one.partition.topic).note(one.batch)
        await self._needs.meet()

    def fetcher(self, inner: Fetcher) -> Fetcher:
        """Return a fetcher that returns records when they can be decoded."""
        return _LearningFetcher(inner, self) if self._any else inner

    def _needs_of(self, topic: str) -> NeedsToRead:
        found = self._reads.get(topic)
        if found is None:
            serdes = {use.is_key: use.serde for use in self._uses() if use.topic == topic}
            found = NeedsToRead(topic, serdes.get(True), serdes.get(False), self._needs)
            self._reads[topic] = found
        return found

    def _patterns(self) -> Iterator[_Use]:
        """Yield the serdes of topics that will be matched, with the pattern as topic."""
        for node in self._topics.topology.nodes.values():
            if isinstance(node, SourceNode) and node.pattern is not None:
                yield from self._pair(node.key, node.value, node.pattern.pattern, writes=False)

    def _uses(self) -> Iterator[_Use]:
        app = self._topics
        topology = app.topology
        for node in topology.nodes.values():
            if isinstance(node, SourceNode):
                topics = node.topics or [
                    topic for topic in app.matched if app.source_of(topic) is node
                ]
                for topic in topics:
                    yield from self._pair(node.key, node.value, app.topic(topic), writes=False)
            elif isinstance(node, SinkNode):
                if isinstance(node.topic, str):
                    topic = app.topic(node.topic)
                    yield from self._pair(node.key, node.value, topic, writes=True)
            elif is_loaded(foreign_keys) and isinstance(
                node.operator, foreign_keys.SubscriptionSend
            ):
                for serde, name, is_key in node.operator.embedded_serdes():
                    if (known := self._known(serde, is_key=is_key)) is not None:
                        topic = f"{app.config.application_id}-{name}"
                        yield _Use(known, topic, is_key=is_key, writes=True)
        for name, spec in {**topology.stores, **topology.global_stores}.items():
            if spec.kind is not StoreKind.CUSTOM:
                topic = spec.source_topic or app.changelog(name)
                yield from self._pair(spec.key, spec.value, topic, writes=True)

    def _pair(self, key: Any, value: Any, topic: str, *, writes: bool) -> Iterator[_Use]:
        for serde, is_key in ((key, True), (value, False)):
            if (known := self._known(serde, is_key=is_key)) is not None:
                yield _Use(known, topic, is_key=is_key, writes=writes)

    def _known(self, serde: Any, *, is_key: bool) -> Serde[Any] | None:
        """Return a serde completed by the app's default serdes; None if a part is missing."""
        config = self._topics.config
        of_key = is_key or wraps_key(serde)
        found = with_default(
            serde, config.default_key_serde if of_key else config.default_value_serde
        )
        return found if is_complete(found) else None


class _Use(NamedTuple):
    """A serde of the keys or values of a topic; it reads them, and may write them."""

    serde: Serde[Any]
    topic: str
    is_key: bool
    writes: bool


def _waits(use: _Use) -> bool:
    """Return whether a serde, or a serde within it, may have to wait."""
    needs = Needs()
    with collecting(needs):
        use.serde.deserializer(use.topic, is_key=use.is_key)
    return needs.touched > 0


@final
class _LearningFetcher:
    """A fetcher that waits until the serdes can read its records."""

    def __init__(self, inner: Fetcher, serdes: AwaitedSerdes) -> None:
        self._inner = inner
        self._serdes = serdes
        # Partitions with fetched records that wait, and the next offset after these records.
        self._waiting: dict[TopicPartition, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets."""
        self._waiting = {one: at for one, at in self._waiting.items() if positions.get(one) == at}
        self._inner.assign(positions)

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Continue from `offset`; waiting records of the partition are dropped."""
        self._waiting.pop(partition, None)
        self._inner.seek(partition, offset)

    def position(self, partition: TopicPartition, /) -> int:
        """Return the next offset to read from the partition."""
        return self._inner.position(partition)

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        """Leave partitions out of fetches until `resume`."""
        self._inner.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        """Fetch partitions again."""
        self._inner.resume(partitions)

    def describe(self, partition: TopicPartition, /) -> str:
        """Return the state of a partition's fetches in one line."""
        return self._inner.describe(partition)

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        """Return records when the serdes can read them; an error fetches them again."""
        fetched = await self._inner.fetch(max_wait_ms=max_wait_ms, max_records=max_records)
        self._waiting = {one.partition: one.next_offset for one in fetched}
        try:
            await self._serdes.learn(fetched)
        except BaseException:
            for one in reversed(fetched):
                if one.partition in self._waiting and one.batch.offsets:
                    self._inner.seek(one.partition, one.batch.offsets[0])
            raise
        return [one for one in fetched if one.partition in self._waiting]

    async def close(self) -> None:
        """Close the inner fetcher."""
        await self._inner.close()
