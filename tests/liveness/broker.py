"""Kafka's brokers as a fetcher sees them, in this process and in virtual time: requests wait for records, sessions remember partitions (KIP-227)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from random import Random
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]

from ks_actors.log import TopicPartition
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._known_topics import TopicMetadata

_VERSION: Final = 12
_START: Final = Struct(">iiiibii")
_ASKED: Final = Struct(">iiqiqix")
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_NOT_LEADER: Final = 6
_SESSION_NOT_FOUND: Final = 70
_INVALID_EPOCH: Final = 71


@cache
def batch_of(count: int, size: int) -> bytes:
    """Return a record batch of so many records, with values of so many bytes, for the offset 0."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset in range(count):
        builder.append(offset, timestamp=1_700_000_000_000 + offset, key=None, value=bytes(size), headers=[])
    return bytes(builder.build())


class Log:
    """The record batches of one partition: the offset and the bytes of each."""

    def __init__(self) -> None:
        self.end: int = 0
        self._batches: list[tuple[int, int, bytes]] = []

    def append(self, count: int, size: int) -> None:
        """Write a batch of so many records."""
        raw = batch_of(count, size)
        self._batches.append((self.end, self.end + count, _LONG.pack(self.end) + raw[_LONG.size :]))
        self.end += count

    def read(self, offset: int, limit: int, *, first: bool) -> bytes:
        """Return batches from that with the offset on, as many as the limit allows; the first one in any case if it is the `first` of a response."""
        low, high = 0, len(self._batches)
        while low < high:
            middle = (low + high) // 2
            if self._batches[middle][1] <= offset:
                low = middle + 1
            else:
                high = middle
        parts: list[bytes] = []
        size = 0
        for _, _, raw in self._batches[low:]:
            if size + len(raw) > limit and (parts or not first):
                break
            parts.append(raw)
            size += len(raw)
        return b"".join(parts)


class Fetch(NamedTuple):
    """A fetch request, read from the wire."""

    wait_ms: int
    max_bytes: int
    session: int
    epoch: int
    asked: dict[TopicPartition, tuple[int, int]]
    forgotten: list[TopicPartition]


def read_request(raw: bytes) -> Fetch:
    """Read a fetch request of version 12, behind its header."""
    _, wait_ms, _, max_bytes, _, session, epoch = _START.unpack_from(raw)
    topics, at = _length(raw, _START.size)
    asked: dict[TopicPartition, tuple[int, int]] = {}
    for _ in range(topics):
        topic, at = _text(raw, at)
        count, at = _length(raw, at)
        for _ in range(count):
            number, _, offset, _, _, limit = _ASKED.unpack_from(raw, at)
            asked[TopicPartition(topic, number)] = offset, limit
            at += _ASKED.size
        at += 1
    forgotten: list[TopicPartition] = []
    topics, at = _length(raw, at)
    for _ in range(topics):
        topic, at = _text(raw, at)
        count, at = _length(raw, at)
        forgotten += [TopicPartition(topic, *_INT.unpack_from(raw, at + _INT.size * index)) for index in range(count)]
        at += _INT.size * count + 1
    return Fetch(wait_ms, max_bytes, session, epoch, asked, forgotten)


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """Return a length, which is written plus 1 in seven bits each, and the position after it."""
    number = shift = 0
    while raw[at] >= 0x80:
        number |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
    return (number | raw[at] << shift) - 1, at + 1


def _text(raw: bytes, at: int) -> tuple[str, int]:
    length, at = _length(raw, at)
    return raw[at : at + length].decode(), at + length


class Session:
    """The partitions that a fetcher has told, in the order of their turns, and where each is to be read from."""

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.epoch: int = 0
        self.partitions: dict[TopicPartition, tuple[int, int]] = {}


class Cluster:
    """Brokers by number, which lead partitions. The way there, or back, takes `latency` (s) at most; a broker remembers `room` sessions."""

    def __init__(self, brokers: int, partitions: Iterable[TopicPartition], *, latency: float, room: int, seed: int) -> None:
        self.logs: dict[TopicPartition, Log] = {partition: Log() for partition in partitions}
        self.leaders: dict[TopicPartition, int] = {partition: index % brokers for index, partition in enumerate(self.logs)}
        self.requests: int = 0
        self.brokers: int = brokers
        self._latency: float = latency
        self._room: int = room
        self._random = Random(seed)
        self._sessions: defaultdict[int, dict[int, Session]] = defaultdict(dict)
        self._numbers: int = 0
        self._away: set[int] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._connections: defaultdict[tuple[int, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    # --- what happens to it ---------------------------------------------------------------------------------------------------

    def write(self, partition: TopicPartition, count: int, size: int) -> None:
        """Append a batch of records."""
        self.logs[partition].append(count, size)
        self._wake()

    def is_away(self, partition: TopicPartition) -> bool:
        """Return whether the leader of a partition cannot be reached."""
        return self.leaders[partition] in self._away

    def take_away(self, broker: int) -> None:
        """Have a broker not be reached, and forget its sessions."""
        self._away.add(broker)
        self._sessions[broker].clear()
        self._wake()

    def bring_back(self, broker: int) -> None:
        """Have a broker be reached again."""
        self._away.discard(broker)

    def forget_sessions(self) -> None:
        """Have all brokers forget their sessions, as those do that need the room for others."""
        for sessions in self._sessions.values():
            sessions.clear()

    def lead(self, partition: TopicPartition, broker: int) -> None:
        """Make another broker the leader of a partition."""
        self.leaders[partition] = broker
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _end(waiter)

    # --- what it answers ------------------------------------------------------------------------------------------------------

    async def send(self, node: int, request: Any, channel: str) -> Any:
        """Answer a fetch request; those of one connection one after the other. Raises Unavailable when the broker is away, or goes meanwhile."""
        async with self._connections[node, channel]:
            self.requests += 1
            message = request.prepare({1: (0, _VERSION)})
            assert message.API_VERSION == _VERSION
            await asyncio.sleep(self._latency * self._random.random())
            response = await self._fetch(node, read_request(message.encode()))
            await asyncio.sleep(self._latency * self._random.random())
            return response

    async def _fetch(self, node: int, fetch: Fetch) -> Any:
        self._check(node)
        session, code = self._session(node, fetch)
        if code:
            return _response(code, 0, [])
        loop = asyncio.get_running_loop()
        deadline = loop.time() + fetch.wait_ms / 1000
        while not (found := self._found(node, session, fetch)) and loop.time() < deadline:
            waiter = loop.create_future()
            self._waiters.append(waiter)
            late = loop.call_at(deadline, _end, waiter)
            await waiter
            late.cancel()
            self._check(node)
        if fetch.epoch <= 0:
            # A request without a session before it is answered for all its partitions.
            said = {partition for partition, _ in found}
            found += [(partition, (0, b"")) for partition in session.partitions if partition not in said]
        for partition, (_, raw) in found:
            if raw:
                # A partition that had records comes last the next time.
                session.partitions[partition] = session.partitions.pop(partition)
        return _response(0, session.number, [(partition, code, self.logs[partition].end, raw) for partition, (code, raw) in found])

    def _check(self, node: int) -> None:
        if node in self._away:
            raise Unavailable(f"broker {node} is away", away=True)

    def _session(self, node: int, fetch: Fetch) -> tuple[Session, int]:
        sessions = self._sessions[node]
        if fetch.epoch <= 0:
            sessions.pop(fetch.session, None)
            session = Session(0)
            if fetch.epoch == 0 and len(sessions) < self._room:
                self._numbers += 1
                session = sessions[self._numbers] = Session(self._numbers)
            session.partitions = dict(fetch.asked)
            session.epoch = 1
            return session, 0
        found = sessions.get(fetch.session)
        if found is None:
            return Session(0), _SESSION_NOT_FOUND
        if found.epoch != fetch.epoch:
            return found, _INVALID_EPOCH
        found.epoch += 1
        found.partitions.update(fetch.asked)
        for partition in fetch.forgotten:
            found.partitions.pop(partition, None)
        return found, 0

    def _found(self, node: int, session: Session, fetch: Fetch) -> list[tuple[TopicPartition, tuple[int, bytes]]]:
        """Return the answers for the partitions of a request: an error code, or records."""
        found: list[tuple[TopicPartition, tuple[int, bytes]]] = []
        room = fetch.max_bytes
        for partition, (offset, limit) in session.partitions.items():
            if self.leaders[partition] != node:
                found.append((partition, (_NOT_LEADER, b"")))
            elif offset < self.logs[partition].end:
                raw = self.logs[partition].read(offset, min(limit, room), first=room == fetch.max_bytes)
                if raw:
                    room -= len(raw)
                    found.append((partition, (0, raw)))
        return found


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _response(code: int, session: int, found: list[tuple[TopicPartition, int, int, bytes]]) -> Any:
    topics: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for (topic, number), error, end, raw in found:
        topics[topic].append((number, error, end, end, 0, [], -1, None, raw))
    return SimpleNamespace(throttle_time_ms=0, error_code=code, session_id=session, topics=list(topics.items()))


def connect(client: KafkaClient, cluster: Cluster, replace: Callable[[str, Any], None]) -> None:
    """Have a client talk to the cluster; `replace` puts a method in the place of its class's own."""

    async def send(_: KafkaClient, node: int, request: Any, *, channel: str = "", timeout_ms: int | None = None) -> Any:
        return await cluster.send(node, request, channel)

    async def refresh(_: KafkaClient, topics: Iterable[str] = ()) -> None:
        await asyncio.sleep(0)
        learn(client, cluster)

    replace("send", send)
    replace("refresh", refresh)
    replace("disconnect", lambda _, channel: None)
    learn(client, cluster)


def learn(client: KafkaClient, cluster: Cluster) -> None:
    """Tell a client the leaders."""
    leaders: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for (topic, number), node in cluster.leaders.items():
        leaders[topic][number] = node
    client._topics.found = {topic: TopicMetadata(topic, numbers) for topic, numbers in leaders.items()}
    client._topics._answered = set(leaders)
