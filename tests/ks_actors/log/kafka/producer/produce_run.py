"""A run of an idempotent producer, drawn by a seed: batches of several partitions in flight, and leaders that fail in most ways that there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import LogTimeout, ProduceFailed, RecordTooLarge
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.admin import Admin
from ks_actors.log.kafka.producer import KafkaProducer
from tests.ks_actors.log.helpers import batch
from tests.ks_actors.log.kafka.consumer.scripted import in_virtual_time
from tests.ks_actors.log.kafka.producer.modelled import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.log.kafka.producer import Sender

RETRIABLE: Final = (2, 3, 5, 6, 7, 13, 19, 20, 56)
REFUSALS: Final = (10, 18, 45, 59)
_ENDS: Final = (-1, 14, 15, 16, 48, 51, 51, 59, 120)
# The codes of coordinators, by request.
COORDINATOR: Final = {
    "AddPartitionsToTxn": _ENDS,
    "AddOffsetsToTxn": _ENDS,
    "EndTxn": _ENDS,
    "InitProducerId": (14, 15, 16, 51),
    "TxnOffsetCommit": (3, 7, 12, 14, 15, 16, 22, 25, 48, 51),
}
_IMPATIENT_MS: Final = 2_000
# Not a whole number of any pause.
_LONGEST_S: Final = 7.3


def run_produce_seed(seed: int) -> None:
    """Pass a seed. Raises AssertionError when something is written twice, in another order or not at all, or stands still."""
    try:
        in_virtual_time(_ProduceRun(seed).main)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise


class _ProduceRun:
    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)
        topics = [TopicPartition(topic, number) for topic in "ab" for number in range(random.choice((1, 1, 3)))]
        self.cluster = Cluster(topics, brokers=random.choice((1, 2, 3)), seed=seed)
        self.options = KafkaOptions(
            batch_bytes=random.choice((90, 300, 100_000)),
            max_in_flight=random.choice((1, 2, 4, 5)),
            retry_backoff_ms=random.choice((0, 5, 50)),
            request_timeout_ms=random.choice((1_000, 30_000)),
            delivery_timeout_ms=random.choice((_IMPATIENT_MS, 300_000, 300_000)),
        )
        # A leader that forgets all of its producers takes what it has: that is lost with Kafka's own producer, too.
        self.forgetful = random.random() < 0.2

    async def main(self) -> None:
        cluster, options, random, loop = self.cluster, self.options, self.random, asyncio.get_running_loop()
        client = cluster.connect(options)
        producer = KafkaProducer(client, Admin(client), "p", lambda _: None)
        await producer.start()
        watch(producer._sender)
        until, calls, made = loop.time() + random.choice((0.2, 0.5, 1)), list[tuple[list[Outgoing], asyncio.Task[Any]]](), 0
        kinds = ["lead", "break", "break", "freeze", *["code"] * 4, "restart", "lag", "limit", "away", "stale", *["lose"] * 2]
        trouble = asyncio.create_task(befall(cluster, random, until, [*kinds, "forget"] if self.forgetful else kinds))
        while loop.time() < until:
            outgoing = []
            for place in random.sample(list(cluster.partitions), random.randint(1, min(3, len(cluster.partitions)))):
                count = random.choice((1, 1, 2, 5, 12))
                outgoing.append(Outgoing(place, batch(*[b"%d" % (made + index) for index in range(count)])))
                made += count
            calls.append((outgoing, asyncio.create_task(producer.send(outgoing))))
            await asyncio.sleep(random.choice((0, 0.001, 0.005, 0.03, 0.1)))
        await trouble
        cluster.mend()
        # A broker that was frozen is heard of when its request times out.
        async with asyncio.timeout(_LONGEST_S + options.request_timeout_ms / 1_000):
            await asyncio.wait([call for _, call in calls])
        await cluster.rest()
        self._judge(calls)
        await producer.close()

    def _judge(self, calls: list[tuple[list[Outgoing], asyncio.Task[Any]]]) -> None:
        written: dict[TopicPartition, list[tuple[list[bytes | None], int]]] = {place: [] for place in self.cluster.partitions}
        for outgoing, call in calls:
            error = call.exception()
            assert error is None or isinstance(error, ProduceFailed), repr(error)
            errors, ends = ({}, call.result()) if error is None else (error.errors, [0] * len(outgoing))
            for each, end in zip(outgoing, ends, strict=True):
                if each.partition not in errors:
                    written[each.partition].append((list(each.batch.values), end))
                    continue
                late = isinstance(errors[each.partition], LogTimeout) and self.options.delivery_timeout_ms == _IMPATIENT_MS
                assert late or isinstance(errors[each.partition], RecordTooLarge), repr(errors[each.partition])
        for place, part in self.cluster.partitions.items():
            found = {value: entry.base + index for entry in part.entries for index, value in enumerate(entry.values)}
            wanted = [value for values, _ in written[place] for value in values if value not in part.lost]
            assert not (missing := [value for value in wanted if value not in found]), f"{place} lacks {missing}"
            if self.forgetful:
                continue
            seen = part.values()
            assert not (twice := [value for value, count in Counter(seen).items() if count > 1]), f"{place} has twice {twice}"
            assert [value for value in seen if value in set(wanted)] == wanted, f"{place} has another order"
            for values, end in written[place]:
                assert not end or part.lost.intersection(values) or found[values[-1] or b""] == end - 1, f"{values} of {place} are not before {end}"


def watch(sender: Sender) -> None:
    """Assert after each step of a sender that each batch that waits has a request before it, or a timer that is in time."""
    real = sender.go

    def go() -> None:
        real()
        now = asyncio.get_running_loop().time()
        for queue in () if sender._closed else sender._queues.values():
            if queue.batches:
                assert queue in sender._waiting, f"{queue.partition} was forgotten"
                late = queue.batches[0].deadline
                armed = sender._timer is not None and sender._wake_at <= late + 1e-6
                assert armed or (queue.in_flight and late <= now), f"{queue.partition} has no timer"

    sender.go = go  # type: ignore[method-assign]


async def befall(cluster: Cluster, random: Random, until: float, kinds: list[str]) -> None:
    """Have things of these kinds happen, until a time."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await asyncio.sleep(random.expovariate(12))
        kind, seconds = random.choice(kinds), random.choice((0.01, 0.1, 0.4))
        node, place = random.choice(cluster.nodes), random.choice(list(cluster.partitions))
        if kind in COORDINATOR:
            cluster.codes[kind] += random.choices(COORDINATOR[kind], k=random.choice((1, 2)))
        elif kind in {"freeze", "away"}:
            (cluster.freeze if kind == "freeze" else cluster.take_away)(node)
            loop.call_later(seconds, cluster.thaw if kind == "freeze" else cluster.away.discard, node)
        else:
            _befall_at_once(cluster, random, kind, node, place, seconds)


def _befall_at_once(cluster: Cluster, random: Random, kind: str, node: int, place: TopicPartition, seconds: float) -> None:
    part, codes = cluster.partitions[place], (*RETRIABLE, *RETRIABLE, *REFUSALS)
    things: dict[str, Callable[[], object]] = {
        "lead": lambda: cluster.lead(place, node),
        "break": lambda: cluster.break_connections(node),
        "restart": lambda: cluster.restart(node),
        "code": lambda: cluster.codes["Produce"].extend(random.choices(codes, k=random.choice((1, 1, 3)))),
        "lag": lambda: part.lag(seconds),
        "limit": lambda: setattr(cluster, "limit", random.choice((150, 300, 1_000_000, 1_000_000))),
        "stale": lambda: setattr(cluster, "lagging_metadata", not cluster.lagging_metadata),
        # Not all: then no leader would know the producer.
        "lose": lambda: cluster.lose_records(place, min(random.choice((1, 2, 3, 6)), len(part.entries) - 1)),
        "forget": lambda: cluster.forget(place, last=0),
        "coordinator": lambda: cluster.coordinate(node),
        "lose id": cluster.transactions.clear,
        "lose transaction": cluster.lose_transactions,
    }
    things[kind]()
