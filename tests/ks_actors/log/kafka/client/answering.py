"""Brokers in this process and in virtual time, behind the connections of the real client: nothing above a socket is replaced.

Each broker tells what it sees of the cluster, which may be the past, and answers with the codes that it is given. It may also be frozen, mute, slow,
or away.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

from actors.testing import VirtualLoop
from ks_actors.log import TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client import _connections
from ks_actors.log.kafka.wire._fetch_request import FetchResponse
from ks_actors.log.kafka.wire._metadata_request import _MetadataResponse
from tests.ks_actors.log.kafka.wire.test_record_reader import stored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

T = TypeVar("T")
WAY_S: Final = 0.001
TOPIC: Final = "t"
FIRST, SECOND = (TopicPartition(TOPIC, number) for number in range(2))
NOBODY: Final = -1
UNKNOWN_TOPIC, NOT_LEADER, EXISTS = 3, 6, 36
# The codes of an answer behind which the controller has done all the same what it was asked for.
DONE: Final = frozenset({0, 7})
# The id that the coordinator of a group gives a member.
MEMBER: Final = "member-1"


def name_of(request: Any) -> str:
    """Return the name of a request, as Kafka has it."""
    found = (request.struct if hasattr(request, "struct") else type(request)).__name__.split("Request")[0].lstrip("_")
    return "ListOffsets" if found == "Offset" else str(found)


class Broker:
    """A broker. `state` is well, mute (answers no request), frozen (and opens no connection), or away (refuses connections).

    `view` are the leaders that it knows, with their epochs; a broker that is cut off has one of its own, and takes records that it cannot replicate.
    """

    def __init__(self, number: int, view: dict[TopicPartition, tuple[int, int]]) -> None:
        self.number = number
        self.view = view
        self.state = "well"
        self.slow_s = WAY_S
        self.throttle_ms = 0
        self.cut_off = False


class Brokers:
    """A cluster of brokers 1 to `count`, and the codes that its next answers to requests of a name have, at the level where such codes are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, count: int = 1, options: KafkaOptions | None = None) -> None:
        monkeypatch.setattr(_connections, "connect_to_any", self._connect)
        self.options = options or KafkaOptions()
        self.view = {FIRST: (1, 0), SECOND: (count, 0)}
        self.brokers = {number: Broker(number, self.view) for number in range(1, count + 1)}
        self.codes: defaultdict[str, list[int]] = defaultdict(list)
        self.lasting: dict[str, int] = {}
        # Requests whose code is that of the whole answer, where each of its parts may have one, too.
        self.whole: set[str] = set()
        self.asked: list[tuple[int, str]] = []
        self.left: float = float("inf")
        self.topics = {TOPIC}
        self.ids: dict[str, str] = {}
        self.coordinator = 1
        self.sessions: dict[int, dict[TopicPartition, int]] = {}
        self.records: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.connections: list[Socket] = []
        self.dies = "mute"

    # --- what happens -------------------------------------------------------------------------------------------------

    def log(self) -> KafkaLog:
        """Return a log whose first broker is 1, with the heartbeats on this loop."""
        log = KafkaLog("b1:1", options=self.options)
        here: Any = Here()
        log._threads = here
        # Real seconds would not pass.
        log._client.outages.clock = asyncio.get_running_loop().time
        return log

    def turn(self, state: str) -> None:
        """Put all brokers into a state, and break the connections of those that are away."""
        for broker in self.brokers.values():
            broker.state = state
        if state == "away":
            for each in tuple(self.connections):
                each.close()

    def cut_off(self, *numbers: int) -> None:
        """Cut brokers off from their cluster, but not from clients, and have a broker lead that is left."""
        past = dict(self.view)
        successor = next(number for number in self.brokers if number not in numbers)
        for number in numbers:
            self.brokers[number].view, self.brokers[number].cut_off = past, True
        for partition, (leader, epoch) in self.view.items():
            if leader in numbers:
                self.view[partition] = successor, epoch + 1
        if self.coordinator in numbers:
            self.coordinator = successor

    def heal(self) -> None:
        """Have all brokers in the cluster again."""
        for broker in self.brokers.values():
            broker.view, broker.cut_off = self.view, False

    def count(self, name: str, broker: int | None = None) -> int:
        """Return the number of requests of a name, to one broker or to all."""
        return sum(asked == name and broker in (None, number) for number, asked in self.asked)

    # --- the way ------------------------------------------------------------------------------------------------------

    async def _connect(self, host: str, port: int, tried: dict[str, str], _use: Any, **_: Any) -> Any:
        broker = self.brokers[port]
        tried[host] = "no answer"
        await asyncio.sleep(WAY_S)
        if broker.state == "away":
            raise ConnectionRefusedError("refused")
        if broker.state == "frozen":
            await asyncio.Event().wait()
        return Socket(self, broker, host)

    def answer(self, broker: Broker, request: Any) -> Any:
        """Return the answer of a broker."""
        name = name_of(request)
        self.asked.append((broker.number, name))
        code = self.codes[name].pop(0) if self.codes[name] else self.lasting.get(name, 0)
        answered: Any = getattr(self, "_on" + re.sub("(?=[A-Z])", "_", name).lower())(broker, request, code)
        if not hasattr(answered, "throttle_time_ms"):
            answered.throttle_time_ms = broker.throttle_ms
        return answered

    # --- topics ---------------------------------------------------------------------------------------------------------

    def _on_metadata(self, broker: Broker, request: Any, code: int) -> Any:
        if hasattr(request, "fields"):
            return SimpleNamespace(operations=0, topics=[(code, topic, False, [], 0) for topic in request.fields[0]])
        topics: list[Any] = []
        for topic in sorted(self.topics) if request.topics is None else request.topics:
            led = {number: led for (name, number), led in broker.view.items() if name == topic and topic in self.topics and not code}
            epochs, leaders = {number: epoch for number, (_, epoch) in led.items()}, {number: leader for number, (leader, _) in led.items()}
            topics.append((code or (0 if led else UNKNOWN_TOPIC), topic, self.ids.get(topic, topic).encode().ljust(16), False, epochs, leaders))
        answer = object.__new__(_MetadataResponse)
        answer.brokers, answer.controller_id, answer.topics = [(number, f"b{number}", number) for number in self.brokers], 1, topics
        return answer

    def _on_describe_configs(self, _: Broker, request: Any, code: int) -> Any:
        found = [(code, "why", kind, name, [] if code else [("max.message.bytes", "1000000")]) for kind, name, _ in request._resources]
        return SimpleNamespace(resources=found)

    def _on_create_topics(self, _: Broker, request: Any, code: int) -> Any:
        names = [topic[0] for topic in request.create_topic_requests]
        if code in {*DONE, EXISTS} and not request.validate_only:
            self.topics.update(names)
            self.view.update({TopicPartition(name, 0): (1, 0) for name in names})
        return SimpleNamespace(topic_errors=[(name, code, "why") for name in names])

    def _on_create_partitions(self, _: Broker, request: Any, code: int) -> Any:
        if code in DONE:
            self.view.update({TopicPartition(name, number): (1, 0) for name, (count, _) in request._topic_partitions for number in range(count)})
        return SimpleNamespace(topic_errors=[(name, code, "why") for name, _ in request._topic_partitions])

    def _on_delete_topics(self, _: Broker, request: Any, code: int) -> Any:
        if code in DONE:
            self.topics.difference_update(request._topics)
        return SimpleNamespace(topic_error_codes=[(name, code) for name in request._topics])

    def _on_incremental_alter_configs(self, _: Broker, request: Any, code: int) -> Any:
        return SimpleNamespace(responses=[(code, "why", kind, name, {}) for kind, name, *_ in request.fields[0]])

    # --- leaders ----------------------------------------------------------------------------------------------------------

    def _led(self, broker: Broker, partition: TopicPartition, code: int) -> int:
        return code or (0 if broker.view.get(partition, (NOBODY, 0))[0] == broker.number else NOT_LEADER)

    def _on_list_offsets(self, broker: Broker, request: Any, code: int) -> Any:
        found = []
        for topic, partitions in request._topics:
            rows = []
            for number, which in partitions:
                bad = self._led(broker, TopicPartition(topic, number), code)
                # Nothing has a timestamp.
                rows.append((number, bad, -1, -1 if bad or which >= 0 else 0 if which == -2 else len(self.records[TopicPartition(topic, number)])))
            found.append((topic, rows))
        return SimpleNamespace(topics=found)

    def _on_offset_for_leader_epoch(self, broker: Broker, request: Any, code: int) -> Any:
        def row(partition: TopicPartition, epoch: int) -> Any:
            return self._led(broker, partition, code), partition.partition, epoch, 100, {}

        return SimpleNamespace(
            topics=[(topic, [row(TopicPartition(topic, number), epoch) for number, _, epoch, _ in rows], {}) for topic, rows, _ in request.fields[1]]
        )

    def _on_delete_records(self, broker: Broker, request: Any, code: int) -> Any:
        def row(partition: TopicPartition, offset: int) -> Any:
            return partition.partition, offset, self._led(broker, partition, code)

        return SimpleNamespace(
            topics=[(topic, [row(TopicPartition(topic, number), offset) for number, offset in rows]) for topic, rows in request._topics]
        )

    def _on_fetch(self, broker: Broker, request: Any, code: int) -> Any:
        _, _, _, (session, epoch), asked, forgotten, _ = request.fields
        whole = code if "Fetch" in self.whole else 0
        offsets = {} if epoch <= 0 else self.sessions[session]
        offsets.update({TopicPartition(topic, number): offset for topic, rows in asked for number, offset, _ in rows})
        for partition in [TopicPartition(topic, number) for topic, numbers in forgotten.items() for number in numbers]:
            offsets.pop(partition, None)
        if epoch == 0:
            session = len(self.sessions) + 1
            self.sessions[session] = offsets
        topics: list[Any] = []
        for partition, offset in offsets.items():
            bad = self._led(broker, partition, 0 if whole else code)
            values = [] if bad or whole or broker.cut_off else self.records[partition][offset:]
            if bad or values or epoch <= 0:
                end = offset + len(values)
                topics.append((partition.topic, [(partition.partition, bad, end, end, 0, [], -1, None, stored(offset, *values) if values else b"")]))
        return FetchResponse(broker.throttle_ms, whole, session, topics)

    def _on_produce(self, broker: Broker, request: Any, code: int) -> Any:
        found = []
        for topic, batches in request._topics:
            rows: list[Any] = []
            for number, _ in batches:
                bad = self._led(broker, TopicPartition(topic, number), code)
                rows.append((number, bad or (7 if broker.cut_off else 0), -1 if bad or broker.cut_off else 0, -1, 0, [], None))
            found.append((topic, rows))
        return SimpleNamespace(topics=found)

    def _on_init_producer_id(self, _: Broker, __: Any, code: int) -> Any:
        return SimpleNamespace(error_code=code, producer_id=1, producer_epoch=0)

    def _on_end_txn(self, _: Broker, __: Any, code: int) -> Any:
        return SimpleNamespace(error_code=code)

    # --- coordinators -----------------------------------------------------------------------------------------------------

    def _on_find_coordinator(self, broker: Broker, _: Any, code: int) -> Any:
        found = broker.number if broker.cut_off else self.coordinator
        return SimpleNamespace(error_code=code, error_message="why", coordinator_id=found, host=f"b{found}", port=found)

    def _coordinates(self, broker: Broker, code: int) -> int:
        return code or (0 if broker.number == self.coordinator else 15 if broker.cut_off else 16)

    def _on_offset_fetch(self, broker: Broker, request: Any, code: int) -> Any:
        code = self._coordinates(broker, code)
        each = 0 if "OffsetFetch" in self.whole else code
        wanted = request.fields[1] or [(TOPIC, [0], {})]
        topics: list[Any] = [(topic, [(number, 5, -1, "", each, {}) for number in numbers], {}) for topic, numbers, _ in wanted]
        return SimpleNamespace(error_code=code if not each else 0, topics=topics)

    def _on_offset_commit(self, broker: Broker, request: Any, code: int) -> Any:
        code = self._coordinates(broker, code)
        return SimpleNamespace(topics=[(topic, [(number, code) for number, *_ in rows]) for topic, rows in request.fields[4]])

    def _on_describe_groups(self, broker: Broker, request: Any, code: int) -> Any:
        groups = request.fields[0] if hasattr(request, "fields") else request._groups
        return SimpleNamespace(groups=[(self._coordinates(broker, code), group, "Empty", "consumer", "", [], 0) for group in groups])

    def _on_list_groups(self, _: Broker, __: Any, code: int) -> Any:
        return SimpleNamespace(error_code=code, groups=[] if code else [("g", "consumer")])

    def _on_join_group(self, broker: Broker, request: Any, code: int) -> Any:
        code = self._coordinates(broker, code)
        members = [(MEMBER, None, request._group_protocols[0][1])]
        return SimpleNamespace(error_code=code, generation_id=1, member_id=MEMBER, leader_id=MEMBER, members=[] if code else members)

    def _on_sync_group(self, broker: Broker, request: Any, code: int) -> Any:
        assigned = dict(request._group_assignment).get(MEMBER, b"")
        return SimpleNamespace(error_code=self._coordinates(broker, code), member_assignment=assigned)

    def _on_heartbeat(self, broker: Broker, _: Any, code: int) -> Any:
        return SimpleNamespace(error_code=self._coordinates(broker, code))

    def _on_leave_group(self, broker: Broker, request: Any, code: int) -> Any:
        code = self._coordinates(broker, code)
        single = 0 if "LeaveGroup" in self.whole else code
        return SimpleNamespace(error_code=code if not single else 0, members=[(member, None, single) for member, _ in request.fields[1]])


class Socket:
    """Take the place of a connection: answers come in the order of requests."""

    outlived = young = False

    def __init__(self, brokers: Brokers, broker: Broker, host: str) -> None:
        self.host, self.port = host, broker.number
        self._brokers, self._broker = brokers, broker
        self._open = True
        self._waiting: list[asyncio.Future[Any]] = []
        self._free_at = 0.0
        brokers.connections.append(self)

    @property
    def connected(self) -> bool:
        return self._open

    def owing(self, _: float) -> bool:
        """Never be taken for dead."""
        return False

    def hears(self, _: float) -> bool:
        """Be no sign that the broker works."""
        return False

    def be_named(self, _: str) -> None:
        """Have no name."""

    async def until_answered(self) -> None:
        while waiting := [each for each in self._waiting if not each.done()]:
            await asyncio.wait(waiting)

    def send(self, request: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(answer)
        if not self._open:
            answer.set_exception(KafkaConnectionError("closed"))
        else:
            # A broker keeps a fetch until there are records, or its time is over; here there are none, or it has none.
            wait_s = request.fields[0] / 1000 if name_of(request) == "Fetch" and not any(self._brokers.records.values()) else 0
            self._free_at = max(self._free_at, loop.time()) + self._broker.slow_s + wait_s
            loop.call_at(self._free_at, self._answer, request, answer)
        return answer

    def _answer(self, request: Any, answer: asyncio.Future[Any]) -> None:
        self._brokers.left -= 1
        if self._brokers.left < 0 and self._broker.state == "well":
            self._brokers.turn(self._brokers.dies)
        if self._broker.state == "well" and self._open:
            found = self._brokers.answer(self._broker, request)
            if not answer.done():
                answer.set_result(found)

    def close(self) -> asyncio.Future[None]:
        self._open = False
        if self in self._brokers.connections:
            self._brokers.connections.remove(self)
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(KafkaConnectionError("closed"))
                answer.exception()
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        closed.set_result(None)
        return closed


class Here:
    """Take the place of the thread of heartbeats: all is on this loop."""

    running = True

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def call(self, work: Awaitable[T]) -> T:
        return await work

    async def close(self) -> None:
        """Have nothing to end."""


def in_virtual_time(test: Callable[[], Awaitable[T]]) -> T:
    """Run a test in which nobody waits for time."""

    async def run() -> T:
        async with asyncio.timeout(100_000):
            return await test()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())
