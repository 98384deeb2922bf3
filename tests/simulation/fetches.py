"""The answers of a broker to fetches, with their sessions (KIP-227), and to questions about offsets."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ks_actors.records import TopicPartition
from tests.simulation.batches import records_of
from tests.simulation.broker import UNKNOWN_TOPIC, answers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.broker import Broker, Call
    from tests.simulation.logs import Log

_OFFSET_OUT_OF_RANGE: Final = 1
_LEADER_NOT_AVAILABLE: Final = 5
_SESSION_NOT_FOUND: Final = 70
_INVALID_SESSION_EPOCH: Final = 71
_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = -1
_HIGHEST_EPOCH: Final = (1 << 31) - 1
_NO_EPOCH: Final = -1
_CONSUMER: Final = -1
_EARLIEST: Final = -2
_LATEST: Final = -1
_DIVERGING: Final = Struct(">iqx")
_NUMBERS: Final = range(1, 1 << 30)


class Asked(NamedTuple):
    """A partition of a fetch."""

    offset: int
    epoch: int
    limit: int


class Session:
    """The partitions that a client has told, in the order of their turns, and what was answered last of each."""

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.epoch: int = 1
        self.used: float = 0.0
        self.partitions: dict[TopicPartition, Asked] = {}
        self.told: dict[TopicPartition, tuple[int, int, int]] = {}


class Found(NamedTuple):
    """The answer for a partition."""

    code: int = 0
    high: int = -1
    stable: int = -1
    start: int = -1
    aborted: tuple[tuple[int, int], ...] | None = None
    records: bytes = b""
    diverging: tuple[int, int] | None = None

    @property
    def at_once(self) -> bool:
        """Whether the client is not to wait for more."""
        return bool(self.code or self.records or self.diverging)


@answers("Fetch")
async def fetch(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer a fetch as soon as it finds something, or when its time is over."""
    fields = call.fields
    cluster, loop = broker.cluster, asyncio.get_running_loop()
    code = cluster.injected("Fetch")
    if code:
        return {"error_code": code}
    session, code = _session(broker, fields)
    if code:
        return {"error_code": code}
    incremental = fields["session_epoch"] not in (_FIRST_EPOCH, _LAST_EPOCH)
    throttle = cluster.injected("throttle")
    if throttle:
        # Without records, and the session goes on.
        return {"throttle_time_ms": throttle, "session_id": session.number}
    deadline = loop.time() + fields["max_wait_ms"] / 1000
    while True:
        found = _read_all(broker, session, fields)
        if any(each.at_once for each in found.values()) or not session.partitions or not await broker.change(deadline):
            break
    shown: list[tuple[TopicPartition, Found]] = []
    for partition, each in found.items():
        told = (each.high, each.stable, each.start)
        if not incremental or each.at_once or session.told.get(partition) != told:
            shown.append((partition, each))
        session.told[partition] = told if not each.code else (-2, -2, -2)
        if incremental and each.records and partition in session.partitions:
            # What had records comes last the next time.
            session.partitions[partition] = session.partitions.pop(partition)
    return {"session_id": session.number, "responses": list(_topics(shown))}


def _session(broker: Broker, fields: dict[str, Any]) -> tuple[Session, int]:
    asked = {
        TopicPartition(topic["topic"], each["partition"]): Asked(each["fetch_offset"], each["last_fetched_epoch"], each["max_bytes"])
        for topic in fields["topics"]
        for each in topic["partitions"]
    }
    number, epoch = fields["session_id"], fields["session_epoch"]
    now = asyncio.get_running_loop().time()
    if epoch in (_FIRST_EPOCH, _LAST_EPOCH):
        broker.sessions.pop(number, None)
        session = Session(_NO_SESSION)
        if epoch == _FIRST_EPOCH and _room(broker):
            session.number = broker.cluster.random.choice(_NUMBERS)
            broker.sessions[session.number] = session
        session.partitions, session.used = asked, now
        return session, 0
    found: Session | None = broker.sessions.get(number)
    if found is None:
        return Session(_NO_SESSION), _SESSION_NOT_FOUND
    if found.epoch != epoch:
        return found, _INVALID_SESSION_EPOCH
    found.epoch = 1 if epoch == _HIGHEST_EPOCH else epoch + 1
    found.used = now
    found.partitions.update(asked)
    for topic in fields["forgotten"]:
        for partition in topic["partitions"]:
            name = TopicPartition(topic["topic"], partition)
            found.partitions.pop(name, None)
            found.told.pop(name, None)
    if not found.partitions:
        # A session without partitions ends.
        del broker.sessions[number]
        return Session(_NO_SESSION), 0
    return found, 0


def _room(broker: Broker) -> bool:
    """Return whether there is room for a session; now and then the oldest one makes room."""
    sessions, most = broker.sessions, broker.cluster.manners.sessions
    if len(sessions) >= most and sessions and broker.cluster.random.random() < 0.1:
        del sessions[min(sessions, key=lambda number: sessions[number].used)]
    return len(sessions) < most


def _read_all(broker: Broker, session: Session, fields: dict[str, Any]) -> dict[TopicPartition, Found]:
    """Read in turns; only the first partition with records gets a batch that is larger than its limit."""
    room, whole = fields["max_bytes"], True
    found = {}
    for partition, asked in session.partitions.items():
        one = found[partition] = _read(broker, partition, asked, min(room, asked.limit), committed=bool(fields["isolation_level"]), whole=whole)
        room = max(0, room - len(one.records))
        whole = whole and not one.records
    return found


def _read(broker: Broker, partition: TopicPartition, asked: Asked, limit: int, *, committed: bool, whole: bool) -> Found:
    code = broker.judge(partition) or broker.cluster.injected("Fetch partition")
    if code:
        return Found(code, aborted=() if code == UNKNOWN_TOPIC else None)
    log = broker.led[partition].log
    if asked.epoch != _NO_EPOCH:
        epoch, end = log.epoch_end(asked.epoch)
        if epoch == _NO_EPOCH or asked.offset < log.start:
            return Found(_OFFSET_OUT_OF_RANGE)
        if epoch < asked.epoch or end < asked.offset:
            return Found(0, log.high, log.stable, log.start, None, b"", (epoch, end))
    if not log.start <= asked.offset <= log.end:
        return Found(_OFFSET_OUT_OF_RANGE)
    stable = log.stable
    records, behind = log.read(asked.offset, limit, stable if committed else log.high, whole=whole)
    aborted = None
    if committed:
        aborted = tuple((each.producer, each.first) for each in log.aborted(asked.offset, log.bound(behind))) if records else ()
    return Found(0, log.high, stable, log.start, aborted, records)


def _topics(found: Iterable[tuple[TopicPartition, Found]]) -> Iterable[dict[str, Any]]:
    """Return partitions in their order: a topic comes again behind another one."""
    topic: dict[str, Any] = {}
    for partition, one in found:
        if topic.get("topic") != partition.topic:
            if topic:
                yield topic
            topic = {"topic": partition.topic, "partitions": []}
        topic["partitions"].append({
            "partition": partition.partition,
            "error_code": one.code,
            "high_watermark": one.high,
            "last_stable_offset": one.stable,
            "log_start_offset": one.start,
            "aborted_transactions": None if one.aborted is None else [{"producer_id": each, "first_offset": first} for each, first in one.aborted],
            "preferred_read_replica": -1,
            "records": one.records,
            "tags": {} if one.diverging is None else {0: _DIVERGING.pack(*one.diverging)},
        })  # fmt: skip
    if topic:
        yield topic


# --- offsets --------------------------------------------------------------------------------------------------------------------------------


@answers("ListOffsets")
async def list_offsets(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer with the first offset, the last one, or the first from a time on."""
    topics = []
    for topic in call.fields["topics"]:
        partitions = [
            {"partition": each["partition"], **_offset(broker, TopicPartition(topic["name"], each["partition"]), each["timestamp"], call)}
            for each in topic["partitions"]
        ]
        topics.append({"name": topic["name"], "partitions": partitions})
    return {"topics": topics}


def _offset(broker: Broker, partition: TopicPartition, timestamp: int, call: Call) -> dict[str, Any]:
    code = broker.judge(partition) or broker.cluster.injected("ListOffsets")
    if code:
        return {"error_code": code, "timestamp": -1, "offset": -1}
    led = broker.led[partition]
    log = led.log
    if timestamp == _EARLIEST:
        return {"timestamp": -1, "offset": log.start}
    consumer = call.fields["replica_id"] == _CONSUMER
    if consumer and log.epochs and log.epochs[-1][0] == led.epoch and log.epochs[-1][1] > log.high:
        # It has just begun to lead, and does not know yet what all replicas have.
        return {"error_code": _LEADER_NOT_AVAILABLE, "timestamp": -1, "offset": -1}
    # Replicas, and debuggers, are told of what is not replicated, too.
    upto = log.end if not consumer else log.stable if call.fields["isolation_level"] else log.high
    if timestamp == _LATEST:
        return {"timestamp": -1, "offset": upto}
    return _offset_at(log, timestamp, upto)


def _offset_at(log: Log, timestamp: int, upto: int) -> dict[str, Any]:
    for batch in log.batches:
        if batch.timestamp >= timestamp:
            for record in records_of(batch.raw):
                if record.timestamp >= timestamp and log.start <= record.offset < upto:
                    return {"timestamp": record.timestamp, "offset": record.offset}
    return {"timestamp": -1, "offset": -1}


@answers("OffsetForLeaderEpoch")
async def offset_for_leader_epoch(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer where the largest epoch up to each given one ends."""
    topics = []
    for topic in call.fields["topics"]:
        partitions = []
        for each in topic["partitions"]:
            partition = TopicPartition(topic["topic"], each["partition"])
            code = broker.judge(partition)
            epoch, end = (_NO_EPOCH, -1) if code else broker.led[partition].log.epoch_end(each["leader_epoch"])
            partitions.append({"partition": each["partition"], "error_code": code, "leader_epoch": epoch, "end_offset": end})
        topics.append({"topic": topic["topic"], "partitions": partitions})
    return {"topics": topics}
