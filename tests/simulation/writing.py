"""Write with the real client while brokers fail: what was acknowledged is there, once and in order, and of a transaction all or nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ks_actors import Fenced, LogError, LogTimeout
from ks_actors._errors import ProduceFailed, TransactionAborted
from ks_actors.log import GroupMetadata, OffsetAndMetadata, Outgoing
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.records import Batch, TopicPartition
from tests.simulation.cluster import Cluster, Manners, draw_fencing, draw_manners
from tests.simulation.faults import Faults
from tests.simulation.network import PORT, Place
from tests.simulation.reading import Wrong, expected_of
from tests.simulation.running import run_virtual
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace
from tests.simulation.transactions import expire

if TYPE_CHECKING:
    from collections.abc import Awaitable

FAULTS: Final = (
    "move", "move", "gather", "kill", "vanish", "freeze", "isolate", "cut", "hollow", "reset", "lose", "lose", "slow", "throttle", "produce codes",
    "late codes", "transaction codes", "coordinate", "producer codes", "offsets codes", "limit",
)  # fmt: skip
_LEAST_ROUNDS: Final = 4
# Seconds that a call may take when all is well.
_BOUND_S: Final = 3.0
# A batch of fewer bytes than this has few records; the seconds of its request, with replication.
_SMALL: Final = 1000
_REQUEST_S: Final = 0.06
_LONGEST_S: Final = 2_000.0
_SHORT_MS: Final = 10_000


@dataclass(frozen=True)
class WritingPlan:
    """The draw of a seed."""

    seed: int
    brokers: int
    topics: tuple[tuple[str, int, int], ...]
    manners: Manners
    options: dict[str, Any]
    authors: tuple[str | None, ...]
    timeout_ms: int
    limit: int
    outcast: int | None
    healthy_at: float
    faults: tuple[str, ...]
    rough: bool


def draw_writing(seed: int) -> WritingPlan:
    """Return the plan of a seed."""
    random = Random(f"writing {seed}")
    brokers = random.choice([1, 2, 3])
    kinds: tuple[str, ...] = ()
    if random.random() < 0.85:
        kinds = tuple(sorted(random.sample(FAULTS, random.choice([3, 6, len(FAULTS)]))))
        if random.random() < 0.25:
            kinds += ("unclean",) * 3
    authors = random.choice([(None,), (None, None), ("one",), ("one",), ("one", "two"), ("one", None)])
    outcast = random.randint(1, brokers) if kinds and brokers > 1 and random.random() < 0.15 else None
    return WritingPlan(
        seed=seed,
        brokers=brokers,
        topics=tuple((name, random.choice([1, 3]), brokers if outcast else random.choice([1, brokers, brokers])) for name in "ab"),
        manners=draw_manners(random),
        options={
            "batch_bytes": random.choice([90, 300, 100_000]),
            "compression": random.choice(["none", "none", "gzip", "snappy", "lz4", "zstd"]),
            "max_in_flight": random.choice([1, 2, 4, 5]),
            "retry_backoff_ms": random.choice([0, 5, 50]),
            "request_timeout_ms": random.choice([1_000, 3_000, 30_000]),
            "connect_timeout_ms": random.choice([500, 2_000]),
            "delivery_timeout_ms": random.choice([3_000, 300_000, 300_000]),
            "api_timeout_ms": random.choice([2_000, 60_000]),
            "metadata_max_age_ms": random.choice([2_000, 5_000]),
        },
        outcast=outcast,
        authors=authors,
        timeout_ms=random.choice([60_000, 60_000, 1_500]),
        limit=random.choice([1_048_588, 1_048_588, 150, 400]),
        healthy_at=random.choice([0.5, 1.5, 4.0]) if kinds else 0.5,
        faults=kinds,
        rough=random.random() < 0.4,
    )


@dataclass
class Deed:
    """The records of an author between two ends: those there if it `counts`, and those that may be there; None if unknown."""

    author: str
    written: dict[TopicPartition, list[int]] = field(default_factory=dict)
    perhaps: dict[TopicPartition, set[int]] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    counts: bool | None = None
    offset: int | None = None


class Author:
    """A process that writes: with a transactional id in transactions, else each record for itself."""

    def __init__(self, run: Writing, name: str, transactional_id: str | None) -> None:
        self.run = run
        self.name = name
        self.transactional_id = transactional_id
        self.log: Any = None
        self.producer: Any = None
        self.site = 0
        self.deeds: list[Deed] = []
        self._random = Random(f"author {name} {run.plan.seed}")
        self._number = 0
        # Whether a start was given up whose request may still be under way: it would fence the start behind it.
        self._gave_up = False

    async def start(self) -> None:
        """Start a process, and its producer; the one before it may still be there."""
        self.site = self.run.new_site()
        servers = ",".join(f"{Place(self.site, node).host}:{PORT}" for node in self.run.cluster.brokers)
        self.log = KafkaLog(servers, options=KafkaOptions(**self.run.plan.options), client_id=self.name)
        self.run.logs.append(self.log)
        await self._patiently(self.log.start)
        if self.transactional_id is None:
            self.producer = await self._patiently(lambda: self.log.producer(client_id=self.name))
        else:
            timeout_ms = self.run.plan.timeout_ms
            self.producer = await self._patiently(
                lambda: self.log.transactional_producer(self.transactional_id, client_id=self.name, timeout_ms=timeout_ms)
            )  # fmt: skip

    async def _patiently(self, call: Any) -> Any:
        began = self.run.now
        while True:
            try:
                return await call()
            except (LogTimeout, Fenced, TransactionAborted) as error:
                self.run.trace.note("start", self.name, repr(error))
                self._gave_up = self._gave_up or isinstance(error, LogTimeout)
                self.run.check_time("a start", began, patience=self.run.plan.options["api_timeout_ms"] / 1000)

    def crash(self) -> None:
        """End the process without a word to anybody."""
        self.run.trace.note("crash", self.name, self.site)
        self.run.cluster.network.leave(self.site)

    async def live(self) -> None:
        """Write until all is well, and a few rounds more."""
        rounds = 0
        await self.start()
        while self.run.now < self.run.plan.healthy_at or rounds < _LEAST_ROUNDS:
            rounds += 1
            await self._round(rounds)
            # A dozen rounds while brokers fail are enough.
            await asyncio.sleep(self._random.choice([0, 0.01, 0.2]) * self.run.plan.healthy_at)
        await self.producer.close()

    # --- a round ------------------------------------------------------------------------------------------------------------------------

    def _draw(self) -> list[Outgoing]:
        random, found = self._random, []
        for _ in range(random.choice([1, 2, 4])):
            count = random.choice([0, 1, 3, 20])
            keys = [b"%s %d" % (self.name.encode(), number) for number in range(self._number, self._number + count)]
            self._number += count
            values = [b"v" * random.choice([0, 30])] * count
            found.append(Outgoing(random.choice(self.run.partitions), Batch(keys, values, [1_700_000_000_000] * count)))
        return found

    async def _round(self, number: int) -> None:
        random, run = self._random, self.run
        deed = Deed(self.name)
        self.deeds.append(deed)
        began = run.now
        sent: list[tuple[list[Outgoing], asyncio.Future[Any]]] = []
        for _ in range(random.choice([1, 1, 3, 8])):
            out = self._draw()
            sent.append((out, asyncio.ensure_future(self.producer.send(out))))
            if random.random() < 0.4:
                await asyncio.sleep(random.choice([0, 0.0001, 0.002, 0.05]))
        rough = run.plan.rough and random.random() < 0.08
        if random.random() < 0.05:
            await asyncio.sleep(random.choice([0, 0.001]))
            sent[-1][1].cancel()
        if rough and random.random() < 0.5:
            await self._crash_and_start(sent, deed)
            return
        failed = False
        for out, future in sent:
            failed = await self._outcome(out, future, deed) or failed
        patience = run.plan.options["delivery_timeout_ms"] / 1000 if failed else 0.0
        if min(run.plan.limit, run.plan.options["batch_bytes"]) < _SMALL:
            # Batches of a record or a few go one after the other.
            patience += _REQUEST_S * sum(len(each.batch) for out, _ in sent for each in out)
        run.check_time("sends", began, patience=patience)
        if self.transactional_id is None:
            deed.counts = True
            if rough:
                self.crash()
                await self.start()
            return
        if run.plan.timeout_ms < _SHORT_MS and random.random() < 0.2:
            # The coordinator may abort the transaction meanwhile.
            await asyncio.sleep(random.choice([1.0, 3.0]))
        await self._end(deed, number, failed=failed, rough=rough)

    async def _outcome(self, out: list[Outgoing], future: asyncio.Future[Any], deed: Deed) -> bool:
        """Note what has become of a call; tell whether it failed."""
        try:
            ends = await future
        except (asyncio.CancelledError, LogError) as error:
            self.run.trace.note("send", self.name, repr(error))
            causes = error.errors.values() if isinstance(error, ProduceFailed) else () if isinstance(error, asyncio.CancelledError) else (error,)
            for cause in causes:
                if not isinstance(cause, (LogTimeout, TransactionAborted, Fenced)):
                    raise Wrong(f"a send: {cause!r}") from error
            for one in out:
                deed.perhaps.setdefault(one.partition, set()).update(_ids(one))
            return True
        for one, end in zip(out, ends, strict=True):
            ids = _ids(one)
            deed.written.setdefault(one.partition, []).extend(ids)
            if ids:
                deed.places[ids[-1]] = end - 1
        return False

    async def _start_anew(self, error: Fenced) -> None:
        """Start once more if the request of a start that was given up may have come late. Raises Wrong."""
        if not self._gave_up:
            raise Wrong(f"{self.name} is fenced, though it has no rival: {error}") from error
        self.run.trace.note("fenced by itself", self.name, repr(error))
        self._gave_up = False
        self.crash()
        await self.start()

    async def _crash_and_start(self, sent: list[tuple[list[Outgoing], asyncio.Future[Any]]], deed: Deed) -> None:
        await asyncio.sleep(self._random.choice([0, 0.001, 0.01]))
        self.crash()
        for out, future in sent:
            future.cancel()
            await asyncio.wait([future])
            for one in out:
                if future.cancelled() or future.exception() is not None:
                    deed.perhaps.setdefault(one.partition, set()).update(_ids(one))
                else:
                    deed.written.setdefault(one.partition, []).extend(_ids(one))
        deed.counts = self.transactional_id is None
        await self.start()

    # --- ends of transactions -----------------------------------------------------------------------------------------------------------

    async def _end(self, deed: Deed, number: int, *, failed: bool, rough: bool) -> None:
        random, run = self._random, self.run
        commit = not failed and random.random() < 0.75
        offsets = {TopicPartition("a", 0): OffsetAndMetadata(number)} if random.random() < 0.5 else {}
        deed.offset = number if offsets else None
        group = GroupMetadata(f"group {self.name}", -1, "")
        if rough:
            await self._disturbed_end(deed, commit, offsets, group)
            return
        began, early = run.now, random.random() < 0.1
        end: Any = (lambda: self.producer.commit(offsets, group)) if commit else self.producer.abort
        for attempt in range(200):
            try:
                if early and attempt == 0:
                    await self._cancelled(end())
                else:
                    await end()
                deed.counts, self._gave_up = commit, False
                break
            except asyncio.CancelledError:
                run.trace.note("cancelled", self.name, commit)
            except LogTimeout as error:
                run.trace.note("end", self.name, repr(error))
            except TransactionAborted as error:
                run.trace.note("end", self.name, repr(error))
                deed.counts = False
                break
            except Fenced as error:
                await self._start_anew(error)
                deed.counts = False
                return
            except LogError as error:
                if not commit and early:
                    raise
                raise Wrong(f"an end: {error!r}") from error
        else:
            raise Wrong(f"{self.name}: a transaction does not end")
        run.check_time("an end", began, patience=run.plan.options["api_timeout_ms"] / 1000 if began < run.plan.healthy_at else 0.0)
        if deed.counts and (not run.plan.faults or began > run.plan.healthy_at + 2 * run.slack):
            self._check_visible(deed)

    async def _cancelled(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        await asyncio.sleep(self._random.choice([0, 0.001, 0.004, 0.02]))
        task.cancel()
        await task

    async def _disturbed_end(self, deed: Deed, commit: bool, offsets: Any, group: GroupMetadata) -> None:
        """Crash in the middle of the end, or have another process take the id before it."""
        random, run = self._random, self.run
        old = self.producer
        if random.random() < 0.5:
            ending = asyncio.ensure_future(old.commit(offsets, group) if commit else old.abort())
            await asyncio.sleep(random.choice([0, 0.001, 0.004, 0.02, 0.1]))
            self.crash()
            ending.cancel()
            await asyncio.wait([ending])
            if not ending.cancelled() and ending.exception() is None:
                deed.counts = commit
            elif not commit:
                deed.counts = False
            await self.start()
            return
        await self.start()
        run.trace.note("rivals", self.name)
        for _ in range(200):
            try:
                await old.commit(offsets, group)
            except LogTimeout:
                continue
            except (Fenced, TransactionAborted):
                break
            if any(deed.written.values()) or offsets:
                raise Wrong(f"{self.name} has committed behind a newer producer of its id")
            break
        deed.counts = False
        with suppress(LogError):
            await old.close()

    def _check_visible(self, deed: Deed) -> None:
        """A reader after a commit sees it."""
        for partition in deed.written:
            found = self.run.cluster.partition(partition)
            if found is not None and deed.written[partition] and any(each.end is None for each in found.log.transactions if self._own(each.producer)):
                raise Wrong(f"{partition} has an open transaction of {self.name} behind a commit")

    def _own(self, producer: int) -> bool:
        known = self.run.cluster.transactional.get(self.transactional_id or "")
        return known is not None and known.producer == producer


def _ids(one: Outgoing) -> list[int]:
    return [int(key.split()[1]) for key in one.batch.keys if key is not None]


class Writing:
    """One run: authors write, side by side."""

    def __init__(self, plan: WritingPlan) -> None:
        self.plan = plan
        self.trace = Trace(asyncio.get_running_loop().time)
        self.cluster = Cluster(plan.brokers, Random(f"cluster {plan.seed}"), self.trace, plan.manners)
        self.cluster.fencing = draw_fencing(plan.seed)
        for name, partitions, replication in plan.topics:
            self.cluster.make(name, partitions, replication, {"max.message.bytes": str(plan.limit)})
        self.cluster.settle()
        self.partitions = [TopicPartition(name, number) for name, count, _ in plan.topics for number in range(count)]
        self.authors = [Author(self, f"author{number}", name) for number, name in enumerate(plan.authors)]
        self.logs: list[KafkaLog] = []
        self._sites = 0

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def slack(self) -> float:
        """The seconds after which a client knows of a connection that leads nowhere."""
        return float(self.plan.options["request_timeout_ms"] + self.plan.options["connect_timeout_ms"]) / 1000 + 2

    def new_site(self) -> int:
        """Return a place for another process."""
        self._sites += 1
        return self._sites

    def check_time(self, what: str, began: float, *, patience: float) -> None:
        """Raise Wrong when something has taken longer than it may."""
        healthy = self.plan.healthy_at
        bound = _BOUND_S + patience
        if self.plan.outcast is not None:
            bound += 20 * self.plan.manners.lag + (3 * self.plan.options["metadata_max_age_ms"] + 2 * self.plan.options["request_timeout_ms"]) / 1000
        if began < healthy + self.slack:
            bound += max(0.0, healthy - began) + 2 * self.slack + self.plan.timeout_ms / 1000 * (self.plan.timeout_ms < _SHORT_MS)
        if self.now - began > bound:
            raise Wrong(f"{what} took {self.now - began:.1f} s, and may take {bound:.1f}")

    async def main(self) -> None:
        """Do it. Raises Wrong, and what the client should not raise."""
        plan = self.plan
        faults = Faults(self.cluster, Random(f"faults {plan.seed}"), plan.faults, until=plan.healthy_at, sites=range(1, 200), outcast=plan.outcast)
        with simulated(self.cluster.network, Random(f"seams {plan.seed}")):
            self.cluster.begin(expire(self.cluster))
            work = [asyncio.ensure_future(author.live()) for author in self.authors]
            if plan.faults:
                work += [asyncio.ensure_future(faults.befall()), asyncio.ensure_future(faults.heal())]
            try:
                async with asyncio.timeout(_LONGEST_S):
                    await asyncio.gather(*work)
                await asyncio.sleep(2 * self.slack + 5)
                self._check()
            finally:
                for one in work:
                    one.cancel()
                await asyncio.gather(*work, return_exceptions=True)
                for log in self.logs:
                    await log.close()
                await self.cluster.close()

    # --- the end ------------------------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        for partition in self.partitions:
            found = self.cluster.partition(partition)
            assert found is not None
            log, cut = found.log, partition in self.cluster.cuts
            if not cut and any(each.end is None for each in log.transactions):
                raise Wrong(f"{partition} has an open transaction at the end")
            read = expected_of(log, log.start, log.end, committed=True)
            for author in self.authors:
                prefix = author.name.encode() + b" "
                places = [(int(key.split()[1]), offset) for offset, _, key, *_ in read if key.startswith(prefix)]
                self._check_author(partition, author, places, cut=cut)
        for author in self.authors:
            self._check_offsets(author)

    def _check_author(self, partition: TopicPartition, author: Author, places: list[tuple[int, int]], *, cut: bool) -> None:
        ids = [number for number, _ in places]
        where, there = dict(places), set(ids)
        if len(there) != len(ids):
            raise Wrong(f"{partition} has records of {author.name} twice: {[each for each in ids if ids.count(each) > 1][:10]}")
        if cut:
            # An unclean election has taken records, and ends of transactions.
            return
        must, may = self._expected(partition, author, there)
        lost = [each for each in must if each not in there]
        if lost:
            raise Wrong(f"{partition} has lost records of {author.name}: {lost[:10]} of {len(must)}")
        extra = there - set(must) - may
        if extra:
            raise Wrong(f"{partition} has records of {author.name} that are not to be there: {sorted(extra)[:10]}")
        ordered = set(must)
        if [each for each in ids if each in ordered] != must:
            raise Wrong(f"{partition} has records of {author.name} in another order")
        for deed in author.deeds:
            for number, offset in deed.places.items():
                if number in where and where[number] != offset:
                    raise Wrong(f"{partition} has record {number} of {author.name} at {where[number]}, and the client says {offset}")

    @staticmethod
    def _expected(partition: TopicPartition, author: Author, there: set[int]) -> tuple[list[int], set[int]]:
        """Return what has to be there of an author, in its order, and what may be."""
        must: list[int] = []
        may: set[int] = set()
        for deed in author.deeds:
            written, perhaps = deed.written.get(partition, []), deed.perhaps.get(partition, set())
            counts = deed.counts
            if counts is None:
                # All of it is there, or nothing: other partitions tell the same.
                seen = there & {*written, *perhaps}
                counts = bool(seen)
                deed.counts = counts if written or perhaps else None
            if counts:
                must += written
                # A commit has what was written, and nothing of which nobody knows.
                may |= perhaps if author.transactional_id is None else set()
            if not counts and there & {*written, *perhaps}:
                raise Wrong(f"{partition} has records of {author.name} that were aborted: {sorted(there & {*written, *perhaps})[:10]}")
        return must, may

    def _check_offsets(self, author: Author) -> None:
        expected = [deed.offset for deed in author.deeds if deed.offset is not None and deed.counts]
        unknown = {deed.offset for deed in author.deeds if deed.offset is not None and deed.counts is None}
        offsets = self.cluster.offsets_of(f"group {author.name}")
        found = offsets.committed.get(TopicPartition("a", 0), {}).get("offset")
        if offsets.unstable:
            raise Wrong(f"the group of {author.name} has offsets of an open transaction at the end")
        if found != (expected[-1] if expected else None) and found not in unknown:
            raise Wrong(f"the group of {author.name} has offset {found}, expected {expected[-1:]}")


def write_seed(seed: int) -> Writing:
    """Run a seed. Raises its error, with the plan and the last events as notes."""
    return run_virtual(lambda: Writing(draw_writing(seed)), seed)
