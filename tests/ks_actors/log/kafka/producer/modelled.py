"""Leaders and coordinators in this process and in virtual time, as producers see them: sequence numbers, epochs, transactions, lost answers.

The client is the real one; requests to single brokers are answered here. Answers are Kafka's, by its sources: see the functions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from aiokafka.record.default_records import DefaultRecordBatch  # type: ignore[import-untyped]

from ks_actors import LogClosed
from ks_actors.log import TopicPartition
from ks_actors.log.kafka.client import Unavailable
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._known_topics import TopicMetadata
from ks_actors.log.kafka.producer import NOBODY, Identity
from ks_actors.log.kafka.wire import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.log.kafka import KafkaOptions

OUT_OF_RANGE, NOT_LEADER, TIMED_OUT, TOO_LARGE, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS = 1, 6, 7, 10, 16, 19
NOT_AVAILABLE, OUT_OF_ORDER, INVALID_EPOCH, INVALID_STATE, UNKNOWN_ID, CONCURRENT, UNSTABLE, FENCED, NO_SUCH_ID = 78, 45, 47, 48, 49, 51, 88, 90, 105
# The answers of a leader that has written the records all the same.
AFTER_THE_FACT: Final = frozenset({TIMED_OUT, 20, 46})
# Whoever asks by this replica id gets the end of a log in place of its high watermark.
DEBUGGER: Final = -2
_SEQUENCES: Final = 2**31
_REMEMBERED: Final = 5


@dataclass
class Entry:
    """A record batch, or an end marker without values, in the log of a partition."""

    base: int
    count: int
    writer: Identity
    sequence: int
    values: list[bytes]
    raw: bytes
    # "plain", "open", "commit" or "abort".
    state: str

    @property
    def end(self) -> int:
        return self.base + self.count


@dataclass
class Writer:
    """The state that a leader has of a producer: its epoch, and sequence, count and offset of its last batches."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


@dataclass
class Partition:
    leader: int
    entries: list[Entry] = field(default_factory=list)
    writers: dict[int, Writer] = field(default_factory=dict)
    begin: int = 0
    # The values of acknowledged or unacknowledged records that a leader has lost.
    lost: set[bytes] = field(default_factory=set)
    # Followers do not follow until then: no record from `seen` on is visible.
    lags_until: float = 0.0
    seen: int = 0
    # The end of the log when its leader was elected.
    elected_at: int = 0

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.begin

    def lag(self, seconds: float) -> None:
        """Have followers not follow for some time."""
        self.lags_until = asyncio.get_running_loop().time() + seconds

    def values(self) -> list[bytes]:
        """The values that readers of committed records get."""
        return [value for entry in self.entries if entry.state in {"plain", "commit"} for value in entry.values]


@dataclass
class Transaction:
    """The coordinator's state of a transactional id."""

    identity: Identity
    timeout_ms: int
    state: str = "Empty"
    # The epoch before the last one that a producer has got, for its repeated requests.
    last: int = -1
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    number: int = 0


class Cluster:
    """Brokers by number. `codes` has, by the name of a request, codes to be answered first, or functions that return one."""

    def __init__(self, partitions: Iterable[TopicPartition], *, brokers: int = 1, seed: int = 0, way_s: float = 0.001) -> None:
        self.random = Random(seed)
        self.nodes = list(range(1, brokers + 1))
        self.partitions = {each: Partition(self.random.choice(self.nodes)) for each in partitions}
        self.coordinator = self.random.choice(self.nodes)
        self.transactions: dict[str, Transaction] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.codes: defaultdict[str, list[int | Callable[[], int | None]]] = defaultdict(list)
        # The epochs that an abort by the coordinator adds, and whether it then takes a request that follows the one before (see `_fence`).
        self.fencing: tuple[int, bool] = (1, True)
        self.limit = 1_000_000
        self.lagging_metadata = False
        self.away: set[int] = set()
        self.requests: list[str] = []
        self._way_s = way_s
        self._frozen: dict[int, asyncio.Event] = {}
        self._lines: defaultdict[tuple[int, int, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._breaks: list[tuple[int, asyncio.Future[None]]] = []
        self._ids = 100
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- what happens to it ---------------------------------------------------------------------------------------------------

    def lead(self, partition: TopicPartition, node: int) -> None:
        """Make another broker the leader, which knows all that the old one did."""
        part = self.partitions[partition]
        part.leader, part.elected_at = node, part.end

    def lose_records(self, partition: TopicPartition, count: int) -> None:
        """Elect a leader that lacks the last batches, and knows of producers what its log tells."""
        part = self.partitions[partition]
        while part.entries and count > 0:
            part.lost.update(part.entries.pop().values)
            count -= 1
        part.seen, part.elected_at = min(part.seen, part.end), part.end
        part.writers = {}
        for entry in part.entries:
            self._note(part, entry)

    def forget(self, partition: TopicPartition, *, last: int) -> None:
        """Restart a leader, which knows the last batches of each producer alone; without any it knows no producer."""
        part = self.partitions[partition]
        part.elected_at = part.end
        for writer in part.writers.values():
            while len(writer.batches) > last:
                writer.batches.popleft()
        if not last:
            part.writers.clear()

    def coordinate(self, node: int) -> None:
        """Make another broker the coordinator, which does not know the epochs before the present ones (TransactionLog.readTxnRecordValue)."""
        self.coordinator = node
        for known in self.transactions.values():
            known.last = -1

    def lose_transactions(self) -> None:
        """Have the coordinator forget what is open, as one does that has lost the end of its log."""
        for known in self.transactions.values():
            if known.state == "Ongoing":
                known.state, known.partitions, known.groups, known.offsets = "Empty", set(), set(), {}

    def delete_records(self, partition: TopicPartition) -> None:
        """Have retention delete all records; leaders remember producers beyond that."""
        part = self.partitions[partition]
        part.begin, part.entries = part.end, []

    def freeze(self, node: int) -> None:
        """Have a broker read nothing until `thaw`."""
        self._frozen.setdefault(node, asyncio.Event())

    def thaw(self, node: int) -> None:
        """Have a broker go on."""
        if node in self._frozen:
            self._frozen.pop(node).set()

    def break_connections(self, node: int) -> None:
        """Break all connections to a broker; it may act on requests that are under way."""
        for where, broken in self._breaks:
            if where == node and not broken.done():
                broken.set_result(None)

    def restart(self, node: int) -> None:
        """Restart a broker: as a leader it knows the last batch of each producer alone."""
        self.break_connections(node)
        for place, part in self.partitions.items():
            if part.leader == node:
                self.forget(place, last=1)

    def take_away(self, node: int) -> None:
        """Have a broker take no connections."""
        self.away.add(node)
        self.break_connections(node)

    def mend(self) -> None:
        """Have all be well from now on."""
        self.limit, self.lagging_metadata = 1_000_000, False
        self.away.clear()
        self.codes.clear()
        for node in self.nodes:
            self.thaw(node)

    async def rest(self) -> None:
        """Wait until requests that nobody waits for are done, and all end markers written."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- the way to it --------------------------------------------------------------------------------------------------------

    def connect(self, options: KafkaOptions) -> KafkaClient:
        """Return a client of this cluster."""
        client = KafkaClient("broker:9092", options, client_id="c")
        changed: Any = client
        number = self._ids = self._ids + 1

        async def send(node: int, request: Any, *, channel: str = "", timeout_ms: int | None = None) -> Any:
            client._check()
            limit_s = (options.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
            return await self._send(client, (number, node, channel), request, limit_s)

        async def refresh(topics: Iterable[str] = ()) -> None:
            client._check()
            await asyncio.sleep(self._way_s)
            if not self.lagging_metadata:
                self._tell(client)

        changed.send, changed.refresh, changed.connect_ahead = send, refresh, lambda *_: None
        self._tell(client)
        return client

    def _tell(self, client: KafkaClient) -> None:
        leaders: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for (topic, number), part in self.partitions.items():
            leaders[topic][number] = part.leader
        client._topics.found = {topic: TopicMetadata(topic, numbers) for topic, numbers in leaders.items()}
        client._topics._answered = set(leaders)
        client._cluster.list("", {node: ("broker", node) for node in self.nodes}, self.nodes[0])

    async def _send(self, client: KafkaClient, line: tuple[int, int, str], request: Any, limit_s: float) -> Any:
        node = line[1]
        if node in self.away:
            await asyncio.sleep(self._way_s)
            raise Unavailable(f"broker {node} is away", away=True)
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()
        entry = (node, broken)
        self._breaks.append(entry)
        # It goes on when nobody waits any more, as at a real broker.
        answer = asyncio.create_task(self._answer(line, self._lines[line], request, broken))
        self._tasks.add(answer)
        answer.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait((answer, broken), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            client._connections.lost += 1
            self._lines.pop(line, None)
            raise
        finally:
            self._breaks.remove(entry)
        if client._closed:
            raise LogClosed("closed")
        if answer.done() and not broken.done():
            return answer.result()
        client._connections.lost += 1
        # A new connection: its requests may overtake those of the old one.
        self._lines.pop(line, None)
        raise Unavailable("the connection broke" if broken.done() else "no answer")

    async def _answer(self, line: tuple[int, int, str], lock: asyncio.Lock, request: Any, broken: asyncio.Future[None]) -> Any:
        async with lock:
            await self._way()
            while line[1] in self._frozen:
                await self._frozen[line[1]].wait()
            if broken.done() and self.random.random() < 0.5:
                return None
            name = (request.struct if hasattr(request, "struct") else type(request)).__name__.split("Request")[0].lstrip("_")
            self.requests.append(name)
            response = getattr(self, f"_on_{_snake(name)}")(line[1], request)
            await self._way()
            return response

    async def _way(self) -> None:
        await asyncio.sleep(self._way_s * self.random.choice((0.2, 1, 1, 5)))

    def _fault(self, name: str) -> int:
        fault = self.codes[name].pop(0) if self.codes[name] else 0
        return fault if isinstance(fault, int) else fault() or 0

    # --- leaders --------------------------------------------------------------------------------------------------------------

    def _on_produce(self, node: int, request: Any) -> Any:
        topics = []
        for topic, batches in request._topics:
            rows: list[Any] = []
            for number, raw in batches:
                code, offset = self._append(node, TopicPartition(topic, number), bytes(raw), request._transactional_id)
                rows.append((number, code, -1 if code else offset, -1, 0, [], None))
            topics.append((topic, rows))
        return SimpleNamespace(topics=topics)

    def _append(self, node: int, place: TopicPartition, raw: bytes, name: str | None) -> tuple[int, int]:
        """Return a code, and the offset of the batch, also of one that was written before."""
        part = self.partitions[place]
        if part.leader != node:
            return NOT_LEADER, -1
        fault = self._fault("Produce")
        if fault and fault not in AFTER_THE_FACT:
            return fault, -1
        *_, producer_id, epoch, sequence, count = HEADER.unpack_from(raw)
        writer = Identity(producer_id, epoch)
        code, base = self._judge(place, len(raw), writer, sequence, count, name)
        if code or base >= 0:
            return code or fault or self._replicated(part), base
        base = part.end
        stored = base.to_bytes(8, "big") + raw[8:]
        values = [record.value for record in DefaultRecordBatch(stored)]
        entry = Entry(base, count, writer, sequence, values, stored, "plain" if name is None else "open")
        part.entries.append(entry)
        self._note(part, entry)
        return fault or self._replicated(part), base

    def _judge(self, place: TopicPartition, size: int, writer: Identity, sequence: int, count: int, name: str | None) -> tuple[int, int]:
        """Do as UnifiedLog.append and ProducerAppendInfo: look at the size, then at duplicates, epoch, transaction and sequence."""
        known = self.partitions[place].writers.get(writer.producer_id)
        same = known is not None and known.epoch == writer.epoch
        last = known.batches[-1] if known is not None and same and known.batches else (0, 0, -1)
        base = next((base for first, number, base in known.batches if (first, number) == (sequence, count)), -1) if known and same else -1
        code = 0
        if size > self.limit:
            code = TOO_LARGE
        elif known is not None and base < 0:
            if writer.epoch < known.epoch:
                code = INVALID_EPOCH
            elif sequence != (last[0] + last[1]) % _SEQUENCES:
                code = OUT_OF_ORDER
        if not code and base < 0 and name is not None:
            code = self._verify(name, writer, place)
        return code, -1 if code else base

    def _replicated(self, part: Partition) -> int:
        if asyncio.get_running_loop().time() < part.lags_until:
            return TIMED_OUT
        part.seen = part.end
        return 0

    @staticmethod
    def _note(part: Partition, entry: Entry) -> None:
        writer = part.writers.get(entry.writer.producer_id)
        if writer is None or entry.writer.epoch > writer.epoch:
            writer = part.writers[entry.writer.producer_id] = Writer(entry.writer.epoch)
        if entry.values:
            writer.batches.append((entry.sequence, entry.count, entry.base))

    def _high(self, part: Partition) -> int:
        if asyncio.get_running_loop().time() >= part.lags_until:
            part.seen = part.end
        return part.seen

    def _stable(self, part: Partition) -> int:
        return min([self._high(part), *(entry.base for entry in part.entries if entry.state == "open")])

    def _on_fetch(self, node: int, request: Any) -> Any:
        ((topic, ((number, offset, _),)),) = request.fields[4]
        part = self.partitions[TopicPartition(topic, number)]
        high, code = self._high(part), self._fault("Fetch")
        if part.leader != node:
            code = NOT_LEADER
        elif not part.begin <= offset <= part.end:
            code = OUT_OF_RANGE
        raw = b"".join(entry.raw for entry in part.entries if offset < entry.end <= high)
        row: Any = (number, code, high, self._stable(part), part.begin, [], -1, None, b"" if code else raw)
        return SimpleNamespace(error_code=0, topics=[(topic, [row])])

    def _on_offset(self, node: int, request: Any) -> Any:
        topics = []
        for topic, asked in request._topics:
            rows: list[Any] = []
            for number, which in asked:
                part = self.partitions[TopicPartition(topic, number)]
                if part.leader != node:
                    rows.append((number, NOT_LEADER, -1, -1))
                    continue
                debugging = request._replica_id == DEBUGGER
                end = part.end if debugging else self._stable(part) if request._isolation_level else self._high(part)
                late = which == -1 and part.seen < part.elected_at and not debugging
                rows.append((number, NOT_AVAILABLE if late else 0, -1, part.begin if which == -2 else end))
            topics.append((topic, rows))
        return SimpleNamespace(topics=topics)

    def _on_describe_configs(self, _: int, request: Any) -> Any:
        configs = [("max.message.bytes", str(self.limit))]
        return SimpleNamespace(resources=[(0, None, 2, name, configs) for _, name, _ in request._resources])

    # --- coordinators ---------------------------------------------------------------------------------------------------------

    def _on_find_coordinator(self, _: int, __: Any) -> Any:
        code = self._fault("FindCoordinator")
        return SimpleNamespace(error_code=code, error_message=None, coordinator_id=self.coordinator, host="broker", port=self.coordinator)

    def _on_init_producer_id(self, node: int, request: Any) -> Any:
        name, timeout_ms, producer_id, epoch, _ = request.fields
        code, got = self._init(node, name, timeout_ms, Identity(producer_id, epoch))
        return SimpleNamespace(error_code=code, producer_id=got.producer_id, producer_epoch=got.epoch)

    def _init(self, node: int, name: str | None, timeout_ms: int, expected: Identity) -> tuple[int, Identity]:
        """Give an epoch as TransactionCoordinator.prepareInitProducerIdTransit does."""
        code = self._fault("InitProducerId")
        if code or (name is not None and node != self.coordinator):
            return code or NOT_COORDINATOR, NOBODY
        known = self.transactions.get(name or "")
        if known is None:
            self._ids += 1
            known = Transaction(Identity(self._ids, -1), timeout_ms)
            if name is not None:
                self.transactions[name] = known
        elif known.state.startswith("Prepare"):
            code = CONCURRENT
        elif expected != NOBODY and expected.producer_id != known.identity.producer_id:
            code = FENCED
        elif known.state == "Ongoing":
            self._fence(known)
            code = CONCURRENT
        elif expected.epoch not in {NOBODY.epoch, known.identity.epoch}:
            if expected.epoch != known.last:
                return FENCED, NOBODY
            # A repeated request of the producer that has got the present epoch.
            known.state = "Empty"
            return 0, known.identity
        if code:
            return code, NOBODY
        known.last = known.identity.epoch if expected != NOBODY else -1
        known.identity = Identity(known.identity.producer_id, known.identity.epoch + 1)
        known.state, known.timeout_ms = "Empty", timeout_ms
        return 0, known.identity

    def _check(self, node: int, request: Any, kind: str) -> tuple[int, Transaction | None]:
        code = self._fault(kind)
        if code:
            return code, None
        if node != self.coordinator:
            return NOT_COORDINATOR, None
        known = self.transactions.get(request._transactional_id)
        if known is None or known.identity.producer_id != request._producer_id:
            return UNKNOWN_ID, None
        if known.identity.epoch != request._producer_epoch:
            return INVALID_EPOCH, None
        return (CONCURRENT if known.state.startswith("Prepare") else 0), known

    def _verify(self, name: str, identity: Identity, place: TopicPartition) -> int:
        """Check a transaction's first batch of a partition with the coordinator, as AddPartitionsToTxnManager does for older clients."""
        if any(entry.state == "open" and entry.writer == identity for entry in self.partitions[place].entries):
            return 0
        known = self.transactions.get(name)
        if known is None or known.identity != identity:
            return INVALID_EPOCH
        if known.state.startswith("Prepare"):
            return NOT_ENOUGH_REPLICAS
        return 0 if known.state == "Ongoing" and place in known.partitions else INVALID_STATE

    def _enter(self, known: Transaction) -> None:
        if known.state == "Ongoing":
            return
        known.state, known.number = "Ongoing", known.number + 1
        asyncio.get_running_loop().call_later(known.timeout_ms / 1000, self._time_out, known, known.number)

    def _time_out(self, known: Transaction, number: int) -> None:
        if known.state == "Ongoing" and known.number == number:
            self._fence(known)

    def _fence(self, known: Transaction) -> None:
        """Abort with the next epoch, which the producer of the present one gets if it asks for the next; with Kafka 4.0.0, or in transaction
        version 1, it has to ask for the one after the abort's (TransactionMetadata.prepareFenceProducerEpoch, KAFKA-19367)."""
        added, continued = self.fencing
        known.last = known.identity.epoch if continued else -1
        known.identity = Identity(known.identity.producer_id, known.identity.epoch + added)
        self._finish(known, "abort")

    def _on_add_partitions_to_txn(self, node: int, request: Any) -> Any:
        code, known = self._check(node, request, "AddPartitionsToTxn")
        if not code and known is not None:
            self._enter(known)
            known.partitions |= {TopicPartition(topic, number) for topic, numbers in request._topics for number in numbers}
        return SimpleNamespace(errors=[(topic, [(number, code) for number in numbers]) for topic, numbers in request._topics])

    def _on_add_offsets_to_txn(self, node: int, request: Any) -> Any:
        code, known = self._check(node, request, "AddOffsetsToTxn")
        if not code and known is not None:
            self._enter(known)
            known.groups.add(request._group_id)
        return SimpleNamespace(error_code=code)

    def _on_txn_offset_commit(self, node: int, request: Any) -> Any:
        name, group, producer_id, epoch, _, _, _, topics, _ = request.fields
        code, known = self._fault("TxnOffsetCommit"), self.transactions.get(name)
        if not code and node != self.coordinator:
            code = NOT_COORDINATOR
        elif not code and (known is None or known.identity != (producer_id, epoch)):
            code = INVALID_EPOCH
        elif not code and (known is None or group not in known.groups or known.state != "Ongoing"):
            code = INVALID_STATE
        elif not code and known is not None:
            known.offsets |= {(group, TopicPartition(topic, number)): offset for topic, rows, _ in topics for number, offset, *_ in rows}
        return SimpleNamespace(topics=[(topic, [(number, code, {}) for number, *_ in rows], {}) for topic, rows, _ in topics])

    def _on_end_txn(self, node: int, request: Any) -> Any:
        code, known = self._check(node, request, "EndTxn")
        if known is not None and code in {0, CONCURRENT}:
            outcome = "commit" if request._transaction_result else "abort"
            code = 0 if known.state == "Complete" + outcome.title() else CONCURRENT if known.state.startswith("Prepare") else INVALID_STATE
            if known.state == "Ongoing":
                self._finish(known, outcome)
                code = 0
        return SimpleNamespace(error_code=code)

    def _finish(self, known: Transaction, outcome: str) -> None:
        known.state = "Prepare" + outcome.title()
        task = asyncio.create_task(self._write_markers(known, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_markers(self, known: Transaction, outcome: str) -> None:
        for place in sorted(known.partitions):
            part = self.partitions[place]
            await self._way()
            while part.leader in self.away or part.leader in self._frozen:
                await asyncio.sleep(0.05)
            for entry in part.entries:
                if entry.state == "open" and entry.writer.producer_id == known.identity.producer_id:
                    entry.state = outcome
            marker = Entry(part.end, 1, known.identity, -1, [], b"", "marker")
            part.entries.append(marker)
            self._note(part, marker)
        if outcome == "commit":
            self.offsets |= known.offsets
        known.state = "Complete" + outcome.title()
        known.partitions, known.groups, known.offsets = set(), set(), {}

    def _on_describe_transactions(self, node: int, request: Any) -> Any:
        name = request.fields[0][0]
        known, code = self.transactions.get(name), self._fault("DescribeTransactions")
        if not code and node != self.coordinator:
            code = NOT_COORDINATOR
        elif not code and known is None:
            code = NO_SUCH_ID
        row: Any = (code, name, "", 0, 0, *NOBODY, []) if known is None or code else (0, name, known.state, known.timeout_ms, 0, *known.identity, [])
        return SimpleNamespace(transactions=[row])

    def _on_describe_groups(self, node: int, request: Any) -> Any:
        code = NOT_COORDINATOR if node != self.coordinator else 0
        return SimpleNamespace(groups=[(code, request._groups[0], "Empty", "", "", [])])

    def _on_offset_fetch(self, node: int, request: Any) -> Any:
        group, topics, *_ = request.fields
        pending = {place for known in self.transactions.values() for name, place in known.offsets if name == group}
        topics_found: list[Any] = []
        for topic, numbers, _ in topics or []:
            rows: list[Any] = []
            for number in numbers:
                place = TopicPartition(topic, number)
                rows.append((number, self.offsets.get((group, place), -1), -1, "", UNSTABLE if place in pending else 0, {}))
            topics_found.append((topic, rows, {}))
        return SimpleNamespace(error_code=NOT_COORDINATOR if node != self.coordinator else 0, topics=topics_found)


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")
