"""The cluster as its controller has it: topics, leaders and their logs; each broker learns of a change a moment later."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict, deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ks_actors.records import TopicPartition
from tests.simulation.broker import Broker
from tests.simulation.logs import Log
from tests.simulation.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.simulation.groups import Stored
    from tests.simulation.trace import Trace
    from tests.simulation.transactions import Transactional

NO_LEADER: Final = -1
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
DEFAULTS: Final = {
    "cleanup.policy": "delete", "compression.gzip.level": "-1", "compression.lz4.level": "9", "compression.type": "producer",
    "compression.zstd.level": "3", "delete.retention.ms": "86400000", "errors.deadletterqueue.group.enable": "false",
    "file.delete.delay.ms": "60000", "flush.messages": "9223372036854775807", "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "", "index.interval.bytes": "4096", "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2", "local.retention.ms": "-2", "max.compaction.lag.ms": "9223372036854775807",
    "max.decompressed.message.bytes": "2147483639", "max.message.bytes": "1048588", "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807", "message.timestamp.type": "CreateTime", "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0", "min.insync.replicas": "1", "preallocate": "false", "remote.copy.lag.bytes": "-1", "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false", "remote.log.delete.on.disable": "false", "remote.storage.enable": "false", "retention.bytes": "-1",
    "retention.ms": "604800000", "segment.bytes": "1073741824", "segment.index.bytes": "10485760", "segment.jitter.ms": "0",
    "segment.ms": "604800000", "unclean.leader.election.enable": "false",
}  # fmt: skip
"""The configs of topics in Kafka 4.4."""


class TopicImage(NamedTuple):
    """A topic as brokers know it: its id, and the leader, the leader epoch and the replicas of each partition."""

    id: bytes
    internal: bool
    partitions: tuple[tuple[int, int, tuple[int, ...]], ...]


class Image(NamedTuple):
    """The cluster as a broker knows it; a higher version is a newer one."""

    version: int
    topics: Mapping[str, TopicImage]
    alive: tuple[int, ...]


@dataclass
class Partition:
    """A partition: its leader, and the leader's log. `logs` has all logs that it had, the present one last."""

    name: TopicPartition
    replicas: tuple[int, ...]
    leader: int
    epoch: int = 0
    log: Log = field(default_factory=Log)
    # The replicas that have all that consumers may read; one of them is next to lead.
    in_sync: set[int] = field(default_factory=set)


@dataclass
class Topic:
    """A topic; one of the same name that is made anew has another id."""

    name: str
    id: bytes
    configs: dict[str, str]
    partitions: list[Partition]
    # The configs that it has been given, with their defaults or not.
    given: set[str]

    @property
    def internal(self) -> bool:
        return self.name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

    @property
    def limit(self) -> int:
        """The most bytes of a record batch."""
        return int(self.configs["max.message.bytes"])


class Offsets:
    """The offsets of a group: those that are in force, and those of open transactions, by producer."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, dict[str, Any]] = {}
        self._pending: dict[int, dict[TopicPartition, dict[str, Any]]] = {}

    @property
    def known(self) -> bool:
        """Whether there are any."""
        return bool(self.committed or self._pending)

    @property
    def unstable(self) -> dict[TopicPartition, None]:
        """The partitions whose offsets an open transaction may change."""
        return {partition: None for pending in self._pending.values() for partition in pending}

    @property
    def all(self) -> dict[TopicPartition, object]:
        """The partitions that have offsets, or may get some."""
        return {**self.committed, **self.unstable}

    def commit(self, offsets: dict[TopicPartition, dict[str, Any]]) -> None:
        """Set offsets."""
        self.committed.update(offsets)

    def note(self, producer: int, offsets: dict[TopicPartition, dict[str, Any]]) -> None:
        """Keep offsets of a producer until its transaction ends."""
        self._pending.setdefault(producer, {}).update(offsets)

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """Set a producer's offsets, or drop them."""
        pending = self._pending.pop(producer, {})
        if commit:
            self.committed.update(pending)


class Manners(NamedTuple):
    """How a cluster behaves that works: seconds that things take."""

    # Until brokers learn of a change, until followers have what was written, until a broker that does not answer is given up.
    lag: float
    replication: float
    fencing: float
    loading: float
    # The fetch sessions that a broker keeps.
    sessions: int
    # Until a group without members waits for more, and until brokers look for transactions that have timed out.
    first_join: float
    transaction_look: float


def draw_manners(random: Random) -> Manners:
    """Return the manners of a seed's cluster."""
    return Manners(
        lag=random.choice([0.002, 0.02, 0.02, 0.3]),
        replication=random.choice([0.0, 0.002, 0.02]),
        fencing=random.choice([0.2, 1.0, 3.0]),
        loading=random.choice([0.0, 0.02, 0.5]),
        sessions=random.choice([0, 1, 2, 10, 10]),
        first_join=random.choice([0.0, 0.0, 0.1, 3.0]),
        transaction_look=random.choice([0.05, 1.0, 10.0]),
    )


def draw_fencing(seed: int) -> tuple[int, bool]:
    """Return how a seed's coordinators abort: as Kafka 4.4 does, in transaction version 1, or as Kafka 4.0.0."""
    return Random(f"fencing {seed}").choice([(1, True), (1, False), (2, False)])


class Cluster:
    """Brokers, and what their controller decides. `truth` is the newest image."""

    def __init__(self, brokers: int, random: Random, trace: Trace, manners: Manners) -> None:
        self.random: Random = random
        self.trace: Trace = trace
        self.manners: Manners = manners
        self.network: Network = Network(random, trace)
        self.topics: dict[str, Topic] = {}
        self.brokers: dict[int, Broker] = {}
        self.id: str = "simulated"
        # Where its brokers say that they are.
        self.subnet: int = 0
        # The versions of ApiVersions: of Kafka 4.4, or up to 4 of an older one, which does not ask for which broker a client takes it.
        self.api_versions: tuple[int, int] = (0, 5)
        # The epochs that an abort by a coordinator adds, and whether it then takes a request that follows the one before: Kafka 4.4.
        self.fencing: tuple[int, bool] = (1, True)
        # Whether brokers always reach one another.
        self.sure = False
        # Error codes that are to be answered next, by the name of a request.
        self.codes: defaultdict[str, deque[int]] = defaultdict(deque)
        # Partitions that have lost records that consumers could read, each time that they have.
        self.cuts: list[TopicPartition] = []
        # What coordinators have written: transactional ids, groups and their offsets.
        self.transactional: dict[str, Transactional] = {}
        self.stored_groups: dict[str, Stored] = {}
        # When a broker that is cut off has last answered a member whose coordinator is another one by now.
        self.misled: dict[str, float] = {}
        self.offsets: dict[str, Offsets] = {}
        self._topic_ids = 0
        self.producer_ids = 1000
        self._tasks: set[asyncio.Task[None]] = set()
        nodes = tuple(range(1, brokers + 1))
        # The replicas of a topic that is made without a number of them.
        self.replication: int = random.choice([1, brokers, brokers])
        self.truth: Image = Image(0, {}, nodes)
        for node in nodes:
            self.brokers[node] = Broker(node, self)
        for name, count in ((OFFSETS_TOPIC, random.choice([1, 2, 5])), (TRANSACTIONS_TOPIC, random.choice([1, 2, 5]))):
            self.make(name, count, len(nodes))
        self.settle()

    def settle(self) -> None:
        """Have all brokers know all, at once."""
        for broker in self.brokers.values():
            broker.learn(self.truth)

    # --- topics -------------------------------------------------------------------------------------------------------------------------

    def make(self, name: str, partitions: int, replication: int, configs: Mapping[str, str] | None = None) -> Topic:
        """Make a topic."""
        self._topic_ids += 1
        topic = self.topics[name] = Topic(name, self._topic_ids.to_bytes(16, "big"), {**DEFAULTS, **(configs or {})}, [], set(configs or ()))
        self._grow(topic, partitions, min(replication, len(self.brokers)))
        return topic

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        topic = self.topics[name]
        self._grow(topic, partitions, len(topic.partitions[0].replicas))

    def _grow(self, topic: Topic, partitions: int, replication: int) -> None:
        nodes = sorted(self.brokers)
        for number in range(len(topic.partitions), partitions):
            first = self.random.randrange(len(nodes))
            replicas = tuple((nodes * 2)[first : first + replication])
            alive = [node for node in replicas if node in self.truth.alive]
            partition = Partition(TopicPartition(topic.name, number), replicas, alive[0] if alive else NO_LEADER, in_sync=set(alive or replicas))
            partition.log.begin_epoch(0)
            topic.partitions.append(partition)
        self.spread([topic.name])

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self.topics[name]
        self.spread([name])

    def partition(self, name: TopicPartition) -> Partition | None:
        """Return a partition, if it exists."""
        topic = self.topics.get(name.topic)
        return topic.partitions[name.partition] if topic is not None and name.partition < len(topic.partitions) else None

    def partitions(self) -> Iterable[Partition]:
        """Return all partitions."""
        return (partition for topic in self.topics.values() for partition in topic.partitions)

    # --- who knows what -----------------------------------------------------------------------------------------------------------------

    def spread(self, names: Iterable[str]) -> None:
        """Tell the brokers of changed topics, each after its time."""
        topics = dict(self.truth.topics)
        for name in names:
            topic = self.topics.get(name)
            if topic is None:
                topics.pop(name, None)
            else:
                leaders = tuple((each.leader, each.epoch, each.replicas) for each in topic.partitions)
                topics[name] = TopicImage(topic.id, topic.internal, leaders)
        alive = tuple(node for node, broker in self.brokers.items() if not broker.fenced)
        self.truth = Image(self.truth.version + 1, topics, alive)
        for broker in self.brokers.values():
            self.tell(broker)

    def tell(self, broker: Broker) -> None:
        """Tell a broker the newest of the cluster, when it can hear it."""
        if broker.runs and not broker.isolated:
            lag = self.manners.lag * self.random.random() * (20 if self.random.random() < 0.02 else 1)
            asyncio.get_running_loop().call_later(lag, broker.learn, self.truth)

    # --- leaders ------------------------------------------------------------------------------------------------------------------------

    def elect(self, partitions: Iterable[Partition], node: int | None = None, *, unclean: bool = False) -> None:
        """Have other replicas lead partitions, the given one if it is in sync.

        What the old leader has beyond the high watermark may be lost. An `unclean` election takes one that was behind: it loses more.
        """
        names = set()
        for partition in partitions:
            alive = [each for each in partition.replicas if each in self.truth.alive and not self.brokers[each].fenced]
            able = [each for each in alive if each in partition.in_sync]
            leader = node if node in able else self.random.choice(able) if able else NO_LEADER
            if leader != partition.leader or unclean:
                self._lead(partition, leader, unclean=unclean)
                names.add(partition.name.topic)
        if names:
            self.spread(sorted(names))

    def _lead(self, partition: Partition, leader: int, *, unclean: bool) -> None:
        old = partition.log
        partition.leader, partition.epoch = leader, partition.epoch + 1
        if leader == NO_LEADER:
            # Nobody else has the log: it stays as the last leader left it.
            self.trace.note("no leader", partition.name, partition.epoch)
            return
        lowest = max(old.high, old.safe)
        if unclean:
            behinds = [old.start, *(batch.behind for batch in old.batches)]
            # A log that has lost little grows beyond where its readers are before they look again.
            lowest = self.random.choice(behinds if self.random.random() < 0.4 else behinds[-4:-1] or behinds)
        ends = [batch.behind for batch in old.batches[bisect_left([each.behind for each in old.batches], lowest) :]]
        offset = self.random.choice([old.end, old.end, *ends]) if not unclean else lowest
        log = partition.log = old.fork(max(offset, lowest))
        log.begin_epoch(partition.epoch)
        if log.end < max(old.high, old.safe):
            self.cuts.append(partition.name)
        if log.high < log.end or len(partition.replicas) > 1:
            # Followers learn the high watermark late.
            behind = [batch.behind for batch in log.batches if batch.behind < log.high][-2:]
            log.high = self.random.choice([log.high, log.high, *behind])
            self.replicate(partition)
        self.trace.note("leads", partition.name, leader, partition.epoch, log.end, log.high, "unclean" if unclean else "")

    def replicate(self, partition: Partition) -> None:
        """Have what was written be at the followers, after its time: then consumers may read it."""
        log = partition.log
        if len(partition.replicas) == 1:
            self._advance(partition, log)
        else:
            delay = self.manners.replication * (0.2 + self.random.random())
            asyncio.get_running_loop().call_later(delay, self._advance, partition, log)

    def _advance(self, partition: Partition, log: Log) -> None:
        # Followers fetch from the leader of the newest epoch alone.
        if partition.log is log and log.high < log.end:
            leader = self.brokers.get(partition.leader)
            if leader is None or not leader.connected:
                # It goes on when the leader is back, or with another one.
                return
            log.high = log.safe = log.end
            log.wake()

    # --- brokers ------------------------------------------------------------------------------------------------------------------------

    def lost_sight(self, broker: Broker) -> None:
        """Note that a broker no longer sends heartbeats: after a time it is fenced, and others lead."""
        era = broker.era
        delay = self.manners.fencing * (0.5 + self.random.random())
        asyncio.get_running_loop().call_later(delay, self._fence, broker, era)

    def _fence(self, broker: Broker, era: int) -> None:
        if broker.era == era and not broker.connected and not broker.fenced:
            self.trace.note("fenced", broker.node)
            broker.fenced = True
            self.spread([])
            led = [each for each in self.partitions() if each.leader == broker.node]
            for partition in self.partitions():
                if len(partition.in_sync) > 1:
                    partition.in_sync.discard(broker.node)
            self.elect(led)

    def saw_again(self, broker: Broker) -> None:
        """Note that a broker is back: it follows, is in sync after a moment, and leads what has no leader."""
        broker.fenced = False
        self.spread([])
        for partition in self.partitions():
            if broker.node in partition.replicas:
                partition.in_sync.add(broker.node)
                if partition.leader == broker.node:
                    self.replicate(partition)
        self.elect([each for each in self.partitions() if each.leader == NO_LEADER])

    def offsets_of(self, group: str) -> Offsets:
        """Return the offsets of a group."""
        return self.offsets.setdefault(group, Offsets())

    # --- work in the background ---------------------------------------------------------------------------------------------------------

    def begin(self, work: object) -> asyncio.Task[None]:
        """Run a coroutine that ends with the cluster."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End all."""
        for broker in self.brokers.values():
            broker.end_tasks()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    def injected(self, name: str) -> int:
        """Return the error code that the next request of a kind is to be answered, else 0."""
        codes = self.codes.get(name)
        return codes.popleft() if codes else 0
