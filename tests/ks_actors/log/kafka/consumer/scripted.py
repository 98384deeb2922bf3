"""A broker in memory and in virtual time that is asked for records, with sessions as Kafka has them (KIP-227).

Requests and responses go through aiokafka's description of the wire, so what is written here is read by somebody else, and the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final, TypeVar, cast

from actors.testing import VirtualLoop
from ks_actors.log import TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client import LeaderEpochs
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._outages import Outages
from ks_actors.log.kafka.consumer._fetcher import KafkaFetcher
from ks_actors.log.kafka.wire._fetch_request import FetchResponse
from tests.ks_actors.log.kafka.consumer.fetch_schemas import FetchRequestV12, FetchResponseV12, topics_of
from tests.ks_actors.log.kafka.wire.test_record_reader import stored

T = TypeVar("T")
# The offset behind a batch, and its bytes.
Entry = tuple[int, bytes]
NOT_FOUND, INVALID_EPOCH = 70, 71
FULL: Final = (0, -1)
WAY_S: Final = 0.001


@dataclass
class Session:
    epoch: int
    # Where each partition is read from, in the order of their turns, and the end of it that was told last.
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    told: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """A request as the broker had it: `partitions` are all those that it was to answer for."""

    at: float
    channel: str
    wait_ms: int
    max_bytes: int
    session: tuple[int, int]
    asked: dict[TopicPartition, int]
    forgotten: list[TopicPartition]
    partitions: dict[TopicPartition, int]


class ScriptedBroker:
    """Takes the place of a client; leads all partitions. `slots` is how many sessions there may be, `faults` is raised or answered first."""

    def __init__(self, options: KafkaOptions | None = None, *, slots: int = 10, node: int = 1) -> None:
        self.options = options or KafkaOptions()
        self.epochs = LeaderEpochs()
        self.outages = Outages()
        self.seen: list[Seen] = []
        self.answered: list[list[TopicPartition]] = []
        self.faults: list[Exception | int] = []
        self.sessions: dict[int, Session] = {}
        self.slots = slots
        self.node = node
        self._made = 0
        self._logs: dict[TopicPartition, list[Entry]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._busy: set[str] = set()

    # --- as a client ------------------------------------------------------------------------------------------------------

    def leader(self, _: TopicPartition) -> int:
        return self.node

    async def refresh(self, _: Iterable[str] = ()) -> None:
        """Find out nothing new."""

    def disconnect(self, _: str) -> None:
        """Have nothing to close."""

    def name_channel(self, _channel: str, _client_id: str | None) -> None:
        """Have no names."""

    # Threads of the loop decompress.
    threads = None

    def watch_leaders(self, _: Callable[[], object]) -> Callable[[], None]:
        """Lead all partitions for ever."""
        return lambda: None

    def watch_late(self, _: Callable[[], object]) -> Callable[[], None]:
        """Answer in time."""
        return lambda: None

    async def send(self, _node: int, request: Any, *, channel: str = "", **_: object) -> FetchResponse:
        assert channel not in self._busy, "a broker reads the next request of a connection when it has answered the last one"
        self._busy.add(channel)
        try:
            await asyncio.sleep(WAY_S)
            response = await self._answer(FetchRequestV12.decode(BytesIO(request.prepare({1: (4, 18)}).encode())), channel)
            await asyncio.sleep(WAY_S)
            return FetchResponse.decode(BytesIO(response.encode()))
        finally:
            self._busy.discard(channel)

    # --- as a broker ------------------------------------------------------------------------------------------------------

    def append(self, partition: TopicPartition, *values: bytes, codec: int = 0) -> None:
        """Write a batch of records, compressed by the codec of that number."""
        end = self._ends.get(partition, 0)
        self._logs.setdefault(partition, []).append((end + len(values), stored(end, *values, codec=codec)))
        self._ends[partition] = end + len(values)
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    def end(self, partition: TopicPartition) -> int:
        return self._ends.get(partition, 0)

    def restart(self) -> None:
        """Forget all sessions."""
        self.sessions.clear()

    async def _answer(self, request: Any, channel: str) -> Any:
        asked = {TopicPartition(topic, number): offset for topic, entries, _ in request.topics for number, _, offset, *_ in entries}
        forgotten = [TopicPartition(topic, number) for topic, numbers, _ in request.forgotten_topics_data for number in numbers]
        fault: Exception | int = self.faults.pop(0) if self.faults else 0
        if isinstance(fault, Exception):
            raise fault
        key = (request.session_id, request.session_epoch)
        code, number, session = (fault, 0, Session(0)) if fault else self._find(*key, asked, forgotten)
        now = asyncio.get_running_loop().time()
        self.seen.append(Seen(now, channel, request.max_wait_time, request.max_bytes, key, asked, forgotten, dict(session.positions)))
        if code:
            return FetchResponseV12(0, code, 0, [], {})
        found = await self._wait(session, request)
        partial = request.session_epoch not in FULL
        topics: dict[str, list[Any]] = {}
        for partition, raw in found.items():
            end = self.end(partition)
            if raw or not partial or session.told.get(partition) != end:
                session.told[partition] = end
                topics.setdefault(partition.topic, []).append((partition.partition, 0, end, end, 0, [], -1, None, raw))
            if raw:
                session.positions[partition] = session.positions.pop(partition)
        self.answered.append([TopicPartition(topic, entry[0]) for topic, entries in topics.items() for entry in entries])
        return FetchResponseV12(0, 0, number, topics_of(list(topics.items())), {})

    def _find(
        self, number: int, epoch: int, asked: dict[TopicPartition, int], forgotten: list[TopicPartition]
    ) -> tuple[int, int, Session]:  # fmt: skip
        """Return an error code, the id of the session, and its partitions so far."""
        if epoch in FULL:
            self.sessions.pop(number, None)
            session = Session(1, dict(asked))
            if epoch or len(self.sessions) >= self.slots:
                return 0, 0, session
            self._made += 1
            self.sessions[self._made] = session
            return 0, self._made, session
        known = self.sessions.get(number)
        if known is None or known.epoch != epoch:
            return NOT_FOUND if known is None else INVALID_EPOCH, 0, Session(0)
        known.epoch += 1
        known.positions |= asked
        for partition in forgotten:
            del known.positions[partition]
            known.told.pop(partition, None)
        return 0, number, known

    async def _wait(self, session: Session, request: Any) -> dict[TopicPartition, bytes]:
        deadline = asyncio.get_running_loop().time() + request.max_wait_time / 1000
        while True:
            found = self._read(session, request)
            left = deadline - asyncio.get_running_loop().time()
            if any(found.values()) or left <= 0:
                return found
            news = asyncio.get_running_loop().create_future()
            self._waiting.append(news)
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await news
            self._waiting.remove(news)

    def _read(self, session: Session, request: Any) -> dict[TopicPartition, bytes]:
        """Read in turns; only the first partition with records gets a batch that is larger than the room there is."""
        room, first = request.max_bytes, True
        limits = {TopicPartition(topic, number): most for topic, entries, _ in request.topics for number, *_, most, _ in entries}
        found: dict[TopicPartition, bytes] = {}
        for partition, offset in session.positions.items():
            most = min(room, limits.get(partition, self.options.max_partition_fetch_bytes))
            raw = b""
            for behind, batch in self._logs.get(partition, ()):
                if behind > offset:
                    if len(raw) + len(batch) > most and (raw or not first):
                        break
                    raw += batch
            room, first = max(0, room - len(raw)), first and not raw
            found[partition] = raw
        return found


def fetching(broker: ScriptedBroker) -> KafkaFetcher:
    return KafkaFetcher(cast("KafkaClient", broker), "r", committed=True, closed=lambda _: None)


def partitions(count: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def in_virtual_time(test: Callable[[], Awaitable[T]]) -> T:
    """Run a test in which nobody waits for time."""

    async def run() -> T:
        async with asyncio.timeout(600):
            return await test()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())
