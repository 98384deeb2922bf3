"""Some seeds on a real Kafka, in real time: all is processed within a minute, and right."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from ks_actors import App, StreamsConfig
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.testing import TestRecord
from tests.kafka.broker import Broker
from tests.ks_actors.log.helpers import group_name, read_all
from tests.liveness.plan import Lane, Plan, draw
from tests.liveness.run import Run
from tests.liveness.topology import build

pytestmark = [pytest.mark.unmeasured, pytest.mark.extended]

SEEDS = (4, 120, 241, 355)
PATIENCE_S = 60


def renamed(plan: Plan, prefix: str) -> Plan:
    """Return a plan with topics of its own on a broker that others use."""
    lanes = tuple(replace(lane, name=f"{prefix}-{lane.name}") for lane in plan.lanes)
    return replace(plan, lanes=lanes, bursts=tuple(replace(burst, topic=f"{prefix}-{burst.topic}") for burst in plan.bursts))


async def written(log: KafkaLog, lane: Lane) -> list[TestRecord[str, str]]:
    """Return the output of a lane."""
    found = [await read_all(log, TopicPartition(f"{lane.name}-out", number)) for number in range(lane.partitions)]
    return [TestRecord((key or b"").decode(), (value or b"").decode(), 0) for partition in found for _, key, value in partition]


def hold(seconds: float) -> None:
    """Have a thread do nothing else for so long."""
    threading.Event().wait(seconds)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", SEEDS)
async def test_all_is_processed_on_kafka(seed: int, kafka_broker: Broker, tmp_path: Path) -> None:
    """All is processed and committed soon after the last record, though a member joins and leaves; exactly once if so promised."""
    run = Run(renamed(draw(seed), group_name()))
    plan, application = run.plan, group_name()
    lanes = {topic: lane for lane in plan.lanes for topic in lane.topics}

    def app(name: str) -> App:
        config = StreamsConfig.of({
            **plan.config,
            "application_id": application,
            "client_id": name,
            "bootstrap_servers": kafka_broker.bootstrap,
            "state_dir": str(tmp_path / name),
            "commit_interval_ms": min(plan.config["commit_interval_ms"], 500),
        })  # fmt: skip
        return App(build(plan, run.ledger, hold), config)

    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(KafkaLog(kafka_broker.bootstrap))
        await log.create_topics([NewTopic(topic, lane.partitions) for lane in plan.lanes for topic in (*lane.topics, f"{lane.name}-out")])
        producer = await log.producer(client_id="feed")
        async with asyncio.timeout(PATIENCE_S), app("one") as one:
            async with asyncio.TaskGroup() as group:
                for burst in plan.bursts:
                    group.create_task(run._feed(producer, lanes[burst.topic], burst))
                async with app("two") as two:
                    # Some is there by now; more comes, and is processed by two, while this one leaves.
                    await two.wait_until_caught_up()
            await one.wait_until_caught_up()
        await producer.close()
        for lane in plan.lanes:
            run.ledger.check(lane, await written(log, lane), exactly_once=plan.exactly_once)
