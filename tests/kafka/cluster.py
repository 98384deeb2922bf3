"""A real Kafka of three nodes, as people run it: replicated topics, whose leaders move when a node is away."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]

from tests.kafka.broker import Broker, require_kafka
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = 3
_PATIENCE_S = 60


class Cluster:
    """Nodes that are brokers and controllers. Each partition has a replica on each, and takes writes while two have it."""

    def __init__(self, directory: Path) -> None:
        self.nodes = [Broker(directory / f"node-{number}", node=number) for number in range(1, NODES + 1)]
        voters = ",".join(f"{node.number}@{node.address('CONTROLLER')}" for node in self.nodes)
        shared = {
            "controller.quorum.voters": voters,
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "offsets.topic.num.partitions": "6",
            "transaction.state.log.num.partitions": "6",
            # A replica that lags is believed to be in sync for 30 s else.
            "replica.lag.time.max.ms": "3000",
            "controlled.shutdown.enable": "true",
            "metadata.max.idle.interval.ms": "500",
        }
        for node in self.nodes:
            node.settings |= shared

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self) -> None:
        """Start all nodes, and wait until each knows all."""
        with ThreadPoolExecutor(NODES) as threads:
            for started in [threads.submit(node.start) for node in self.nodes]:
                started.result()
        self.wait()

    def wait(self) -> None:
        """Wait until each running node knows all running ones."""
        running = [node for node in self.nodes if node.runs]
        deadline = time.monotonic() + _PATIENCE_S
        while any(node.knows() != len(running) for node in running):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the nodes know {[node.knows() for node in running]} nodes instead of {len(running)}")

    async def replicated(self) -> None:
        """Wait until each partition has a replica in sync on each node."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)

        async def in_sync() -> bool:
            return all(len(each["isr"]) == NODES for topic in await admin.describe_topics() for each in topic["partitions"])

        await admin.start()
        try:
            await until(in_sync)
        finally:
            await admin.close()

    async def leader(self, topic: str, partition: int = 0) -> Broker:
        """Return the node that leads a partition."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            (described,) = await admin.describe_topics([topic])
        finally:
            await admin.close()
        (number,) = [each["leader"] for each in described["partitions"] if each["partition"] == partition]
        return next(node for node in self.nodes if node.number == number)

    def kill(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            node.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes of one test, running, to be killed and restarted as it likes."""
    require_kafka()
    made = Cluster(tmp_path / "cluster")
    try:
        made.start()
        yield made
    finally:
        made.kill()
