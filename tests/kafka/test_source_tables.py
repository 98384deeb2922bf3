"""A table that is restored from its own topic, and positions that standbys know, on a real Kafka."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, Consumed, Materialized, StreamsBuilder, StreamsConfig, serdes
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.query import FailureReason, KeyQuery, Position, PositionBound, QueryResult, StateQueryRequest
from tests.kafka.broker import Broker
from tests.ks_actors.log.helpers import UNCOMMITTED, batch
from tests.ks_actors.runtime.helpers import GUARANTEES
from tests.ks_actors.runtime.stores.standbys import Heard
from tests.waiting import PATIENCE_S, until

ROWS = 200


async def rows_of(app: App) -> dict[str, Any]:
    return {key: value async for key, value in app.store("rows", stale=True).all()}


async def ask(app: App, store: str, bound: PositionBound) -> QueryResult[Any] | None:
    """Return the result, or None while the instance has no copy of the partition: on a slow machine it moves."""
    return (await app.query(StateQueryRequest(store=store, query=KeyQuery("k7"), bound=bound))).partition_results.get(0)


async def answered(app: App, store: str, bound: PositionBound) -> Any:
    """Return the value once the store is at the bound."""

    found: Any = None

    async def there() -> bool:
        nonlocal found
        result = await ask(app, store, bound)
        if result is None:
            return False
        assert result.failure in {None, FailureReason.NOT_UP_TO_BOUND, FailureReason.NOT_PRESENT}
        found = None if result.failure else result.value
        return result.failure is None

    await until(there)
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_table_and_its_copy_follow_the_topic(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """No changelog is made; a standby meets a bound as soon as that is committed; wiped and started anew, the table is the same."""
    number, heard = uuid.uuid4().hex, Heard()
    source = TopicPartition(f"table-{number}", 0)

    def app(name: str) -> App:
        config = StreamsConfig(
            application_id=f"app-{number}", state_dir=tmp_path / name, processing_guarantee=guarantee, commit_interval_ms=200,
            num_standby_replicas=1, topology_optimization="all", poll_ms=20,
        )  # fmt: skip
        builder = StreamsBuilder()
        table = builder.table(source.topic, Consumed(serdes.STRING, serdes.STRING), Materialized("rows", serdes.STRING, serdes.STRING))
        table.to_stream().group_by_key().count(Materialized("changes", serdes.STRING, serdes.LONG))
        return App(builder.build(config), config, log=log, restore_listener=heard)

    async def write(values: Sequence[bytes | None]) -> Position:
        producer = await log.producer(client_id="feeder")
        await producer.send([Outgoing(source, batch(*values, keys=[b"k%d" % place for place in range(len(values))]))])
        await producer.close()
        return Position.of({source.topic: {0: (await log.end_offsets([source], UNCOMMITTED))[source] - 1}})

    async with KafkaLog(kafka_broker.bootstrap) as log:
        await log.create_topics([NewTopic(source.topic, 1, {"cleanup.policy": "compact"})])
        written = await write([b"a"] * ROWS)
        async with asyncio.timeout(PATIENCE_S), app("one") as one, app("two") as two:
            for turn in range(3):
                written = await write([b"v%d" % turn] * (ROWS - 10) + [None] * 10)
                for each in (one, two):
                    for store, value in (("rows", f"v{turn}"), ("changes", turn + 2)):
                        assert await answered(each, store, PositionBound.at(written)) == value
            expected = {f"k{place}": "v2" for place in range(ROWS - 10)}
            assert await rows_of(one) == await rows_of(two) == expected
            assert [topic for topic in await log.describe_topics() if number in topic and topic.startswith("app-")] == [
                f"app-{number}-changes-changelog"
            ]
        shutil.rmtree(tmp_path / "one")
        heard.told.clear()
        async with asyncio.timeout(PATIENCE_S), app("one") as again:
            assert await rows_of(again) == expected
            assert await answered(again, "rows", PositionBound.at(written)) == "v2"
            assert heard.count("running") >= ROWS
