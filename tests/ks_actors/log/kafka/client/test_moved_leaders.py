"""Two brokers, of which one dies or stands still: leaders and coordinators move to the other one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ks_actors.log import NewMember, NewTopic, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client import GROUP
from ks_actors.log.kafka.wire import COORDINATOR_LOAD_IN_PROGRESS, MetadataRequest
from ks_actors.log.kafka.wire._requests import offset_fetch
from tests.kafka.broker import Broker, require_kafka
from tests.ks_actors.log.helpers import COMMITTED, assigned, batch, by_turns, group_name, settle
from tests.waiting import soon

_REPLICATED = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    # An unclean end is noticed by the controller after this time.
    "broker.session.timeout.ms": "2000",
}


@pytest.fixture
def two_brokers(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """The first one is the controller, too."""
    require_kafka()
    first = Broker(tmp_path / "first", settings=_REPLICATED)
    second = Broker(tmp_path / "second")
    second.settings = {
        **_REPLICATED,
        "node.id": "2",
        "process.roles": "broker",
        "controller.quorum.voters": f"1@{first.address('CONTROLLER')}",
        "listeners": f"PLAINTEXT://{second.address('PLAINTEXT')}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    try:
        first.start()
        second.start()
        yield first, second
    finally:
        second.kill()
        first.kill()


@pytest.mark.everyday
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_partitions_of_a_broker_that_is_away_go_on_elsewhere(two_brokers: tuple[Broker, Broker], how: str) -> None:
    """Readers, writers and members of groups find the new leaders and coordinators; nothing is lost, nothing comes twice.

    A frozen broker keeps its connections: the cluster's list tells that it is gone, long before its requests time out.
    """
    first, second = two_brokers
    options = KafkaOptions(replication_factor=2, request_timeout_ms=600_000)
    async with KafkaLog(f"{first.bootstrap},{second.bootstrap}", options=options) as log:
        topic = f"topic-{group_name()}"
        await log.create_topics([NewTopic(topic, 4)])
        partitions = [TopicPartition(topic, number) for number in range(4)]
        producer = await log.producer(client_id="p")
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign(dict.fromkeys(partitions, 0))
        found: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}

        async def write_and_read(begin: int, end: int) -> None:
            await producer.send([Outgoing(partition, batch(*[b"%d" % number for number in range(begin, end)])) for partition in partitions])
            while any(len(numbers) < end for numbers in found.values()):
                for fetched in await fetcher.fetch(max_wait_ms=1_000):
                    found[fetched.partition] += map(int, fetched.batch.values)

        async def coordinated_by(node: int) -> str:
            """A group with that broker as its coordinator."""
            while True:
                name = group_name()
                await log._client.send_to_coordinator(GROUP, name, offset_fetch(name, []), lambda response: [response.error_code])
                if await log._client.coordinator(GROUP, name) == node:
                    return name

        group = await coordinated_by(2)
        member = await log.join(
            group, NewMember(client_id="c", topics=[topic], user_data=b"", assignor=by_turns, session_timeout_ms=30_000, rebalance_timeout_ms=30_000)
        )
        before = await assigned(member)
        await soon(write_and_read(0, 100))
        assert {log._client.leader(partition) for partition in partitions} == {1, 2}
        await member.commit(dict.fromkeys(partitions, OffsetAndMetadata(100)))

        (second.kill if how == "killed" else second.pause)()
        await soon(write_and_read(100, 200))
        assert log._client.nodes == (1,), "its clients share the list of brokers"
        assert {log._client.leader(partition) for partition in partitions} == {1}
        await soon(member.commit(dict.fromkeys(partitions, OffsetAndMetadata(200))))
        assert member.group == before.group
        assert await member.committed(partitions) == dict.fromkeys(partitions, OffsetAndMetadata(200))
        member.rejoin(b"")
        (after,) = await settle(member)
        assert after.group.member_id == before.group.member_id

        await asyncio.to_thread(second.start if how == "killed" else second.resume)
        await soon(write_and_read(200, 300))
        assert all(numbers == list(range(300)) for numbers in found.values())


async def test_what_one_broker_refuses_for_now_is_sent_to_another(two_brokers: tuple[Broker, Broker], caplog: pytest.LogCaptureFixture) -> None:
    """A request that any broker can answer goes to each in turn until one accepts it."""
    first, second = two_brokers
    caplog.set_level("DEBUG", "ks_actors.log.kafka.wire")
    async with KafkaLog(f"{first.bootstrap},{second.bootstrap}") as log:
        while len(log._client.nodes) < 2:
            await log._client.refresh()
        for node in log._client.nodes:
            # One that is slow to accept a connection is passed over.
            await log._client.retry("to connect", partial(log._client.send, node, MetadataRequest([])))
        caplog.clear()
        answers = [COORDINATOR_LOAD_IN_PROGRESS] * 3 + [0]
        await log._client.send_to_any(MetadataRequest([]), lambda _: [answers.pop(0)])
    asked = [record.args[1] for record in caplog.records if isinstance(record.args, tuple) and "MetadataRequest" in str(record.args[-1])]
    assert len(asked) == 4
    assert asked[0] != asked[1]
    assert asked[2] != asked[3]
    assert answers == []
