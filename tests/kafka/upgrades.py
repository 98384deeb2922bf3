"""Rolling upgrades on a real Kafka: three members are restarted one by one with the next version of their topology, in each order.

`python -m tests.kafka.upgrades` goes through all changes, orders and guarantees (some minutes); its exit code is 1 when a record was not read, or one
came out twice where it must not. `--change`, `--order 120` and `--guarantee` choose some.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ks_actors import App, Consumed, Materialized, Produced, StreamsBuilder, StreamsConfig
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.serdes import BYTES, LONG
from ks_actors.topology import Topology
from tests.kafka.broker import Broker
from tests.ks_actors.log.helpers import batch, group_name, read_until
from tests.waiting import PATIENCE_S

GUARANTEES = ("at_least_once", "exactly_once_v2")
ORDERS = ["".join(map(str, order)) for order in itertools.permutations(range(3))]
PARTITIONS = 3


class Upgrade:
    """One change of a topology, with topics of its own."""

    def __init__(self, log: KafkaLog, directory: Path, change: str, guarantee: str) -> None:
        self._log = log
        self._directory = directory
        self._guarantee = guarantee
        self.name = group_name()
        self.orders, self.returns, self.out, self.counts = (f"{topic}-{self.name}" for topic in ("orders", "returns", "out", "counts"))
        one, two = [self.orders], [self.orders, self.returns]
        self.before, self.after = {"topic-more": (one, two), "topic-less": (two, one), "count-more": (one, one)}[change]
        self._counted = change == "count-more"
        self._sent: dict[str, list[bytes]] = {self.orders: [], self.returns: []}
        self._number = 0

    def topology(self, topics: Sequence[str], *, counted: bool = False) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(topics, Consumed(BYTES, BYTES))
        stream.to(self.out, Produced(BYTES, BYTES))
        if counted:
            stream.group_by_key().count(Materialized("counts", BYTES, LONG)).to_stream().to(self.counts, Produced(BYTES, LONG))
        return builder.build()

    def app(self, who: int, topology: Topology) -> App:
        config = StreamsConfig.of(
            {
                "application_id": self.name, "client_id": f"member-{who}", "state_dir": str(self._directory / self.name / str(who)),
                "processing_guarantee": self._guarantee, "commit_interval_ms": 100,
            }
        )  # fmt: skip
        return App(topology, config, log=self._log)

    async def send(self, topics: Sequence[str]) -> None:
        producer = await self._log.producer(client_id="feeder")
        for topic in topics:
            for number in range(PARTITIONS):
                value = b"%s/%d" % (topic.encode(), self._number)
                self._number += 1
                self._sent[topic].append(value)
                await producer.send([Outgoing(TopicPartition(topic, number), batch(value, keys=[b"k%d" % number]))])
        await producer.close()

    async def read(self, topics: Sequence[str] = ()) -> Counter[bytes]:
        """Wait until all that was sent to the topics has come out; return how often each value has, and is committed."""
        wanted = {value for topic in topics for value in self._sent[topic]}
        outs = [TopicPartition(self.out, number) for number in range(PARTITIONS)]
        return Counter([each.value or b"" for each in await read_until(self._log, outs, lambda found: wanted <= {each.value for each in found})])

    async def run(self, order: str) -> None:
        """Restart the members in this order. Raises AssertionError when a record was not read, or came out twice."""
        await self._log.create_topics([NewTopic(topic, PARTITIONS) for topic in (self.orders, self.returns, self.out, self.counts)])
        members = [self.app(who, self.topology(self.before)) for who in range(3)]
        await asyncio.gather(*(app.start() for app in members))
        try:
            await self.send(self.before)
            await self.read(self.before)
            both = [topic for topic in self.before if topic in self.after]
            for who in map(int, order):
                await members[who].close()
                await self.send(both)
                members[who] = self.app(who, self.topology(self.after, counted=self._counted))
                await members[who].start()
                await self.send(self.after)
            # One member knows of all others whether they are done.
            await members[int(order[0])].wait_until_caught_up(PATIENCE_S * 1_000)
            found = await self.read()
            unread = {value for topic in self.after for value in self._sent[topic]} - found.keys()
            assert not unread, f"caught up, and not read: {sorted(unread)}"
        finally:
            await asyncio.gather(*(app.close() for app in members), return_exceptions=True)
        # All members are closed in order, so nothing is processed again, whatever the guarantee.
        assert not (twice := sorted(value for value, times in found.items() if times > 1)), f"came out twice: {twice}"


async def upgrade(broker: Broker, directory: Path, change: str, order: str, guarantee: str) -> None:
    """Do one. Raises AssertionError."""
    async with KafkaLog(broker.bootstrap) as log:
        await Upgrade(log, directory, change, guarantee).run(order)


CHANGES = ("topic-more", "topic-less", "count-more")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.upgrades", description=__doc__)
    parser.add_argument("--change", nargs="+", choices=CHANGES, default=CHANGES)
    parser.add_argument("--order", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--guarantee", nargs="+", choices=GUARANTEES, default=GUARANTEES)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ks-actors-upgrades-") as directory:
        broker = Broker(Path(directory) / "broker")
        broker.start()
        try:
            for change, order, guarantee in itertools.product(options.change, options.order, options.guarantee):
                try:
                    asyncio.run(upgrade(broker, Path(directory), change, order, guarantee))
                except AssertionError as error:
                    failed += 1
                    sys.stdout.write(f"{change} {order} {guarantee}: FAILED: {error}\n")
                else:
                    sys.stdout.write(f"{change} {order} {guarantee}: all read, none twice\n")
                sys.stdout.flush()
        finally:
            broker.stop()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
