"""Read random logs with the real client while brokers fail: every record comes once, in order, as it was written, and none is left unread."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ks_actors import LogClosed, LogCorrupted, LogError, OffsetOutOfRange, UnknownTopicOrPartition
from ks_actors._errors import LogTruncated
from ks_actors.log import IsolationLevel
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.records import TopicPartition
from tests.simulation.batches import records_of
from tests.simulation.cluster import Cluster, Manners, draw_manners
from tests.simulation.faults import Faults
from tests.simulation.network import PORT, Place
from tests.simulation.running import run_virtual
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace
from tests.simulation.writers import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.log import Fetched
    from tests.simulation.logs import Log

FAULTS: Final = (
    "move", "move", "gather", "kill", "vanish", "freeze", "isolate", "cut", "hollow", "reset", "lose", "slow", "throttle", "forget", "fetch codes",
    "partition codes", "offset codes", "delete", "compact",
)  # fmt: skip
_LONGEST_S: Final = 120.0
# Seconds that a partition may be left unread when all is well; connections that lead nowhere are found by the timeout of a request.
_BOUND_S: Final = 3.0
# Seconds more while one of the two connections of fetches to a broker leads nowhere, and the other is whole.
_SPARE_S: Final = 5.0
# The same after a part of an answer.
_STUCK_S: Final = 12.0


class Wrong(AssertionError):
    """The client has done something that it must not do."""


@dataclass(frozen=True)
class ReadingPlan:
    """The draw of a seed."""

    seed: int
    brokers: int
    topics: tuple[tuple[str, int, int], ...]
    manners: Manners
    options: dict[str, Any]
    committed: bool
    healthy_at: float
    faults: tuple[str, ...]
    outcast: int | None
    prefilled: int
    written: int
    busy: float
    # Whether one of the two connections of fetches to each broker leads nowhere when all else is well again.
    forgets: bool


def draw_reading(seed: int) -> ReadingPlan:
    """Return the plan of a seed."""
    random = Random(f"reading {seed}")
    brokers = random.choice([1, 1, 2, 3])
    kinds: tuple[str, ...] = ()
    if random.random() < 0.75:
        kinds = tuple(sorted(random.sample(FAULTS, random.choice([3, 6, len(FAULTS)]))))
        if random.random() < 0.3:
            kinds += ("unclean",) * 6
    outcast = random.randint(1, brokers) if kinds and brokers > 1 and random.random() < 0.2 else None
    return ReadingPlan(
        seed=seed,
        brokers=brokers,
        topics=tuple((name, random.choice([1, 2, 6]), brokers if outcast else random.choice([1, brokers, brokers])) for name in "ab"),
        manners=draw_manners(random),
        options={
            "max_partition_fetch_bytes": random.choice([1, 300, 2_000, 20_000, 1_048_576]),
            "fetch_max_bytes": random.choice([1, 5_000, 50_000, 52_428_800]),
            "linger_ms": random.choice([0, 20]),
            "missing_topic_wait_ms": random.choice([1_000, 1_000, 50]),
            "request_timeout_ms": random.choice([1_000, 3_000, 30_000]),
            "connect_timeout_ms": random.choice([500, 2_000]),
            "metadata_max_age_ms": random.choice([2_000, 5_000]),
        },
        outcast=outcast,
        committed=random.random() < 0.7,
        healthy_at=random.choice([0.5, 3.0, 8.0]) if kinds else 0.5,
        faults=kinds,
        prefilled=random.choice([0, 3, 10, 40]),
        written=random.choice([3, 10, 30]),
        busy=random.choice([0.02, 0.3, 0.6]),
        forgets=random.random() < 0.2,
    )


class Reading:
    """One run: a fetcher that is paused, moved and assigned anew all the time."""

    def __init__(self, plan: ReadingPlan) -> None:
        loop = asyncio.get_running_loop()
        self.plan = plan
        self.trace = Trace(loop.time)
        self.cluster = Cluster(plan.brokers, Random(f"cluster {plan.seed}"), self.trace, plan.manners)
        self.records = 0
        self._random = Random(f"reader {plan.seed}")
        for name, partitions, replication in plan.topics:
            self.cluster.make(name, partitions, replication)
        self.cluster.settle()
        self.partitions = [TopicPartition(name, number) for name, count, _ in plan.topics for number in range(count)]
        self.writer = Writer(self.cluster, Random(f"writer {plan.seed}"), self.partitions)
        self.writer.prefill(plan.prefilled)
        self._assigned: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        # What was read of each partition since it was last moved.
        self._read: dict[TopicPartition, list[tuple[Any, ...]]] = {}
        self._since: dict[TopicPartition, float] = {}
        self._fetcher: Any = None
        self._connections: Any = None
        # The last times at which dead connections could hold up all fetches, or there was one, and at which a leader had not heard that it leads.
        self._hollow: float = 0.0
        self._dead: float = 0.0
        self._unaware: float = 0.0
        # When there was something left to read.
        self._busy_at: float = 0.0

    async def main(self) -> None:
        """Do it. Raises Wrong, and what the client should not raise."""
        plan, loop = self.plan, asyncio.get_running_loop()
        site = 1
        with simulated(self.cluster.network, Random(f"seams {plan.seed}")):
            servers = ",".join(f"{Place(site, node).host}:{PORT}" for node in self.cluster.brokers)
            log = KafkaLog(servers, options=KafkaOptions(**plan.options), client_id="r")
            work = [asyncio.ensure_future(self.writer.write(plan.written, plan.healthy_at))]
            faults = Faults(self.cluster, Random(f"faults {plan.seed}"), plan.faults, until=plan.healthy_at, sites=(site,), outcast=plan.outcast)
            try:
                await log.start()
                self._connections = log._client._connections
                if plan.forgets:
                    work.append(asyncio.ensure_future(self._forget()))
                if plan.faults:
                    work += [asyncio.ensure_future(faults.befall()), asyncio.ensure_future(faults.heal())]
                isolation = IsolationLevel.READ_COMMITTED if plan.committed else IsolationLevel.READ_UNCOMMITTED
                self._fetcher = log.fetcher(client_id="r", isolation=isolation)
                self._assign()
                while not self._done(work):
                    if loop.time() > _LONGEST_S:
                        raise Wrong(f"after {_LONGEST_S:g} s there is something left to read")
                    await self._act()
                    await self._fetch()
                    self._look()
                self._check_all()
            finally:
                for one in work:
                    one.cancel()
                await asyncio.gather(*work, return_exceptions=True)
                await log.close()
                await self.cluster.close()

    def _done(self, work: Iterable[asyncio.Future[None]]) -> bool:
        done = True
        for one in work:
            if one.done():
                one.result()
            else:
                done = False
        # Beyond the end is a reader of lost records that does not know it yet.
        done = done and not self._paused and all(self._position(each) == self._readable(each) for each in self._assigned)
        now = asyncio.get_running_loop().time()
        self._busy_at = self._busy_at if done else now
        return done and (not self.cluster.cuts or now > self._busy_at + _BOUND_S)

    # --- connections --------------------------------------------------------------------------------------------------------------------

    async def _forget(self) -> None:
        """Have one of the two connections of fetches to each broker lead nowhere, as a firewall does that has forgotten it."""
        random = Random(f"forgets {self.plan.seed}")
        await asyncio.sleep(self.plan.healthy_at + 0.001)
        for node in self.cluster.brokers:
            channel = random.choice(self._fetcher._fetching._channels)
            connection = self._connections._ready.get((node, channel))
            for line in self.cluster.network.lines:
                line.hollow = line.hollow or line.protocol is connection
        self.trace.note("forgotten", [line.number for line in self.cluster.network.lines if line.hollow])

    def _spared(self) -> bool:
        """Return whether all connections that lead nowhere are of fetches, with a whole one to the same broker."""
        ready, channels = self._connections._ready, self._fetcher._fetching._channels
        nodes = {connection: node for (node, channel), connection in ready.items() if channel in channels}
        lost = [nodes.get(line.protocol) for line in self.cluster.network.lines if line.hollow]
        return None not in lost and len({*lost}) == len(lost)

    # --- what the owner does ------------------------------------------------------------------------------------------------------------

    def _log(self, name: TopicPartition) -> Log:
        partition = self.cluster.partition(name)
        assert partition is not None
        return partition.log

    def _position(self, name: TopicPartition) -> int:
        return self._assigned[name]

    def _readable(self, name: TopicPartition) -> int:
        log = self._log(name)
        return log.stable if self.plan.committed else log.high

    def _begin(self, name: TopicPartition) -> int:
        log = self._log(name)
        offset = self._random.choice([log.start, log.start, self._random.randint(log.start, max(log.start, log.high))])
        self._read[name] = []
        self._since.pop(name, None)
        return offset

    def _assign(self) -> None:
        some = self._random.sample(self.partitions, self._random.randint(1, len(self.partitions)))
        self._assigned = {
            name: self._assigned[name] if name in self._assigned and self._random.random() < 0.9 else self._begin(name) for name in some
        }
        self._paused &= self._assigned.keys()
        self._since.clear()
        self.trace.note("assign", dict(self._assigned))
        self._fetcher.assign(dict(self._assigned))

    def _seek(self, name: TopicPartition, offset: int) -> None:
        self._assigned[name] = offset
        self._read[name] = [each for each in self._read[name] if each[0] < offset]
        self._since.pop(name, None)
        self.trace.note("seek", name, offset)
        self._fetcher.seek(name, offset)

    async def _act(self) -> None:
        random, loop = self._random, asyncio.get_running_loop()
        if loop.time() > self.plan.healthy_at + 2.0:
            # The owner rests as well, or it would never end.
            if self._paused:
                self._resume(sorted(self._paused))
            return
        if random.random() >= self.plan.busy:
            return
        what = random.choices(["pause", "resume", "seek", "assign", "sleep"], [4, 4, 1, 0.5, 3])[0]
        assigned = sorted(self._assigned)
        if what == "pause":
            some = random.sample(assigned, random.randint(1, len(assigned)))
            self.trace.note("pause", some)
            self._fetcher.pause(some)
            self._paused |= set(some)
        elif what == "resume" and self._paused:
            paused = sorted(self._paused)
            self._resume(random.sample(paused, random.randint(1, len(paused))))
        elif what == "seek":
            name = random.choice(assigned)
            offset = self._begin(name)
            self._seek(name, offset)
        elif what == "assign":
            self._assign()
        elif what == "sleep":
            await asyncio.sleep(random.choice([0, 0.0005, 0.01, 0.2]))

    def _resume(self, some: list[TopicPartition]) -> None:
        self.trace.note("resume", some)
        self._fetcher.resume(some)
        self._paused -= set(some)
        for name in some:
            self._since.pop(name, None)

    async def _fetch(self) -> None:
        random, loop = self._random, asyncio.get_running_loop()
        quiet = loop.time() > self.plan.healthy_at
        fetching = self._fetcher.fetch(
            max_wait_ms=random.choice([20, 500] if quiet else [0, 1, 20, 500]), max_records=random.choice([1, 7, 10_000, 10_000])
        )
        try:
            if random.random() < 0.05:
                task = asyncio.ensure_future(fetching)
                await asyncio.sleep(random.choice([0, 0.001, 0.01]))
                task.cancel()
                try:
                    found = await task
                except asyncio.CancelledError:
                    found = []
            else:
                found = await fetching
        except OffsetOutOfRange as error:
            self._out_of_range(error)
        except LogClosed:
            raise
        except (LogCorrupted, UnknownTopicOrPartition, LogError) as error:
            self.trace.note("error", repr(error))
            if loop.time() > self.plan.healthy_at + _BOUND_S:
                raise Wrong(f"an error though all is well: {error!r}") from error
        else:
            for one in found:
                self._take(one)

    def _out_of_range(self, error: OffsetOutOfRange) -> None:
        name = TopicPartition(*error.partition)
        log, position = self._log(name), self._position(name)
        self.trace.note("out of range", repr(error), log.start, log.end)
        if isinstance(error, LogTruncated):
            if name not in self.writer.cut:
                raise Wrong(f"{name} has not lost anything, but: {error}")
            self._seek(name, min(position, max(log.start, log.high if error.diverges_at is None else error.diverges_at)))
            return
        if name not in self.writer.cut and log.start <= position <= log.high:
            raise Wrong(f"{position} is in {log.start} to {log.high}, but: {error}")
        self._seek(name, log.start if position <= log.start else min(position, log.high))

    # --- what it gets -------------------------------------------------------------------------------------------------------------------

    def _take(self, one: Fetched) -> None:
        name = TopicPartition(*one.partition)
        if name not in self._assigned or name in self._paused:
            raise Wrong(f"records of {name}, which is paused, or not assigned")
        position, behind = self._position(name), one.next_offset
        batch = one.batch
        offsets = list(batch.offsets)
        headers = batch.headers if batch.headers is not None else [()] * len(offsets)
        got = [
            (offset, timestamp, key, value, tuple(each))
            for offset, timestamp, key, value, each in zip(offsets, batch.timestamps, batch.keys, batch.values, headers, strict=True)
        ]
        if behind <= position:
            raise Wrong(f"{name}: no progress from {position} to {behind}")
        if name not in self.writer.cut:
            self._compare(name, got, position, behind)
        self._read[name] += got
        self._assigned[name] = behind
        self._since.pop(name, None)
        self.records += len(got)
        self.trace.note("read", name, position, behind, len(got))
        if self._fetcher.position(name) != behind:
            raise Wrong(f"{name}: the position is {self._fetcher.position(name)} behind records up to {behind}")

    def _compare(self, name: TopicPartition, got: list[tuple[Any, ...]], begin: int, behind: int) -> None:
        log = self._log(name)
        expected = expected_of(log, begin, behind, committed=self.plan.committed)
        if got == expected:
            return
        lost = set(log.lost)
        if name in self.writer.cut and self.plan.committed:
            # With a marker that was lost the next one decides the transaction, maybe in another way.
            lost.update(offset for batch in log.batches if batch.transactional for offset in range(batch.base, batch.behind))
        got, expected = [each for each in got if each[0] not in lost], [each for each in expected if each[0] not in lost]
        got = [each for each in got if each[0] >= log.start]
        if got != expected:
            raise Wrong(f"{name} from {begin} to {behind}: {_difference(got, expected)}")

    def _check_all(self) -> None:
        """At the end what was read is what the log has."""
        for name, read in self._read.items():
            if name in self._assigned and read:
                log = self._log(name)
                self._compare(name, [each for each in read if each[0] >= log.start], max(log.start, read[0][0]), self._position(name))

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now, bound = loop.time(), _BOUND_S
        if self.plan.outcast is not None:
            bound += 1 + 20 * self.plan.manners.lag
            # It is as good as any other broker, until metadata are old.
            bound += 2 * self.plan.options["metadata_max_age_ms"] / 1000
        if any(broker.connected and broker.image is not self.cluster.truth for broker in self.cluster.brokers.values()):
            # A leader that has not heard of its office refuses everybody.
            self._unaware = now
        well_since = max(self.plan.healthy_at, self._hollow, self._unaware)
        hollow = [line.protocol for line in self.cluster.network.lines if line.hollow]
        if not hollow:
            well_since = max(well_since, self._dead)
        else:
            self._dead = now
        if self._spared():
            bound += max((_STUCK_S if each._arrived else _SPARE_S for each in hollow), default=0)
        else:
            self._hollow = now
            well_since = max(self.plan.healthy_at, self._unaware)
            bound += (self.plan.options["request_timeout_ms"] + self.plan.options["connect_timeout_ms"]) / 1000 + 2
        for name in self._assigned:
            if name in self._paused or self._position(name) == self._readable(name):
                self._since.pop(name, None)
                continue
            stood = now - max(self._since.setdefault(name, now), well_since)
            if stood > bound:
                raise Wrong(
                    f"{name} at {self._position(name)} of {self._readable(name)} was not read for {stood:.2f} s: {self._fetcher.describe(name)}"
                )


def expected_of(log: Log, begin: int, behind: int, *, committed: bool) -> list[tuple[Any, ...]]:
    """Return the records of a log between two offsets, as a reader gets them."""
    found: list[tuple[Any, ...]] = []
    for batch in log.batches:
        if batch.behind <= begin or batch.base >= behind or batch.kind != "data":
            continue
        if committed and batch.transactional and log.is_aborted(batch):
            continue
        found += [tuple(record) for record in records_of(batch.raw) if max(begin, log.start) <= record.offset < behind]
    return found


def _difference(got: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> str:
    for index, (one, other) in enumerate(zip(got, expected, strict=False)):
        if one != other:
            return f"record {index} is {str(one)[:200]}, expected {str(other)[:200]}"
    return f"{len(got)} records, expected {len(expected)}: {str((got or expected)[min(len(got), len(expected)) :][:1])[:200]}"


def read_seed(seed: int) -> Reading:
    """Run a seed. Raises its error, with the plan and the last events as notes."""
    return run_virtual(lambda: Reading(draw_reading(seed)), seed)
