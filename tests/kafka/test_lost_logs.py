"""The brokers lose the log of an internal topic, of a global table, or of a leader: whole apps notice, and say so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.admin import NewTopic as Assigned

from ks_actors import (
    App,
    Consumed,
    InstanceState,
    Materialized,
    Produced,
    ProductionFailed,
    Repartitioned,
    StreamsBuilder,
    StreamsError,
    UncaughtResponse,
)
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.serdes import BYTES, LONG
from ks_actors.topology import Topology
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.cluster import Cluster, cluster
from tests.kafka.counting import PARTITIONS, Counting, counting, ended
from tests.ks_actors.log.helpers import batch
from tests.ks_actors.log.kafka.consumer.test_truncation import lose_disk

__all__ = ["cluster"]


from tests.waiting import until


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


async def lose(broker: Broker, topic: str) -> None:
    """Have a broker crash, and come back without the records of a topic."""
    await asyncio.to_thread(broker.kill)
    lose_disk(broker, topic)
    await asyncio.to_thread(broker.start)


async def rows(app: App, store: str) -> dict[Any, Any]:
    return {key: value async for key, value in app.store(store, stale=True).all()}


async def until_rows(store: str, *expected: Mapping[Any, Any], apps: Sequence[App]) -> None:
    """Wait until each app has its rows."""

    async def there() -> bool:
        return [await rows(app, store) for app in apps] == list(expected)

    await until(there)


def told(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the lines that have all words."""
    return [line for line in caplog.messages if all(word in line for word in words)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_an_app_ends_at_its_first_write_to_a_changelog_that_was_lost(
    fresh_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    """By ProductionFailed, and commits nothing, as a restore would lack rows; a later start restores what is left, and says so."""
    async with counting(fresh_broker, guarantee, tmp_path) as here:
        async with here.app("app", auto_offset_reset="earliest"):
            for _ in range(3):
                await here.through()
        app = here.app("app")
        await app.start()
        await until(lambda: int(app.metrics()["active-tasks"]) == PARTITIONS)
        ending = asyncio.create_task(ended(app))
        await lose(fresh_broker, here.changelog)
        before = await here.updates()
        await here.feed(30)
        error = await ending
        assert isinstance(error, ProductionFailed), repr(error)
        assert f"the end of the changelog {error.topic}-{error.partition} was " in str(error)
        assert error.topic == here.changelog
        if guarantee == EXACTLY_ONCE:
            assert await here.updates() == before
        async with here.app("app") as again:
            await until(lambda: told(caplog, "is deleted, and restored", here.changelog, "If the brokers have lost records"))
            assert again.state in {InstanceState.RUNNING, InstanceState.REBALANCING}


@pytest.mark.timeout(240)
async def test_a_standby_begins_anew_when_the_changelog_was_lost(fresh_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It has what the log has, nothing of before; the tasks that write there keep their state, and run on."""
    async with (
        counting(fresh_broker, EXACTLY_ONCE, tmp_path) as here,
        KafkaLog(fresh_broker.bootstrap) as other,
        here.app("one", num_standby_replicas=1, auto_offset_reset="earliest") as one,
        here.app("two", num_standby_replicas=1, auto_offset_reset="earliest", log=other) as two,
    ):
        await until(lambda: all(int(each.metrics()[name]) == 1 for each in (one, two) for name in ("active-tasks", "standby-tasks")))
        await here.through()
        await until_rows("counts", *[{b"k0": 10, b"k1": 10}] * 2, apps=(one, two))
        await lose(fresh_broker, here.changelog)
        for number in range(PARTITIONS):
            await until(lambda number=number: told(caplog, f"{here.changelog}-{number} has lost records from offset 0 on", "is deleted"))  # type: ignore[misc]

        async def only_theirs() -> bool:
            return sorted([await rows(one, "counts"), await rows(two, "counts")], key=repr) == [{b"k0": 10}, {b"k1": 10}]

        await until(only_theirs)
        assert [one.state, two.state] == [InstanceState.RUNNING] * 2


async def write(here: Counting, topic: str, **values: bytes) -> None:
    producer = await here.log.producer(client_id="feeder")
    keys = [key.encode() for key in values]
    await producer.send([Outgoing(TopicPartition(topic, 0), batch(*values.values(), keys=keys))])
    await producer.close()


@pytest.mark.timeout(240)
async def test_a_global_table_is_filled_anew_when_its_topic_was_lost(fresh_broker: Broker, tmp_path: Path) -> None:
    """The app ends, whatever the handler says; the next start has only what the topic has, also where that is longer than before."""
    async with counting(fresh_broker, AT_LEAST_ONCE, tmp_path) as here:
        table = f"table-{here.name}"

        def app() -> App:
            builder = StreamsBuilder()
            builder.global_table(table, Consumed(BYTES, BYTES), Materialized("table", BYTES, BYTES))
            builder.stream(here.source, Consumed(BYTES, BYTES)).to(here.sink, Produced(BYTES, BYTES))
            return here.app("app", topology=builder.build(), uncaught=lambda _: UncaughtResponse.REPLACE_WORKER)

        await here.log.create_topics([NewTopic(table, 1)])
        await write(here, table, a=b"1", b=b"1")
        first = app()
        await first.start()
        assert await rows(first, "table") == {b"a": b"1", b"b": b"1"}
        ending = asyncio.create_task(ended(first))
        await lose(fresh_broker, table)
        error = await ending
        assert isinstance(error, StreamsError), repr(error)
        assert f"a global table no longer fits its topic: {table}-0 has lost records from offset 0 on" in str(error)
        await write(here, table, a=b"2", c=b"2", d=b"2")
        async with app() as second:
            assert await rows(second, "table") == {b"a": b"2", b"c": b"2", b"d": b"2"}


def repartitioned(here: Counting) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(here.source, Consumed(BYTES, BYTES))
        .repartition(Repartitioned(BYTES, BYTES, name="through"))
        .group_by_key()
        .count(Materialized("counts", BYTES, LONG))
        .to_stream()
        .to(here.sink, Produced(BYTES, LONG))
    )  # fmt: skip
    return builder.build()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_an_app_goes_on_when_its_repartition_topic_was_lost(
    fresh_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, guarantee: str, running: bool
) -> None:
    """With all that is written there since, whatever auto_offset_reset says: nothing of it is left out, and nothing counts twice."""
    async with counting(fresh_broker, guarantee, tmp_path) as here, KafkaLog(fresh_broker.bootstrap) as later:
        topic = f"{here.name}-through-repartition"
        settings: dict[str, Any] = {"topology": repartitioned(here), "repartition_purge_interval_ms": 200}
        app = here.app("app", auto_offset_reset="earliest", **settings)
        await app.start()
        for _ in range(3):
            await here.through()
        await app.commit()
        if not running:
            await app.close()
        await lose(fresh_broker, topic)
        await here.feed(40)
        if not running:
            app = here.app("app", auto_offset_reset="none", log=later, **settings)
            await app.start()
        await here.counted()
        await here.through(5)
        assert app.state is InstanceState.RUNNING
        # Both keys lie in one partition.
        assert len(told(caplog, f"{topic}-1 has lost records", "continuing")) == 1
        await app.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_an_app_goes_on_behind_an_unclean_leader_election(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    """At the first record that it has not read: no record that follows is left out, and it says which ones the new leader lacks."""
    async with counting(cluster, guarantee, tmp_path) as here:
        topic = f"few-{here.name}"
        leader, follower, _ = cluster.nodes
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        placed = {number: [leader.number, follower.number] for number in range(PARTITIONS)}
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        new = Assigned(topic, replica_assignments=placed, num_partitions=-1, replication_factor=-1, topic_configs=configs)
        made = await admin.create_topics([new])
        assert [code for _, code, *_ in made.topic_errors] == [0], made
        await admin.close()
        await until(lambda: here.log.describe_topics([topic]))
        here.source = topic
        async with here.app("app", auto_offset_reset="earliest", own_log=True, bootstrap_servers=cluster.bootstrap, replication_factor=3) as app:
            await here.through()
            await asyncio.to_thread(follower.kill)
            await here.through(7)
            await asyncio.to_thread(leader.kill)
            await asyncio.to_thread(follower.start)
            await here.through(20)
            for number in range(PARTITIONS):
                assert told(caplog, f"{topic}-{number} has lost records from offset 10 on", "continuing at offset 10")
            assert app.state is InstanceState.RUNNING
