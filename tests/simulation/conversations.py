"""Conversations with a broker, real or simulated: the same requests, and what is to be the same in the answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from operator import itemgetter
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tests.simulation.batches import HEADER, TRANSACTIONAL, Record, build, sealed
from tests.simulation.messages import APIS, VERSIONS
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")
Answer = dict[str, Any]
# A broker that is loading, looking for something, or still busy with the last transaction.
_LATER: Final = frozenset({5, 14, 15, 16, 51})
# Records of long ago would be deleted, and the next ones have a segment of their own, at which a fetch ends.
_TIME: Final = time_ns() // 1_000_000
_PAUSE_S: Final = 0.02
_SHOWN: Final = ("cleanup.policy", "max.message.bytes", "min.insync.replicas", "segment.bytes")


class Asks(Protocol):
    """What sends the bytes of a request to a broker, and returns those of the answer, without their lengths."""

    async def __call__(self, frame: bytes) -> bytes: ...


class Talk:
    """A conversation; `told` has its answers, with the names that differ between brokers made alike. `name` is what its topics begin with.

    A broker answers the requests of a connection one after the other: one that waits for another one goes over a `line` of its own.
    """

    def __init__(self, connect: Callable[[], Awaitable[Asks]], name: str) -> None:
        self.name: str = name
        self.told: list[tuple[str, Any]] = []
        self._connect = connect
        self._lines: dict[int, Asks] = {}
        self._alike: dict[tuple[str, Any], str] = {}
        self._counts: Counter[str] = Counter()
        self._count = 0

    def topic(self, name: str = "t") -> str:
        """Return the name of a topic of this conversation."""
        return f"{self.name}-{name}"

    async def ask(self, what: str, fields: Answer | None = None, *, version: int | None = None, quietly: bool = False, line: int = 0) -> Answer:
        """Ask, and note the answer."""
        api = next(each for each in APIS.values() if each.name == what and version in (None, each.version))
        self._count += 1
        client = b"talk"
        head = api.key.to_bytes(2, "big") + api.version.to_bytes(2, "big") + self._count.to_bytes(4, "big") + len(client).to_bytes(2, "big") + client
        frame = head + (b"\0" if api.request.flexible else b"") + api.request.write(fields or {})
        try:
            async with asyncio.timeout(PATIENCE_S):
                if line not in self._lines:
                    self._lines[line] = await self._connect()
                raw = await self._lines[line](frame)
        except TimeoutError as error:
            raise AssertionError(f"no answer within {PATIENCE_S} s: {what} {fields}") from error
        answer = api.response.read(raw, 5 if api.response.flexible and what != "ApiVersions" else 4)
        if not quietly:
            self.note(what, answer)
        return answer

    async def until(self, look: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Look until there is something to be found; after all patience fail with `what`. Virtual time goes on meanwhile, as real time does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while (found := await look()) is None:
            assert loop.time() < end, f"not within {PATIENCE_S} s: {what}"
            await asyncio.sleep(_PAUSE_S)
        return found

    async def settle(
        self, what: str, fields: Answer, codes: Callable[[Answer], Iterable[int]] = lambda answer: [answer["error_code"]], *, line: int = 0
    ) -> Answer:
        """Ask until the broker no longer says that it needs a moment, and note the last answer."""

        async def look() -> Answer | None:
            answer = await self.ask(what, fields, quietly=True, line=line)
            return answer if _LATER.isdisjoint(codes(answer)) else None

        answer = await self.until(look, f"an answer to {what} {fields} that is not to be asked for again")
        self.note(what, answer)
        return answer

    def note(self, what: str, answer: Any) -> None:
        """Note an answer."""
        self.told.append((what, self._made_alike("", answer)))

    def _made_alike(self, field: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._made_alike(name, each) for name, each in value.items()}
        if isinstance(value, list):
            # What a broker has in a map comes in any order.
            made = [self._made_alike(field, each) for each in value]
            return sorted(made, key=itemgetter(_ORDERED[field])) if field in _ORDERED else made
        if field == "records":
            return [self._made_alike("batch", each) for each in _headers(value or b"")]
        if field in {"host", "port", "cluster_id", "start_time_ms", "client_host"}:
            return field
        if isinstance(value, tuple):
            return tuple(self._made_alike("producer_id" if index == _PRODUCER else "", each) for index, each in enumerate(value))
        return self._named(field, value)

    def _named(self, field: str, value: Any) -> Any:
        kind = _NAMES.get(field)
        if kind is None or value == _NONE[kind]:
            return value.replace(self.name, "talk") if isinstance(value, str) else value
        if (kind, value) not in self._alike:
            self._alike[kind, value] = f"{kind} {self._counts[kind]}"
            self._counts[kind] += 1
        return self._alike[kind, value]


_PRODUCER: Final = 4
_ORDERED: Final = {"configs": "name", "groups": "group_id", "members": "member_id"}
# Names that a broker draws, by the fields that have them, and their values for none.
_NAMES: Final = {
    "topic_id": "topic_id", "member_id": "member_id", "leader": "member_id", "session_id": "session_id", "producer_id": "producer_id",
}  # fmt: skip
_NONE: Final[dict[str, Any]] = {"topic_id": bytes(16), "member_id": "", "session_id": 0, "producer_id": -1}


def _headers(raw: bytes) -> list[tuple[Any, ...]]:
    """Return what is to be alike of record batches: base, epoch, attributes, last offset delta, producer id and epoch, sequence and count."""
    found, at = [], 0
    while at + HEADER.size <= len(raw):
        base, length, epoch, _, _, attributes, delta, _, _, producer, producer_epoch, sequence, count = HEADER.unpack_from(raw, at)
        whole = at + 12 + length <= len(raw)
        found.append((base, epoch, attributes, delta, producer, producer_epoch, sequence, count, whole))
        at += 12 + length
    return found


def batch(count: int = 1, *, producer: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False, size: int = 10) -> bytes:
    """Return a batch of records."""
    records = tuple(Record(index, _TIME + index, b"k", b"v" * size, ()) for index in range(count))
    return sealed(build(records, count, 0), producer, epoch, sequence, attributes=TRANSACTIONAL if transactional else 0)


# --- topics ---------------------------------------------------------------------------------------------------------------------------------


def _new(name: str, partitions: int = 1, replication: int = 1, /, **configs: str) -> Answer:
    listed = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": replication, "configs": listed}


async def make(talk: Talk, name: str = "t", partitions: int = 1, **configs: str) -> str:
    """Make a topic, and wait until it can be used."""
    topic = talk.topic(name)
    await talk.ask("CreateTopics", {"topics": [_new(topic, partitions, **configs)], "timeout_ms": 5_000})
    await _until_led(talk, topic, partitions)
    return topic


async def _until_led(talk: Talk, topic: str, partitions: int) -> None:
    """Wait until all partitions of a topic have a leader that knows that it leads: metadata has it before."""
    asked = [{"name": topic, "partitions": [{"partition": number, "timestamp": -1} for number in range(partitions)]}]

    async def look() -> bool | None:
        found = await talk.ask("ListOffsets", {"replica_id": -1, "topics": asked}, quietly=True)
        led = all(each["error_code"] == 0 for each in found["topics"][0]["partitions"])
        (known,) = (await talk.ask("Metadata", {"topics": [{"name": topic}]}, version=10, quietly=True))["topics"]
        return (led and len(known["partitions"]) == partitions and all(each["leader_id"] >= 0 for each in known["partitions"])) or None

    await talk.until(look, f"{partitions} partitions of {topic} that are led")


async def of_topics(talk: Talk) -> None:
    """Make, describe, change and delete topics."""
    versions = await talk.ask("ApiVersions", quietly=True)
    talk.note(
        "ApiVersions",
        sorted((each["api_key"], each["min_version"], each["max_version"]) for each in versions["api_keys"] if each["api_key"] in VERSIONS),
    )
    topic = await make(talk, "t", 2, retention_ms="77")
    odd = [
        _new(topic),
        _new("b d"),
        _new(talk.topic("n"), 0),
        _new(talk.topic("r"), 1, 9),
        _new(talk.topic("c"), x="1"),
        _new(talk.topic("v"), retention_ms="z"),
    ]
    await talk.ask("CreateTopics", {"topics": odd, "timeout_ms": 5_000})
    await talk.ask("CreateTopics", {"topics": [_new(talk.topic("later"))], "timeout_ms": 5_000, "validate_only": True})
    asked = [{"name": topic}, {"name": talk.topic("none")}]
    await talk.ask("Metadata", {"topics": asked}, version=10)
    operations = {"include_cluster_operations": True, "include_topic_operations": True}
    await talk.ask("Metadata", {"topics": [topic], **operations}, version=8)
    keys = {"configuration_keys": list(_SHOWN), "resource_type": 2}
    await talk.ask("DescribeConfigs", {"resources": [{"resource_name": topic, **keys}, {"resource_name": talk.topic("none"), **keys}]})
    change = [{"name": "segment.bytes", "operation": 0, "value": "1048576"}]
    wrong = [{"name": "segment.bytes", "operation": 0, "value": "many"}]
    resources = [{"resource_name": name, "resource_type": 2, "configs": configs} for name, configs in ((topic, change), (talk.topic("none"), change))]
    await talk.ask("IncrementalAlterConfigs", {"resources": resources})
    await talk.ask("IncrementalAlterConfigs", {"resources": [{"resource_name": topic, "resource_type": 2, "configs": wrong}]})
    for count in (2, 1, 3):
        await talk.ask("CreatePartitions", {"topics": [{"name": topic, "count": count, "assignments": None}], "timeout_ms": 5_000})
    await talk.ask("CreatePartitions", {"topics": [{"name": talk.topic("none"), "count": 2, "assignments": None}], "timeout_ms": 5_000})
    await _until_led(talk, topic, 3)
    await talk.ask("DeleteTopics", {"names": [talk.topic("none")], "timeout_ms": 5_000})
    await talk.ask("DeleteTopics", {"names": [topic], "timeout_ms": 5_000})


async def of_configs(talk: Talk) -> None:
    """Set and unset configs, describe all of them, and come with wrong ones."""
    topic = await make(talk, "t", 1, delete_retention_ms="77")
    resource = {"resource_name": topic, "resource_type": 2}

    async def describe() -> None:
        found = await talk.ask("DescribeConfigs", {"resources": [{**resource, "configuration_keys": None}]}, quietly=True)
        # The broker of tests has a setting of its own for one.
        (one,) = found["results"]
        talk.note("DescribeConfigs", {**one, "configs": [each for each in one["configs"] if each["name"] != "retention.ms"]})

    await describe()
    for name, operation, value in (
        ("delete.retention.ms", 1, None),
        ("max.message.bytes", 0, "99999"),
        ("max.message.bytes", 0, "-9"),
        ("x", 0, "1"),
        ("cleanup.policy", 0, "compact"),
        ("cleanup.policy", 0, "keep"),
        ("min.insync.replicas", 0, "1"),
        ("unclean.leader.election.enable", 0, "perhaps"),
        ("delete.retention.ms", 0, None),
    ):
        change = [{"name": name, "operation": operation, "value": value}]
        await talk.ask("IncrementalAlterConfigs", {"resources": [{**resource, "configs": change}]})
    change = [{"name": "segment.bytes", "operation": 0, "value": "1048576"}]
    await talk.ask("IncrementalAlterConfigs", {"resources": [{**resource, "configs": change}], "validate_only": True})
    await talk.ask("IncrementalAlterConfigs", {"resources": [{**resource, "configs": change}] * 2})
    await describe()
    await talk.ask("DescribeConfigs", {"resources": [{**resource, "configuration_keys": ["x"]}]})


async def of_wrong_topics(talk: Talk) -> None:
    """Name topics twice, by impossible names, and with numbers that are not to be had."""
    topic, new = await make(talk, "t", 2), talk.topic("n")
    await talk.ask("CreateTopics", {"topics": [_new(new), _new(new)], "timeout_ms": 5_000})
    await talk.ask("CreateTopics", {"topics": [_new(talk.topic("d"), -1, -1)], "timeout_ms": 5_000})
    for name in (".", "..", "", "x" * 250, "a/b"):
        await talk.ask("CreateTopics", {"topics": [_new(name)], "timeout_ms": 5_000})
    for partitions, replication in ((-2, 1), (1, 0), (1, -2)):
        await talk.ask("CreateTopics", {"topics": [_new(new, partitions, replication)], "timeout_ms": 5_000})
    for counts in ((3, 3), (0,), (-1,)):
        grown = [{"name": topic, "count": count, "assignments": None} for count in counts]
        await talk.ask("CreatePartitions", {"topics": grown, "timeout_ms": 5_000})
    grown = [{"name": topic, "count": 5, "assignments": None}]
    await talk.ask("CreatePartitions", {"topics": grown, "timeout_ms": 5_000, "validate_only": True})
    for name in ("", "a/b"):
        await talk.ask("Metadata", {"topics": [{"name": name}]}, version=10)
    await talk.ask("Metadata", {"topics": []}, version=10)
    await talk.ask("DeleteTopics", {"names": [topic, topic], "timeout_ms": 5_000})


# --- records --------------------------------------------------------------------------------------------------------------------------------


async def write(talk: Talk, topic: str, raw: bytes, partition: int = 0, *, acks: int = -1, transactional_id: str | None = None) -> Answer:
    """Write a batch."""
    topics = [{"name": topic, "partitions": [{"index": partition, "records": raw}]}]
    fields = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 5_000, "topics": topics}
    return await talk.ask("Produce", fields)


async def read(
    talk: Talk, topic: str, offset: int, *, partition: int = 0, epoch: int = -1, limit: int = 1 << 20, most: int = 1 << 20, committed: bool = False,
    session: tuple[int, int] = (0, -1), asks: bool = True,
) -> Answer:  # fmt: skip
    """Fetch from a partition."""
    one = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": epoch,
        "log_start_offset": -1,
        "max_bytes": limit,
    }
    fields = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": most, "isolation_level": int(committed), "session_id": session[0],
        "session_epoch": session[1], "topics": [{"topic": topic, "partitions": [one]}] if asks else [], "rack_id": "",
    }  # fmt: skip
    return await talk.ask("Fetch", fields)


async def look(talk: Talk, topic: str, timestamp: int, *, partition: int = 0, committed: bool = False, replica: int = -1) -> Answer:
    """Ask for an offset."""
    topics = [{"name": topic, "partitions": [{"partition": partition, "timestamp": timestamp}]}]
    return await talk.ask("ListOffsets", {"replica_id": replica, "isolation_level": int(committed), "topics": topics})


async def of_writes(talk: Talk) -> None:
    """Write, repeat, leave gaps, and break rules."""
    topic = await make(talk, "t", 1, max_message_bytes="1000")
    producer = (
        await talk.settle("InitProducerId", {"transactional_id": None, "transaction_timeout_ms": 1_000, "producer_id": -1, "producer_epoch": -1})
    )["producer_id"]
    for epoch, sequence, count in (
        (0, 0, 2),
        (0, 0, 2),
        (0, 2, 1),
        (0, 2, 1),
        (0, 7, 1),
        (0, 0, 2),
        (0, 1, 1),
        (1, 3, 1),
        (1, 0, 3),
        (0, 3, 1),
        (1, 3, 1),
    ):
        await write(talk, topic, batch(count, producer=producer, epoch=epoch, sequence=sequence))
    for sequence in (4, 5, 6, 7, 8, 9, 5, 4):
        # The last five batches are remembered.
        await write(talk, topic, batch(1, producer=producer, epoch=1, sequence=sequence))
    await write(talk, topic, batch(1, producer=producer + 1_000, epoch=0, sequence=5))
    await write(talk, topic, batch(1))
    await write(talk, topic, batch(1, size=2_000))
    broken = bytearray(batch(1))
    broken[-1] ^= 1
    await write(talk, topic, bytes(broken))
    await write(talk, topic, batch(1), 5)
    await write(talk, talk.topic("none"), batch(1))
    await write(talk, topic, batch(1), acks=1)
    compacted = await make(talk, "c", 1, cleanup_policy="compact")
    await write(talk, compacted, sealed(build((Record(0, _TIME, None, b"v", ()),), 1, 0), -1, -1, -1))
    await write(talk, compacted, batch(1))


async def of_fetches(talk: Talk) -> None:
    """Fetch with sessions and without, from wrong places, and in small pieces."""
    topic = await make(talk, "t", 2)
    for count in (3, 1, 5):
        await write(talk, topic, batch(count))
    for offset in (0, 1, 3, 8, 9, 10, -1):
        await read(talk, topic, offset)
    await read(talk, topic, 0, limit=1)
    await read(talk, topic, 0, limit=200)
    await read(talk, topic, 3, most=1)
    await read(talk, topic, 0, partition=7)
    await read(talk, talk.topic("none"), 0)
    for epoch in (0, 1, 5):
        await read(talk, topic, 3, epoch=epoch)
    session = (await read(talk, topic, 3, session=(0, 0)))["session_id"]
    await read(talk, topic, 3, session=(session, 1), asks=False)
    await read(talk, topic, 9, session=(session, 2))
    await read(talk, topic, 0, session=(session, 3), asks=False)
    await read(talk, topic, 0, partition=1, session=(session, 4))
    await write(talk, topic, batch(1))
    await read(talk, topic, 0, session=(session, 5), asks=False)
    await read(talk, topic, 0, session=(session, 4), asks=False)
    await read(talk, topic, 0, session=(session + 1, 6), asks=False)
    await read(talk, topic, 0, session=(session, -1), asks=False)
    await read(talk, topic, 0, session=(session, 6), asks=False)
    for timestamp in (-1, -2, 0, _TIME, _TIME + 2, _TIME + 4, _TIME + 99):
        await look(talk, topic, timestamp)
    await look(talk, topic, -1, replica=-2)
    await look(talk, topic, -1, partition=9)
    for epoch in (0, 1):
        asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}]
        await talk.ask("OffsetForLeaderEpoch", {"replica_id": -1, "topics": [{"topic": topic, "partitions": asked}]})
    for offset in (4, 2, 99, -1):
        await talk.ask("DeleteRecords", {"topics": [{"name": topic, "partitions": [{"partition": 0, "offset": offset}]}], "timeout_ms": 5_000})
    await read(talk, topic, 3)
    await look(talk, topic, -2)


async def of_deleted_records(talk: Talk) -> None:
    """Delete the first records, and read and look from before and behind them."""
    topic = await make(talk, "t", 2)
    for count in (3, 2):
        await write(talk, topic, batch(count))

    async def delete(name: str, partition: int, offset: int) -> None:
        asked = [{"name": name, "partitions": [{"partition": partition, "offset": offset}]}]
        await talk.ask("DeleteRecords", {"topics": asked, "timeout_ms": 5_000})

    for offset in (0, 1, 4, 5, 6, -2):
        await delete(topic, 0, offset)
        for start in (0, 1, 4, 5):
            await read(talk, topic, start)
        for timestamp in (-1, -2, _TIME, _TIME + 1):
            await look(talk, topic, timestamp)
        await epoch_end(talk, topic, 0)
    await write(talk, topic, batch(1))
    await read(talk, topic, 5, epoch=0)
    await delete(topic, 1, -1)
    await delete(topic, 7, 1)
    await delete(talk.topic("none"), 0, 1)
    compacted = await make(talk, "c", 1, cleanup_policy="compact")
    await write(talk, compacted, batch(2))
    await delete(compacted, 0, 1)


async def epoch_end(talk: Talk, topic: str, epoch: int, *, partition: int = 0, current: int = -1) -> None:
    """Ask where a leader epoch ends."""
    asked = [{"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}]
    await talk.ask("OffsetForLeaderEpoch", {"replica_id": -1, "topics": [{"topic": topic, "partitions": asked}]})


async def of_leader_epochs(talk: Talk) -> None:
    """Ask for the ends of epochs that were, were not, and are to come."""
    topic = await make(talk)
    for epoch in (-1, 0, 1):
        await epoch_end(talk, topic, epoch)
    await write(talk, topic, batch(2))
    for epoch in (-1, 0, 1, 7):
        await epoch_end(talk, topic, epoch)
    await epoch_end(talk, topic, 0, partition=3)
    await epoch_end(talk, talk.topic("none"), 0)
    for offset, epoch in ((0, 0), (1, 0), (2, 0), (3, 0), (2, 4), (0, -1)):
        await read(talk, topic, offset, epoch=epoch)


async def of_times(talk: Talk) -> None:
    """Look for offsets by time, in an empty log and in one whose times go up and down."""
    topic = await make(talk)
    for timestamp in (-1, -2, 0, _TIME):
        await look(talk, topic, timestamp)
    for times in ((5, 3, 9), (2,), (7, 7, 20)):
        records = tuple(Record(index, _TIME + time, b"k", b"v", ()) for index, time in enumerate(times))
        await write(talk, topic, sealed(build(records, len(times), 0), -1, -1, -1))
    for timestamp in (0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 21):
        await look(talk, topic, _TIME + timestamp)
        await look(talk, topic, _TIME + timestamp, committed=True)


async def of_sessions(talk: Talk) -> None:
    """Fetch from several partitions in a session, take some of them away, and share the room for bytes."""
    topic, other = await make(talk, "t", 3), await make(talk, "u")
    for partition in range(3):
        await write(talk, topic, batch(1, size=400), partition)
    await write(talk, other, batch(1, size=400))

    async def fetch(
        session: int, epoch: int, asked: Answer, forgotten: dict[str, list[int]] | None = None, *, most: int = 1 << 20, limit: int = 1 << 20
    ) -> int:
        topics = [
            {
                "topic": name,
                "partitions": [
                    {"partition": number, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1, "max_bytes": limit}
                    for number, offset in offsets
                ],
            }
            for name, offsets in asked.items()
        ]
        gone = [{"topic": name, "partitions": numbers} for name, numbers in (forgotten or {}).items()]
        fields = {
            "replica_id": -1, "min_bytes": 1, "max_bytes": most, "session_id": session, "session_epoch": epoch, "topics": topics, "forgotten": gone,
            "rack_id": "",
        }  # fmt: skip
        return int((await talk.ask("Fetch", fields))["session_id"])

    all_ = {topic: [(0, 0), (1, 0), (2, 0)], other: [(0, 0)]}
    await fetch(0, -1, all_)
    await fetch(0, -1, all_, most=1_000)
    await fetch(0, -1, all_, most=100)
    await fetch(0, -1, all_, limit=100)
    session = await fetch(0, 0, all_, most=1_000)
    await fetch(session, 1, {}, most=1_000)
    await fetch(session, 2, {}, most=100)
    await fetch(session, 3, {topic: [(0, 1), (1, 1)]}, {topic: [2]})
    await fetch(session, 4, {other: [(0, 1)]})
    await fetch(session, 5, {})
    await fetch(session, 6, {topic: [(0, 9)]})
    await fetch(session, 7, {})
    await fetch(session, 8, {topic: [(0, 1), (9, 0)], talk.topic("none"): [(0, 0)]})
    await fetch(session, 9, {})
    await fetch(session, 10, {}, {topic: [0, 1, 9], other: [0], talk.topic("none"): [0]})
    await fetch(session, 11, {})
    await fetch(session, 0, {topic: [(0, 0)]})
    await fetch(session, 1, {})
    await fetch(77_777, 1, {})
    await fetch(0, 5, {topic: [(0, 0)]})
    await fetch(0, 0, {})


async def of_wrong_writes(talk: Talk) -> None:
    """Write with impossible acks, sequences and producers, and more than one batch at once."""
    topic = await make(talk, "t", 2)
    for acks in (2, -2):
        await write(talk, topic, batch(1), acks=acks)
    await write(talk, topic, batch(1) + batch(1))
    await write(talk, topic, batch(1)[:-3])
    await write(talk, topic, batch(1), -1)
    await write(talk, topic, batch(1), transactional_id=talk.topic("stranger"))
    await write(talk, topic, batch(1, producer=5, epoch=0, sequence=0, transactional=True))
    await write(talk, topic, batch(1, producer=9_999_999, epoch=3, sequence=0x7FFFFFFE))
    for sequence, count in ((0x7FFFFFFF, 2), (1, 1), (0, 1), (2, 1)):
        await write(talk, topic, batch(count, producer=9_999_999, epoch=3, sequence=sequence))
    await read(talk, topic, 0)


# --- transactions ---------------------------------------------------------------------------------------------------------------------------


class Transactional:
    """A transactional id in a conversation."""

    def __init__(self, talk: Talk, name: str) -> None:
        self._talk = talk
        self._name = f"{talk.name}-{name}"
        self.producer = -1
        self._found = False

    async def init(self, producer: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> int:
        fields = {"transactional_id": self._name, "transaction_timeout_ms": timeout_ms, "producer_id": producer, "producer_epoch": epoch}
        if not self._found:
            # Nobody coordinates before somebody has asked who does.
            self._found = True
            await self._talk.settle("FindCoordinator", {"key": self._name, "key_type": 1})
        answer = await self._talk.settle("InitProducerId", fields)
        self.producer = max(self.producer, answer["producer_id"])
        return int(answer["producer_epoch"])

    def _fields(self, epoch: int) -> Answer:
        return {"transactional_id": self._name, "producer_id": self.producer, "producer_epoch": epoch}

    async def add(self, epoch: int, topic: str, partition: int = 0) -> None:
        fields = {**self._fields(epoch), "topics": [{"name": topic, "partitions": [partition]}]}
        await self._talk.settle("AddPartitionsToTxn", fields, lambda answer: [answer["results"][0]["results"][0]["error_code"]])

    async def add_offsets(self, epoch: int, group: str) -> None:
        await self._talk.settle("AddOffsetsToTxn", {**self._fields(epoch), "group_id": group})

    async def commit_offset(self, epoch: int, group: str, topic: str, offset: int, generation: int = -1, member: str = "") -> None:
        one = {"partition": 0, "offset": offset, "leader_epoch": -1, "metadata": "m"}
        fields = {
            **self._fields(epoch), "group_id": group, "generation_id": generation, "member_id": member,
            "topics": [{"name": topic, "partitions": [one]}],
        }  # fmt: skip
        await self._talk.settle("TxnOffsetCommit", fields, lambda answer: [answer["topics"][0]["partitions"][0]["error_code"]])

    async def end(self, epoch: int, *, commit: bool) -> None:
        await self._talk.settle("EndTxn", {**self._fields(epoch), "committed": commit})

    async def describe(self) -> str:
        """Note the state as soon as no markers are left to be written, and return it."""

        async def look() -> Answer | None:
            answer = await self._talk.ask("DescribeTransactions", {"transactional_ids": [self._name]}, quietly=True)
            (one,) = answer["transactions"]
            return None if one["state"].startswith("Prepare") or one["error_code"] in _LATER else answer

        answer = await self._talk.until(look, f"{self._name} without markers to be written")
        self._talk.note("DescribeTransactions", answer)
        return str(answer["transactions"][0]["state"])

    async def expired(self) -> None:
        """Wait until the transaction has ended by itself, and note how."""

        async def look() -> bool | None:
            (one,) = (await self._talk.ask("DescribeTransactions", {"transactional_ids": [self._name]}, quietly=True))["transactions"]
            return one["state"] != "Ongoing" or None

        await self._talk.until(look, f"{self._name} whose transaction has timed out")
        await self.describe()

    async def write(self, topic: str, epoch: int, sequence: int, count: int = 1, partition: int = 0, name: str | None = None) -> None:
        raw = batch(count, producer=self.producer, epoch=epoch, sequence=sequence, transactional=True)
        await write(self._talk, topic, raw, partition, transactional_id=name or self._name)


async def of_transactions(talk: Talk) -> None:
    """Begin, write, commit and abort; come with old epochs, to what was not added, and with another name."""
    topic, one = await make(talk, "t", 2), Transactional(talk, "x")
    await talk.settle("FindCoordinator", {"key": f"{talk.name}-x", "key_type": 1})
    await one.init(timeout_ms=0)
    await one.init(timeout_ms=1_000_000)
    epoch = await one.init()
    await one.end(epoch, commit=True)
    await one.write(topic, epoch, 0)
    await one.add(epoch, topic)
    await one.add(epoch, topic)
    await one.add(epoch, talk.topic("none"))
    await one.add(epoch + 1, topic)
    await one.write(topic, epoch, 0, 2)
    await one.write(topic, epoch, 0, 2)
    await one.write(topic, epoch, 5)
    await one.write(topic, epoch, 0, partition=1)
    await one.write(topic, epoch, 2, name=f"{talk.name}-y")
    await look(talk, topic, -1, committed=True)
    await look(talk, topic, -1)
    await read(talk, topic, 0, committed=True)
    await one.describe()
    await one.end(epoch, commit=True)
    await one.describe()
    await one.end(epoch, commit=True)
    await one.end(epoch, commit=False)
    await one.add(epoch, topic)
    await one.write(topic, epoch, 2)
    await one.end(epoch, commit=False)
    await one.describe()
    await read(talk, topic, 0, committed=True)
    await read(talk, topic, 0)
    await read(talk, topic, 3, committed=True)
    await look(talk, topic, -1, committed=True)


async def of_fencing(talk: Talk) -> None:
    """Take the epoch of a producer, go on after a fault, and time out."""
    topic, one = await make(talk, "t"), Transactional(talk, "x")
    await one.init()
    await one.add(0, topic)
    await one.init(one.producer, 0)
    await one.describe()
    for epoch in (1, 1, 0):
        await one.init(one.producer, epoch)
    await one.init()
    await one.init(one.producer, 2)
    await one.init(one.producer + 77, 3)
    await one.add(3, topic)
    await one.write(topic, 3, 0, 3)
    await one.write(topic, 2, 0)
    await one.init(one.producer, 2)
    await one.describe()
    await one.init(one.producer, 3)
    await one.write(topic, 3, 3)
    await one.init()
    await one.add(5, topic)
    await one.write(topic, 5, 0)
    await one.init()
    await one.describe()
    epoch = await one.init(timeout_ms=300)
    await one.add(epoch, topic)
    await one.expired()
    await one.add(epoch, topic)
    await one.init(one.producer, epoch)
    await one.describe()
    await read(talk, topic, 0, committed=True)


async def of_aborted_ranges(talk: Talk) -> None:
    """Fetch records of transactions that are open, committed and aborted between one another."""
    topic, one, other = await make(talk), Transactional(talk, "x"), Transactional(talk, "y")
    for each in (one, other):
        await each.init()
        await each.add(0, topic)
    await one.write(topic, 0, 0, 2)
    await other.write(topic, 0, 0)
    await write(talk, topic, batch(1))
    await one.write(topic, 0, 2)
    await one.end(0, commit=False)
    await one.describe()
    await look(talk, topic, -1, committed=True)
    await look(talk, topic, _TIME, committed=True)
    for offset in (0, 2, 3):
        await read(talk, topic, offset, committed=True)
    await one.add(0, topic)
    await one.write(topic, 0, 3)
    await other.end(0, commit=False)
    await other.describe()
    for offset in range(9):
        await read(talk, topic, offset, committed=True)
    for limit in (90, 200, 300):
        await read(talk, topic, 0, committed=True, limit=limit)
    await one.end(0, commit=True)
    await one.describe()
    for offset in (0, 3, 5, 6, 7):
        await read(talk, topic, offset, committed=True)
    asked = [{"name": topic, "partitions": [{"partition": 0, "offset": 4}]}]
    await talk.ask("DeleteRecords", {"topics": asked, "timeout_ms": 5_000})
    await read(talk, topic, 4, committed=True)


async def of_strangers(talk: Talk) -> None:
    """Come with ids of transactions and producers that nobody knows, or that are empty."""
    topic, one = await make(talk), Transactional(talk, "x")
    for key, kind in (("", 0), ("", 1)):
        await talk.settle("FindCoordinator", {"key": key, "key_type": kind})
    await talk.settle("FindCoordinator", {"key": f"{talk.name}-x", "key_type": 1})
    await talk.ask("DescribeTransactions", {"transactional_ids": [f"{talk.name}-none", ""]})
    stranger = {"transactional_id": f"{talk.name}-none", "producer_id": 5, "producer_epoch": 0}
    added = {**stranger, "topics": [{"name": topic, "partitions": [0]}]}
    await talk.settle("AddPartitionsToTxn", added, lambda answer: [answer["results"][0]["results"][0]["error_code"]])
    await talk.settle("AddOffsetsToTxn", {**stranger, "group_id": f"{talk.name}-g"})
    await talk.settle("EndTxn", {**stranger, "committed": True})
    await talk.settle("InitProducerId", {"transactional_id": "", "transaction_timeout_ms": 9, "producer_id": -1, "producer_epoch": -1})
    await one.init()
    await one.end(0, commit=False)
    await one.describe()
    await one.init(one.producer, -1)
    await one.init(-1, 0)
    await one.add(0, topic)
    await one.add(0, topic, 9)
    await one.write(topic, 0, 5)
    await one.write(topic, 0, 0)
    await one.describe()


async def of_offsets(talk: Talk) -> None:
    """Commit offsets of a group, alone and in transactions."""
    topic, one, group = await make(talk, "t", 2), Transactional(talk, "x"), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})

    async def commit(offset: int, *, generation: int = -1, member: str = "", name: str = topic, metadata: str | None = "m") -> None:
        asked = [{"partition": 0, "offset": offset, "leader_epoch": 3, "metadata": metadata}]
        fields = {"group_id": group, "generation_id": generation, "member_id": member, "topics": [{"name": name, "partitions": asked}]}
        await talk.settle("OffsetCommit", fields, lambda answer: [answer["topics"][0]["partitions"][0]["error_code"]])

    async def fetch(*, stable: bool = True) -> None:
        fields = {
            "group_id": group,
            "topics": [{"name": topic, "partitions": [0, 1]}, {"name": talk.topic("none"), "partitions": [0]}],
            "require_stable": stable,
        }
        await talk.settle("OffsetFetch", fields)

    await fetch()
    await commit(5)
    await commit(6, metadata=None)
    await commit(7, metadata="x" * 5_000)
    await commit(7, name=talk.topic("none"))
    await commit(7, generation=3, member="stranger")
    await fetch()
    await talk.settle("OffsetFetch", {"group_id": group, "topics": None, "require_stable": True})
    epoch = await one.init()
    await one.commit_offset(epoch, group, topic, 8)
    await one.add_offsets(epoch, group)
    await one.commit_offset(epoch, group, topic, 8)
    await one.commit_offset(epoch + 1, group, topic, 9)
    await fetch()
    await fetch(stable=False)
    await one.end(epoch, commit=True)
    await one.describe()
    await fetch()
    await one.add_offsets(epoch, group)
    await one.commit_offset(epoch, group, topic, 9)
    await one.end(epoch, commit=False)
    await one.describe()
    await fetch()
    await one.add_offsets(epoch, group)
    await one.commit_offset(epoch, group, topic, 10, generation=4, member="stranger")
    await one.end(epoch, commit=True)
    await talk.ask("DescribeGroups", {"groups": [group, f"{group}-none"], "include_operations": True})


# --- groups ---------------------------------------------------------------------------------------------------------------------------------


def _join(group: str, member: str, *, instance: str | None = None, metadata: bytes = b"m", session_ms: int = 10_000) -> Answer:
    return {
        "group_id": group, "session_timeout_ms": session_ms, "rebalance_timeout_ms": 10_000, "member_id": member, "group_instance_id": instance,
        "protocol_type": "consumer", "protocols": [{"name": "p", "metadata": metadata}],
    }  # fmt: skip


def _member(group: str, generation: int, member: str, instance: str | None = None) -> Answer:
    return {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": instance}


async def of_groups(talk: Talk) -> None:
    """Join, assign, send heartbeats, commit and leave, with wrong ids and generations."""
    topic, group = await make(talk), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})
    await talk.settle("JoinGroup", _join(group, "", session_ms=1))
    await talk.settle("JoinGroup", _join(group, "stranger"))
    one = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("JoinGroup", _join(group, one))
    asked = [{"partition": 0, "offset": 1, "leader_epoch": -1, "metadata": ""}]

    async def commit(generation: int, member: str) -> None:
        await talk.settle("OffsetCommit", {**_member(group, generation, member), "topics": [{"name": topic, "partitions": asked}]}, lambda _: ())

    await commit(1, one)
    for generation, member in ((1, one), (2, one), (1, "stranger")):
        await talk.settle("Heartbeat", _member(group, generation, member))
    await talk.settle("SyncGroup", {**_member(group, 1, one), "assignments": [{"member_id": one, "assignment": b"a"}]})
    for generation, member in ((1, one), (0, one), (1, "stranger"), (-1, "")):
        await commit(generation, member)
    await talk.settle("JoinGroup", _join(group, one))
    await talk.settle("SyncGroup", {**_member(group, 1, one), "assignments": []})
    await talk.settle("SyncGroup", {**_member(group, 2, one), "assignments": [{"member_id": one, "assignment": b"b"}]})
    await talk.settle("SyncGroup", {**_member(group, 2, one), "assignments": []})
    await talk.ask("DescribeGroups", {"groups": [group]})
    listed = await talk.ask("ListGroups", quietly=True)
    talk.note("ListGroups", [each for each in listed["groups"] if each["group_id"] == group])
    static = (await talk.settle("JoinGroup", _join(f"{group}s", "", instance="i")))["member_id"]
    await talk.settle("SyncGroup", {**_member(f"{group}s", 1, static, "i"), "assignments": [{"member_id": static, "assignment": b"c"}]})
    again = (await talk.settle("JoinGroup", _join(f"{group}s", "", instance="i")))["member_id"]
    for member in (static, again):
        await talk.settle("Heartbeat", _member(f"{group}s", 1, member, "i"))
    await talk.settle("Heartbeat", _member(f"{group}s", 1, again, "j"))
    await talk.settle("SyncGroup", {**_member(f"{group}s", 1, again, "i"), "assignments": []})
    await talk.settle("LeaveGroup", {"group_id": f"{group}s", "members": [{"member_id": "", "group_instance_id": "i"}]})
    await talk.settle("LeaveGroup", {"group_id": group, "members": [{"member_id": one}, {"member_id": "stranger"}]})
    await talk.settle("Heartbeat", _member(group, 2, one))
    await talk.ask("DescribeGroups", {"groups": [group, f"{group}s"]})


async def of_followers(talk: Talk) -> None:
    """Have a second member come to a group, and go."""
    topic, group = await make(talk), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})

    async def until_in(state: str, members: int) -> None:
        async def look() -> bool | None:
            (found,) = (await talk.ask("DescribeGroups", {"groups": [group]}, quietly=True))["groups"]
            return (found["state"] == state and len(found["members"]) == members) or None

        await talk.until(look, f"{group} with {members} members in {state}")

    async def commit(generation: int, member: str) -> None:
        asked = [{"partition": 0, "offset": generation, "leader_epoch": -1, "metadata": ""}]
        await talk.ask("OffsetCommit", {**_member(group, generation, member), "topics": [{"name": topic, "partitions": asked}]})

    one = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("JoinGroup", _join(group, one))
    await talk.settle("SyncGroup", {**_member(group, 1, one), "assignments": [{"member_id": one, "assignment": b"a"}]})
    other = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("Heartbeat", _member(group, 1, one))
    joining = asyncio.create_task(talk.ask("JoinGroup", _join(group, other), quietly=True, line=1))
    await until_in("PreparingRebalance", 2)
    await talk.settle("Heartbeat", _member(group, 1, one))
    await talk.settle("SyncGroup", {**_member(group, 1, one), "assignments": []})
    await commit(1, one)
    await commit(1, other)
    await talk.ask("DescribeGroups", {"groups": [group]})
    await talk.settle("JoinGroup", _join(group, one))
    talk.note("JoinGroup", await joining)
    for member in (one, other):
        await talk.settle("Heartbeat", _member(group, 2, member))
    await commit(2, one)
    await commit(1, one)
    await talk.ask("DescribeGroups", {"groups": [group]})
    syncing = asyncio.create_task(talk.ask("SyncGroup", _member(group, 2, other), quietly=True, line=1))
    given = [{"member_id": one, "assignment": b"1"}, {"member_id": other, "assignment": b"2"}, {"member_id": "stranger", "assignment": b"3"}]
    await talk.settle("SyncGroup", {**_member(group, 2, one), "assignments": given})
    talk.note("SyncGroup", await syncing)
    await commit(2, other)
    # A follower that joins again as it was gets what it had.
    await talk.settle("JoinGroup", _join(group, other))
    await talk.settle("SyncGroup", _member(group, 2, other))
    await talk.settle("LeaveGroup", {"group_id": group, "members": [{"member_id": one}]})
    for member in (one, other):
        await talk.settle("Heartbeat", _member(group, 2, member))
    await talk.settle("JoinGroup", _join(group, other))
    await talk.ask("DescribeGroups", {"groups": [group]})
    await talk.settle("LeaveGroup", {"group_id": group, "members": [{"member_id": other}]})
    await talk.ask("DescribeGroups", {"groups": [group]})
    await commit(3, other)
    await commit(-1, "")


async def of_static_members(talk: Talk) -> None:
    """Have members with instance ids be replaced, fenced, and sent away by others."""
    topic, group = await make(talk), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})
    old = (await talk.settle("JoinGroup", _join(group, "", instance="i")))["member_id"]
    await talk.settle("SyncGroup", {**_member(group, 1, old, "i"), "assignments": [{"member_id": old, "assignment": b"a"}]})

    async def commit(generation: int, member: str, instance: str | None) -> None:
        asked = [{"partition": 0, "offset": 1, "leader_epoch": -1, "metadata": ""}]
        fields = {**_member(group, generation, member, instance), "topics": [{"name": topic, "partitions": asked}]}
        await talk.ask("OffsetCommit", fields)

    await commit(1, old, "i")
    await commit(1, old, None)
    new = (await talk.settle("JoinGroup", _join(group, "", instance="i")))["member_id"]
    for member, instance in ((old, "i"), (new, "i"), (new, "j"), (old, None), (new, None)):
        await commit(1, member, instance)
        await talk.settle("Heartbeat", _member(group, 1, member, instance))
        await talk.settle("SyncGroup", _member(group, 1, member, instance))
    await talk.settle("JoinGroup", _join(group, old, instance="i"))
    await talk.settle("JoinGroup", _join(group, "stranger", instance="k"))
    await talk.ask("DescribeGroups", {"groups": [group]})
    # With other metadata its place is not simply its predecessor's.
    last = (await talk.settle("JoinGroup", _join(group, "", instance="i", metadata=b"other")))["member_id"]
    await talk.ask("DescribeGroups", {"groups": [group]})
    leaving = ((old, "i"), ("", "j"), ("stranger", "i"), ("", "i"), (last, "i"))
    await talk.settle(
        "LeaveGroup", {"group_id": group, "members": [{"member_id": each, "group_instance_id": instance} for each, instance in leaving]}
    )
    await talk.ask("DescribeGroups", {"groups": [group]})


async def of_wrong_members(talk: Talk) -> None:
    """Join with other protocols, without any, and a group without a name; commit what belongs to no member."""
    topic, group = await make(talk), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})
    none = f"{group}-none"
    await talk.settle("Heartbeat", _member(none, 1, "stranger"))
    await talk.settle("SyncGroup", _member(none, 1, "stranger"))
    await talk.settle("LeaveGroup", {"group_id": none, "members": [{"member_id": "stranger"}, {"member_id": "", "group_instance_id": "i"}]})
    await talk.settle("OffsetFetch", {"group_id": none, "topics": None, "require_stable": True})
    await talk.settle("JoinGroup", _join("", ""))
    await talk.settle("JoinGroup", _join(group, "", session_ms=2_000_000))
    await talk.settle("Heartbeat", _member("", 1, "stranger"))
    one = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("JoinGroup", _join(group, one))
    await talk.settle("JoinGroup", {**_join(group, ""), "protocol_type": "connect"})
    await talk.settle("JoinGroup", {**_join(group, ""), "protocols": [{"name": "q", "metadata": b""}]})
    await talk.settle("JoinGroup", {**_join(group, ""), "protocols": []})
    await talk.ask("DescribeGroups", {"groups": [group]})
    asked = [{"partition": number, "offset": 1, "leader_epoch": -1, "metadata": ""} for number in (0, 9)]
    for generation, member in ((-1, ""), (-1, one), (1, "")):
        await talk.ask("OffsetCommit", {**_member(group, generation, member), "topics": [{"name": topic, "partitions": asked}]})
    await talk.ask("OffsetCommit", {**_member(none, 1, "x"), "topics": [{"name": topic, "partitions": asked}]})


async def of_offsets_of_members(talk: Talk) -> None:
    """Commit offsets of members in transactions, in and out of their generations."""
    topic, one, group = await make(talk), Transactional(talk, "x"), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})
    member = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("JoinGroup", _join(group, member))
    await one.init()
    await one.add_offsets(0, group)
    await one.commit_offset(0, group, topic, 1, 1, member)
    await talk.settle("SyncGroup", {**_member(group, 1, member), "assignments": [{"member_id": member, "assignment": b"a"}]})
    for generation, name in ((1, member), (2, member), (1, "stranger"), (1, ""), (-1, ""), (-1, member)):
        await one.commit_offset(0, group, topic, 2, generation, name)
    await one.commit_offset(0, group, talk.topic("none"), 2, 1, member)
    await one.end(0, commit=True)
    await one.describe()
    await talk.settle("OffsetFetch", {"group_id": group, "topics": None, "require_stable": True})


CONVERSATIONS: Final = (
    of_topics, of_configs, of_wrong_topics, of_writes, of_wrong_writes, of_fetches, of_sessions, of_deleted_records, of_leader_epochs, of_times,
    of_transactions, of_aborted_ranges, of_fencing, of_strangers, of_offsets, of_groups, of_followers, of_static_members, of_wrong_members,
    of_offsets_of_members,
)  # fmt: skip
