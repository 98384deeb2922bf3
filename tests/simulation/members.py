"""Read, write and commit as members of a group while brokers and members fail: each record is handled, exactly once in transactions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ks_actors import Fenced, IllegalGeneration, LogError, LogTimeout
from ks_actors._errors import ProduceFailed, TransactionAborted
from ks_actors.log import Assigned, IsolationLevel, Lost, MemberAssignment, OffsetAndMetadata, Outgoing, Revoked
from ks_actors.log._lease import Lease
from ks_actors.log._port import NewMember
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.records import Batch, TopicPartition
from tests.simulation.batches import Record, build
from tests.simulation.cluster import Cluster, Manners, draw_fencing, draw_manners
from tests.simulation.faults import Faults
from tests.simulation.network import PORT, Place
from tests.simulation.reading import Wrong, expected_of
from tests.simulation.running import run_virtual
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace
from tests.simulation.transactions import expire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log import MemberInfo

FAULTS: Final = (
    "move", "gather", "kill", "vanish", "freeze", "isolate", "cut", "hollow", "reset", "lose", "lose", "slow", "throttle", "produce codes",
    "late codes", "transaction codes", "coordinate", "coordinate", "producer codes", "offsets codes", "group codes", "fetch codes",
)  # fmt: skip
_GROUP: Final = "g"
_IN: Final = "in"
_OUT: Final = "out"
_LONGEST_S: Final = 400.0


@dataclass(frozen=True)
class MembersPlan:
    """The draw of a seed."""

    seed: int
    brokers: int
    partitions: int
    manners: Manners
    options: dict[str, Any]
    exactly_once: bool
    processes: int
    static: bool
    session_ms: int
    rebalance_ms: int
    transaction_ms: int
    records: int
    healthy_at: float
    faults: tuple[str, ...]
    # Processes that end, by a crash or not, and start again.
    changes: int


def draw_members(seed: int) -> MembersPlan:
    """Return the plan of a seed."""
    random = Random(f"members {seed}")
    kinds: tuple[str, ...] = ()
    if random.random() < 0.8:
        kinds = tuple(sorted(random.sample(FAULTS, random.choice([2, 4, 8]))))
    session_ms = random.choice([1_500, 6_000, 10_000])
    return MembersPlan(
        seed=seed,
        brokers=random.choice([1, 2, 3]),
        partitions=random.choice([1, 3, 8]),
        manners=draw_manners(random),
        options={
            "request_timeout_ms": random.choice([1_000, 3_000, 10_000]),
            "connect_timeout_ms": random.choice([500, 2_000]),
            "api_timeout_ms": random.choice([2_000, 60_000]),
            "max_in_flight": random.choice([1, 4]),
        },
        exactly_once=random.random() < 0.6,
        processes=random.choice([1, 2, 3, 4]),
        static=random.random() < 0.25,
        session_ms=session_ms,
        rebalance_ms=random.choice([3_000, 10_000, 60_000]),
        transaction_ms=random.choice([3_000, 60_000]),
        records=random.choice([5, 20, 60]),
        healthy_at=random.choice([2.0, 8.0]),
        faults=kinds,
        changes=random.choice([0, 0, 1, 3]),
    )


def _assign(members: Sequence[MemberInfo], counts: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
    """Deal the partitions to the members in turns."""
    names = [member.member_id for member in members]
    dealt: dict[str, list[TopicPartition]] = {name: [] for name in names}
    for index in range(counts.get(_IN, 0)):
        dealt[names[index % len(names)]].append(TopicPartition(_IN, index))
    return {name: MemberAssignment(tuple(partitions)) for name, partitions in dealt.items()}


class Process:
    """A member of the group: it writes the place of each record that it reads, and commits."""

    def __init__(self, run: Members, number: int) -> None:
        self.run = run
        self.number = number
        self.owned: frozenset[TopicPartition] = frozenset()
        self.lease = Lease(asyncio.get_running_loop().time)
        self.site = run.new_site()
        self._random = Random(f"process {number} {self.site} {run.plan.seed}")
        self._position: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._ending = asyncio.Event()
        self._log: Any = None
        self._producer: Any = None
        self._membership: Any = None
        self._fetcher: Any = None
        self._event: asyncio.Task[Any] | None = None
        self._dead = False

    @property
    def name(self) -> str:
        return f"p{self.number}"

    @property
    def member_id(self) -> str:
        return "" if self._membership is None else str(self._membership.group.member_id)

    async def live(self) -> None:
        """Join, and work until it is told to end."""
        plan = self.run.plan
        servers = ",".join(f"{Place(self.site, node).host}:{PORT}" for node in self.run.cluster.brokers)
        self._log = KafkaLog(servers, options=KafkaOptions(**plan.options), client_id=self.name)
        self.run.logs.append(self._log)
        try:
            await self._patiently(self._log.start)
            self._fetcher = self._log.fetcher(client_id=self.name, isolation=IsolationLevel.READ_COMMITTED)
            await self._patiently(self._start_producer)
            self._membership = await self._patiently(lambda: self._log.join(_GROUP, self._new()))
            while not self._ending.is_set():
                await self._turn()
            await self._commit()
            await self._membership.leave()
        except asyncio.CancelledError:
            if not self._dead:
                raise
        finally:
            self.owned = frozenset()
            if self._event is not None:
                self._event.cancel()
            if not self._dead:
                await self._log.close()

    async def _patiently(self, call: Any) -> Any:
        while True:
            try:
                return await call()
            except (LogTimeout, Fenced, TransactionAborted) as error:
                self.run.trace.note("start", self.name, repr(error))

    async def _start_producer(self) -> None:
        if self.run.plan.exactly_once:
            made = await self._log.transactional_producer(f"app-{self.name}", client_id=self.name, timeout_ms=self.run.plan.transaction_ms)
        else:
            made = await self._log.producer(client_id=self.name, lease=self.lease)
            # What a lost member has still to send is not for it to send.
            self.lease.lost = made.abandon
        self._producer = made

    def _new(self) -> NewMember:
        plan = self.run.plan
        return NewMember(
            client_id=self.name,
            topics=[_IN],
            user_data=b"",
            assignor=_assign,
            session_timeout_ms=plan.session_ms,
            rebalance_timeout_ms=plan.rebalance_ms,
            instance_id=f"i{self.number}" if plan.static else None,
            lease=self.lease,
        )

    def end(self) -> None:
        """Have it leave."""
        self._ending.set()

    def crash(self, task: asyncio.Future[None]) -> None:
        """End it without a word."""
        self._dead = True
        self.run.trace.note("crash", self.name)
        self.run.cluster.network.leave(self.site)
        task.cancel()

    # --- work ---------------------------------------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        if self._event is None:
            self._event = asyncio.ensure_future(self._membership.event())
        if self._event.done():
            event, self._event = self._event, None
            await self._take(event)
            return
        if not self._position:
            ending = asyncio.ensure_future(self._ending.wait())
            await asyncio.wait([self._event, ending], return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            return
        found = await self._fetcher.fetch(max_wait_ms=self._random.choice([50, 500]), max_records=self._random.choice([1, 5, 1_000]))
        out = []
        for one in found:
            partition = TopicPartition(*one.partition)
            places = list(one.batch.offsets)
            out.append(
                Outgoing(
                    TopicPartition(_OUT, partition.partition), Batch([b"%d" % place for place in places], [b""] * len(places), [0] * len(places))
                )
            )
            self._done[partition] = one.next_offset
        if out:
            await self._write(out)
        if self._done and self._random.random() < 0.5:
            await self._commit()

    async def _send(self, out: list[Outgoing]) -> None:
        """Send, and give up what waits for a lease when the membership is lost meanwhile: as an app's collector, which hears of that."""
        sending = asyncio.ensure_future(self._producer.send(out))
        try:
            if self._event is not None and not self.run.plan.exactly_once:
                await asyncio.wait([sending, self._event], return_when=asyncio.FIRST_COMPLETED)
                if not sending.done() and self._event.exception() is None and isinstance(self._event.result(), Lost):
                    self._producer.abandon()
            await sending
        finally:
            sending.cancel()

    async def _write(self, out: list[Outgoing]) -> None:
        try:
            await self._send(out)
        except (ProduceFailed, TransactionAborted, LogTimeout, IllegalGeneration) as error:
            self.run.trace.note("send", self.name, repr(error))
            await self._rewind()
        except Fenced as error:
            await self._fenced(error)

    async def _fenced(self, error: Fenced) -> None:
        # A process that has come in its place, or the one before it, takes the id.
        self.run.trace.note("fenced", self.name, repr(error))
        if self.run.processes.get(self.number) is self and self.run.starts[self.number] == 1:
            raise Wrong(f"{self.name} is fenced, though it has no rival: {error}")
        with suppress(LogError):
            await self._producer.close()
        await self._patiently(self._start_producer)
        await self._rewind()

    async def _commit(self) -> None:
        if not self._done:
            return
        offsets = {partition: OffsetAndMetadata(offset) for partition, offset in self._done.items()}
        for _ in range(100):
            try:
                if self.run.plan.exactly_once:
                    await self._producer.commit(offsets, self._membership.committing)
                else:
                    await self._membership.commit(offsets)
            except LogTimeout as error:
                self.run.trace.note("commit", self.name, repr(error))
                continue
            except Fenced as error:
                await self._fenced(error)
                return
            except (IllegalGeneration, TransactionAborted) as error:
                self.run.trace.note("commit", self.name, repr(error))
                await self._rewind()
                return
            self.run.trace.note("committed", self.name, dict(self._done))
            self._done.clear()
            return
        raise Wrong(f"{self.name} cannot commit")

    async def _rewind(self) -> None:
        """Go back to what is committed."""
        self._done.clear()
        while self.run.plan.exactly_once:
            try:
                await self._producer.abort()
                break
            except LogTimeout as error:
                self.run.trace.note("abort", self.name, repr(error))
            except Fenced:
                break
            except LogError as error:
                # A commit that had no answer has had its effect.
                self.run.trace.note("abort", self.name, repr(error))
                break
        await self._read_from_committed(tuple(self._position))

    async def _read_from_committed(self, partitions: tuple[TopicPartition, ...]) -> None:
        while True:
            try:
                committed = await self._membership.committed(partitions) if partitions else {}
                break
            except LogTimeout as error:
                self.run.trace.note("committed", self.name, repr(error))
        self._position = {each: committed[each].offset if each in committed else 0 for each in partitions}
        # Behind an assignment at the same offset the records of before would come first.
        self._fetcher.assign({})
        self._fetcher.assign(dict(self._position))

    # --- events -------------------------------------------------------------------------------------------------------------------------

    async def _take(self, event: asyncio.Task[Any]) -> None:
        error = event.exception()
        if error is not None:
            raise Wrong(f"{self.name}: {error!r}") from error
        happened = event.result()
        self.run.trace.note("event", self.name, happened)
        match happened:
            case Assigned():
                self.owned = frozenset(TopicPartition(*each) for each in happened.assignment.partitions)
                self.run.check_owners(self)
                await self._read_from_committed(tuple(sorted(self.owned)))
            case Revoked():
                await self._commit()
                self._give_up()
                self._membership.revoked()
            case Lost():
                self._done.clear()
                if self.run.plan.exactly_once:
                    await self._rewind()
                self._give_up()
                if happened.fenced:
                    self.end()
                else:
                    self._membership.rejoin(b"")

    def _give_up(self) -> None:
        self.owned = frozenset()
        self._position, self._done = {}, {}
        self._fetcher.assign({})


class Members:
    """One run: processes that share the partitions of a topic."""

    def __init__(self, plan: MembersPlan) -> None:
        self.plan = plan
        self.trace = Trace(asyncio.get_running_loop().time)
        self.cluster = Cluster(plan.brokers, Random(f"cluster {plan.seed}"), self.trace, plan.manners)
        self.cluster.fencing = draw_fencing(plan.seed)
        self.cluster.make(_IN, plan.partitions, plan.brokers)
        self.cluster.make(_OUT, plan.partitions, plan.brokers)
        self.cluster.settle()
        self.processes: dict[int, Process] = {}
        self.starts: dict[int, int] = {}
        self.logs: list[KafkaLog] = []
        self.records = 0
        self._random = Random(f"group {plan.seed}")
        self._tasks: dict[int, asyncio.Future[None]] = {}
        self._sites = 0

    def new_site(self) -> int:
        """Return a place for another process."""
        self._sites += 1
        return self._sites

    def check_owners(self, one: Process) -> None:
        """Raise Wrong if others may still write for partitions of a process.

        A coordinator that is cut off answers its members as before, while others of the group have another one: no client can know, so
        at-least-once processes may both write until the broker is back.
        """
        for other in self.processes.values():
            if other is one or self._is_misled(one) or self._is_misled(other):
                continue
            if one.owned & other.owned and one.lease.holds() and other.lease.holds():
                raise Wrong(f"{one.name} and {other.name} both have {sorted(one.owned & other.owned)}")

    def _is_misled(self, process: Process) -> bool:
        at = self.cluster.misled.get(process.member_id)
        return at is not None and asyncio.get_running_loop().time() - at < self.plan.session_ms / 1000

    async def main(self) -> None:
        """Do it. Raises Wrong, and what the client should not raise."""
        plan, loop = self.plan, asyncio.get_running_loop()
        faults = Faults(self.cluster, Random(f"faults {plan.seed}"), plan.faults, until=plan.healthy_at, sites=range(1, 60))
        with simulated(self.cluster.network, Random(f"seams {plan.seed}")):
            self.cluster.begin(expire(self.cluster))
            work = [asyncio.ensure_future(self._feed()), asyncio.ensure_future(self._change())]
            if plan.faults:
                work += [asyncio.ensure_future(faults.befall()), asyncio.ensure_future(faults.heal())]
            try:
                for number in range(plan.processes):
                    self._start(number)
                done_at = None
                while done_at is None or loop.time() < done_at + 1.0:
                    await asyncio.sleep(0.25)
                    for task in (*work, *self._tasks.values()):
                        if task.done():
                            task.result()
                    done_at = (done_at or loop.time()) if all(task.done() for task in work) and self._is_done() else None
                    if loop.time() > self._limit():
                        raise Wrong(f"at {loop.time():.1f} s there is something left: {self._left()}")
                for process in self.processes.values():
                    process.end()
                await asyncio.wait_for(asyncio.gather(*self._tasks.values()), 60)
                await asyncio.sleep(5)
                self._check()
            finally:
                for one in (*work, *self._tasks.values()):
                    one.cancel()
                await asyncio.gather(*work, *self._tasks.values(), return_exceptions=True)
                for log in self.logs:
                    await log.close()
                await self.cluster.close()

    def _limit(self) -> float:
        plan = self.plan
        slack: float = (plan.options["request_timeout_ms"] + plan.options["connect_timeout_ms"]) / 1000
        return plan.healthy_at + 3 * slack + (2 * plan.session_ms + 2 * plan.rebalance_ms + 2 * plan.transaction_ms) / 1000 + 30

    # --- processes ----------------------------------------------------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        process = self.processes[number] = Process(self, number)
        self.starts[number] = self.starts.get(number, 0) + 1
        self.trace.note("start", process.name, process.site)
        self._tasks[number] = asyncio.ensure_future(process.live())

    async def _change(self) -> None:
        """Have processes end and start again."""
        random, loop = self._random, asyncio.get_running_loop()
        for _ in range(self.plan.changes):
            await asyncio.sleep(random.random() * self.plan.healthy_at / 2)
            number = random.randrange(self.plan.processes)
            process, task = self.processes[number], self._tasks[number]
            if random.random() < 0.6:
                process.crash(task)
                await asyncio.wait([task])
                await asyncio.sleep(random.choice([0, 0.5, 4]))
                self._start(number)
            elif loop.time() < self.plan.healthy_at:
                process.end()
                await asyncio.wait([task], timeout=60)
                if not task.done():
                    raise Wrong(f"{process.name} does not end")
                task.result()
                self._start(number)

    # --- records ------------------------------------------------------------------------------------------------------------------------

    async def _feed(self) -> None:
        random = self._random
        left = [number for number in range(self.plan.partitions) for _ in range(random.choice([0, self.plan.records, self.plan.records]))]
        random.shuffle(left)
        pause = self.plan.healthy_at / max(1, len(left))
        while left:
            partition = self.cluster.partition(TopicPartition(_IN, left[-1]))
            assert partition is not None
            leader = self.cluster.brokers.get(partition.leader)
            if leader is not None and leader.connected and partition.name in leader.led:
                partition.log.append(_SMALL, partition.epoch)
                self.cluster.replicate(partition)
                partition.log.wake()
                left.pop()
                self.records += 1
            else:
                left.insert(0, left.pop())
            await asyncio.sleep(random.expovariate(1) * pause)

    def _ends(self) -> dict[TopicPartition, int]:
        return {partition.name: partition.log.end for partition in self.cluster.topics[_IN].partitions if partition.log.end}

    def _left(self) -> dict[str, int]:
        committed = self.cluster.offsets_of(_GROUP).committed
        return {str(name): end - committed.get(name, {"offset": 0})["offset"] for name, end in self._ends().items()}

    def _is_done(self) -> bool:
        return not any(self._left().values())

    def _check(self) -> None:
        for partition in self.cluster.topics[_OUT].partitions:
            log = partition.log
            if any(each.end is None for each in log.transactions):
                raise Wrong(f"{partition.name} has an open transaction at the end")
            places = [int(key) for _, _, key, *_ in expected_of(log, log.start, log.end, committed=True)]
            source = self.cluster.partition(TopicPartition(_IN, partition.name.partition))
            assert source is not None
            expected = list(range(source.log.end))
            if self.plan.exactly_once and places != expected:
                odd = [place for place in expected if places.count(place) != 1]
                raise Wrong(f"{partition.name} does not have each record once: {odd[:10]}, of {len(expected)}")
            if not set(expected) <= set(places):
                raise Wrong(f"{partition.name} lacks records: {sorted(set(expected) - set(places))[:10]}")


_SMALL: Final = build((Record(0, 1_700_000_000_000, b"k", b"v", ()),), 1, 0)


def join_seed(seed: int) -> Members:
    """Run a seed. Raises its error, with the plan and the last events as notes."""
    return run_virtual(lambda: Members(draw_members(seed)), seed)
