"""A run of a transactional producer, drawn by a seed: its calls fail, are cancelled or wait, while leaders and coordinators fail in most ways."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import Fenced, LogClosed, LogError, LogTimeout
from ks_actors.log import GroupMetadata, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.admin import Admin
from ks_actors.log.kafka.transactions import KafkaTransactionalProducer
from tests.ks_actors.log.helpers import batch
from tests.ks_actors.log.kafka.consumer.scripted import in_virtual_time
from tests.ks_actors.log.kafka.producer.modelled import Cluster
from tests.ks_actors.log.kafka.producer.produce_run import COORDINATOR, befall, watch

if TYPE_CHECKING:
    from collections.abc import Awaitable

GROUP: Final = "g"
_PATIENT_MS: Final = 60_000
_ATTEMPTS: Final = 60
_LONGEST_S: Final = 7.3
# The transactions of a run when all is well; before the second one the producer hears of what was not.
_GOOD: Final = 3


def run_transaction_seed(seed: int) -> None:
    """Pass a seed. Raises AssertionError when a transaction is seen in part, twice or against what was told, or does not end."""
    try:
        in_virtual_time(_TransactionRun(seed).main)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise


async def transactional(cluster: Cluster, options: KafkaOptions, *, timeout_ms: int = _PATIENT_MS) -> KafkaTransactionalProducer:
    """Return a producer with the only transactional id."""
    client = cluster.connect(options)
    producer = KafkaTransactionalProducer(client, Admin(client), "id", client_id="p", timeout_ms=timeout_ms, scope=None, closed=lambda _: None)
    try:
        await producer.start()
    except LogError:
        await producer.close()
        raise
    return producer


class _TransactionRun:
    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)
        topics = [TopicPartition(topic, number) for topic in "ab" for number in range(random.choice((1, 1, 3)))]
        self.cluster = Cluster(topics, brokers=random.choice((1, 2, 3)), seed=seed)
        self.options = KafkaOptions(
            batch_bytes=random.choice((90, 300, 100_000)),
            max_in_flight=random.choice((1, 2, 4, 5)),
            retry_backoff_ms=random.choice((0, 5, 50)),
            request_timeout_ms=random.choice((1_000, 30_000)),
            delivery_timeout_ms=random.choice((2_000, 300_000)),
            api_timeout_ms=random.choice((2_000, 60_000)),
        )
        self.timeout_ms = random.choice((_PATIENT_MS, _PATIENT_MS, 1_500))
        # Records of a transaction that a coordinator has lost end with a later one, or never: only progress can be asked for.
        self.amnesiac = random.random() < 0.3
        # Of its own: the other draws of a seed stay as they were.
        self.giving_up = Random(f"abandon {seed}")
        self.committed: dict[TopicPartition, list[bytes | None]] = {place: [] for place in topics}
        self.offset: int | None = None
        self._made = self._rounds = 0

    async def main(self) -> None:
        cluster, random, loop = self.cluster, self.random, asyncio.get_running_loop()
        producer = await self._begin()
        until, good = loop.time() + random.choice((0.5, 1, 2)), 0
        kinds = ["lead", "break", "break", "freeze", "code", "code", "restart", "lag", "limit", "away", "stale", "coordinator", "lose", *COORDINATOR]
        trouble = asyncio.create_task(befall(cluster, random, until, kinds + ["lose id", "lose transaction"] * self.amnesiac))
        while good < _GOOD:
            if loop.time() >= until and not good:
                await trouble
                cluster.mend()
            good += loop.time() >= until
            began = loop.time()
            if not await self._transact(producer, certain=good > 1 and self.timeout_ms == _PATIENT_MS):
                await producer.close()
                producer = await self._begin()
            longest = _LONGEST_S + (self.options.request_timeout_ms / 1_000 if good == 1 else 0)
            assert not good or loop.time() - began < longest, f"a transaction took {loop.time() - began} s when all was well"
        await producer.close()
        await cluster.rest()
        if not self.amnesiac:
            self._judge()

    async def _begin(self) -> KafkaTransactionalProducer:
        while True:
            try:
                producer = await transactional(self.cluster, self.options, timeout_ms=self.timeout_ms)
            except (LogTimeout, Fenced):
                continue
            watch(producer._sender)
            return producer

    async def _transact(self, producer: KafkaTransactionalProducer, *, certain: bool) -> bool:
        """Send, and commit or abort. Returns False when the producer is fenced. `certain` says that nothing may fail."""
        random = self.random
        self._rounds += 1
        sends: list[tuple[list[Outgoing], asyncio.Task[Any]]] = []
        for _ in range(random.choice((1, 1, 3, 8))):
            outgoing = []
            for place in random.sample(list(self.cluster.partitions), random.randint(1, 2)):
                count = random.choice((1, 1, 2, 5, 12))
                outgoing.append(Outgoing(place, batch(*[b"%d" % (self._made + index) for index in range(count)])))
                self._made += count
            sends.append((outgoing, asyncio.create_task(producer.send(outgoing))))
            if random.random() < 0.4:
                await asyncio.sleep(random.choice((0, 0.0001, 0.002, 0.05)))
        if cancelled := random.random() < 0.1:
            await asyncio.sleep(0.001)
            sends[-1][1].cancel()
        abandoned = self.giving_up.random() < 0.15
        abandoning = asyncio.get_running_loop().call_later(
            self.giving_up.choice((0, 0.001, 0.002, 0.004, 0.02)), producer.abandon if abandoned else lambda: None
        )
        early = random.random() < 0.1
        commit = early or (await _sent(sends) and random.random() < 0.75)
        offsets = {TopicPartition("a", 0): OffsetAndMetadata(self._rounds)} if random.random() < 0.5 else {}
        outcome = await self._end(producer, offsets, commit=commit)
        abandoning.cancel()
        sent = await _sent(sends)
        assert outcome != "committed" or sent, "a transaction was committed without all of its records"
        assert not certain or early or cancelled or abandoned or outcome == ("committed" if commit else "aborted"), f"{outcome} when all was well"
        if outcome == "fenced":
            await self._find_out(sends)
        elif outcome == "committed":
            for outgoing, _ in sends:
                for each in outgoing:
                    self.committed[each.partition] += each.batch.values
            self.offset = self._rounds if offsets else self.offset
        return outcome != "fenced"

    async def _end(self, producer: KafkaTransactionalProducer, offsets: dict[TopicPartition, OffsetAndMetadata], *, commit: bool) -> str:
        """Commit or abort until the outcome is known, at first maybe with a cancelled call."""
        for attempt in range(_ATTEMPTS):
            work: Awaitable[None] = producer.commit(offsets, GroupMetadata(GROUP, -1, "")) if commit else producer.abort()
            call = asyncio.ensure_future(work)
            if not attempt and self.random.random() < 0.15:
                await asyncio.sleep(self.random.choice((0, 0.001, 0.004, 0.02)))
                call.cancel()
            try:
                await call
            except (LogTimeout, asyncio.CancelledError):
                continue
            except Fenced:
                return "fenced"
            except LogError:
                # The codes that are given by chance refuse commits for any reason.
                if not commit:
                    raise
                return "aborted"
            return "committed" if commit else "aborted"
        raise AssertionError(f"there is no outcome after {_ATTEMPTS} attempts")

    async def _find_out(self, sends: list[tuple[list[Outgoing], asyncio.Task[Any]]]) -> None:
        """Take the outcome of the last transaction from the log: a fenced producer need not know it."""
        await self.cluster.rest()
        for place, part in self.cluster.partitions.items():
            seen = set(part.values())
            values = [value for outgoing, _ in sends for each in outgoing if each.partition == place for value in each.batch.values]
            found = [value for value in values if value in seen]
            assert self.amnesiac or not found or len(found) == len(values), f"{place} shows a part of a transaction"
            self.committed[place] += found
        self.offset = self.cluster.offsets.get((GROUP, TopicPartition("a", 0)), self.offset)

    def _judge(self) -> None:
        for place, part in self.cluster.partitions.items():
            seen = part.values()
            assert not (twice := [value for value, count in Counter(seen).items() if count > 1]), f"{place} has twice {twice}"
            wanted = [value for value in self.committed[place] if value not in part.lost]
            assert [value for value in seen if value not in part.lost] == wanted, f"{place} has {seen} in place of {wanted}"
            assert part.lost or not any(entry.state == "open" for entry in part.entries), f"{place} has records of an open transaction"
        assert self.offset is None or self.cluster.offsets[GROUP, TopicPartition("a", 0)] == self.offset


async def _sent(sends: list[tuple[list[Outgoing], asyncio.Task[Any]]]) -> bool:
    """Wait for calls, and return whether all have sent their records."""
    await asyncio.wait([call for _, call in sends])
    for _, call in sends:
        error = None if call.cancelled() else call.exception()
        assert error is None or (isinstance(error, LogError) and not isinstance(error, LogClosed)), repr(error)
    return all(not call.cancelled() and call.exception() is None for _, call in sends)
