"""A conversation with a broker: requests, and what is to be the same in the answers of a real and a simulated one."""

from __future__ import annotations

import asyncio
from collections import Counter
from operator import itemgetter
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tests.simulation.batches import HEADER, TRANSACTIONAL, Record, build, sealed
from tests.simulation.messages import APIS
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")
Answer = dict[str, Any]
# A broker that is loading, looking for something, or still busy with the last transaction.
LATER: Final = frozenset({5, 14, 15, 16, 51})
# Records of long ago would be deleted, and the next ones have a segment of their own, at which a fetch ends.
TIME: Final = time_ns() // 1_000_000
PAUSE_S: Final = 0.02
SHOWN: Final = ("cleanup.policy", "max.message.bytes", "min.insync.replicas", "segment.bytes")


class Asks(Protocol):
    """Send the bytes of a request to a broker, and return those of the answer, without their lengths."""

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
            await asyncio.sleep(PAUSE_S)
        return found

    async def settle(
        self, what: str, fields: Answer, codes: Callable[[Answer], Iterable[int]] = lambda answer: [answer["error_code"]], *, line: int = 0
    ) -> Answer:
        """Ask until the broker no longer says that it needs a moment, and note the last answer."""

        async def look() -> Answer | None:
            answer = await self.ask(what, fields, quietly=True, line=line)
            return answer if LATER.isdisjoint(codes(answer)) else None

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
    records = tuple(Record(index, TIME + index, b"k", b"v" * size, ()) for index in range(count))
    return sealed(build(records, count, 0), producer, epoch, sequence, attributes=TRANSACTIONAL if transactional else 0)


def new_topic(name: str, partitions: int = 1, replication: int = 1, /, **configs: str) -> Answer:
    listed = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": replication, "configs": listed}


async def make(talk: Talk, name: str = "t", partitions: int = 1, **configs: str) -> str:
    """Make a topic, and wait until it can be used."""
    topic = talk.topic(name)
    await talk.ask("CreateTopics", {"topics": [new_topic(topic, partitions, **configs)], "timeout_ms": 5_000})
    await until_led(talk, topic, partitions)
    return topic


async def until_led(talk: Talk, topic: str, partitions: int) -> None:
    """Wait until all partitions of a topic have a leader that knows that it leads: metadata has it before."""
    asked = [{"name": topic, "partitions": [{"partition": number, "timestamp": -1} for number in range(partitions)]}]

    async def look() -> bool | None:
        found = await talk.ask("ListOffsets", {"replica_id": -1, "topics": asked}, quietly=True)
        led = all(each["error_code"] == 0 for each in found["topics"][0]["partitions"])
        (known,) = (await talk.ask("Metadata", {"topics": [{"name": topic}]}, version=10, quietly=True))["topics"]
        return (led and len(known["partitions"]) == partitions and all(each["leader_id"] >= 0 for each in known["partitions"])) or None

    await talk.until(look, f"{partitions} partitions of {topic} that are led")


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
