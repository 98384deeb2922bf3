"""History that is in a real Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ks_actors import App, StreamsConfig, Topology, partition_of, serdes
from ks_actors.batch._reading import Bounds, LogReader, address_of
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.log import NewTopic
from ks_actors.log.kafka import KafkaLog
from tests.kafka.broker import Broker
from tests.ks_actors.batch.backfill.killed_history import LINES, changelogs, compared, expected, opened, put, sinks
from tests.ks_actors.batch.backfill.test_publish import killed_until_done
from tests.ks_actors.batch.driver import TOPICS, Order, config_of, job
from tests.ks_actors.batch.histories import Input, Rows, difference, fill, rows_of
from tests.ks_actors.log.helpers import group_name, new_topic


def counting(source: str, sink: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(source, Consumed(serdes.STRING, serdes.STRING)).group_by(lambda _, word: word, Grouped(serdes.STRING, serdes.STRING))
    words.count(Materialized("counts", serdes.STRING, serdes.LONG)).to_stream().to(sink, Produced(serdes.STRING, serdes.LONG))
    return builder.build()


async def test_history_is_read_handed_over_and_gone_on_from(kafka_broker: Broker, tmp_path: Path) -> None:
    """A backfill, a snapshot and the live rest count each word once, in any part; Spark's tasks would read the same by the address."""
    async with KafkaLog(kafka_broker.bootstrap) as log:
        source, sink = (await new_topic(log, 3))[0].topic, (await new_topic(log, 1))[0].topic
        history: list[Input] = [(source, str(number).encode(), f"w{number % 5}".encode(), number) for number in range(2_000)]
        await fill(log, {source: 3}, history)
        config = StreamsConfig(
            application_id=group_name(),
            bootstrap_servers=kafka_broker.bootstrap,
            state_dir=tmp_path / "state",
            snapshot_uri=str(tmp_path / "snapshots"),
            processing_guarantee="exactly_once_v2",
        )
        app = App(counting(source, sink), config)
        with await app.backfill() as done:
            written = [row for where in done.partitions for row in rows_of(done.read(where))]
        assert len(written) == done.records // 2 == 2_000
        ranges = await asyncio.to_thread(by_address, config, source)
        assert list(map(len, ranges)) == [sum(partition_of(record[1] or b"", 3) == number for record in history) for number in range(3)]

        await fill(log, {source: 3}, [(source, str(number).encode(), f"w{number % 5}".encode(), number) for number in range(500)])
        assert await app.seed(str(tmp_path / "snapshots")) is not None
        async with app:
            await app.wait_until_caught_up()
        (live,) = await asyncio.to_thread(by_address, config, sink)
        assert {row[0]: int.from_bytes(row[1], "big") for row in live} == {f"w{number}".encode(): 500 for number in range(5)}


async def test_a_stream_over_all_records_is_as_on_the_embedded_log(kafka_broker: Broker, tmp_path: Path) -> None:
    """Record for record and key for key: so history and the live tail are compared with a stream on Kafka, too."""
    name = group_name()
    log = f"kafka://{kafka_broker.bootstrap}"
    order = Order(what="backfill", log=log, directory=str(tmp_path), application_id=name, prefix=f"{name}-")
    async with opened(order) as open_log:
        await open_log.create_topics([NewTopic(order.prefix + topic, count) for topic, count in TOPICS.items()])
        await put(open_log, order, LINES)
        async with App(job(order.prefix), config_of(order), log=open_log) as app:
            await app.wait_until_caught_up()
        written, stores = await sinks(open_log, order), await changelogs(open_log, order)
    whole = await expected()
    assert compared({where: rows for where, rows in written.items() if rows}) == whole.rows
    assert difference(job(), whole.stores, stores, len(LINES), live=True) == []


@pytest.mark.extended
async def test_the_output_is_published_once_by_killed_processes(kafka_broker: Broker) -> None:
    """Killed between any two of its transactions, or in one: records and markers are in one transaction, so the next run goes on where it was."""
    async with KafkaLog(kafka_broker.bootstrap) as log:
        source, sink = (await new_topic(log, 3))[0].topic, (await new_topic(log, 3))[0].topic
        await fill(log, {source: 3}, [(source, str(number).encode(), f"w{number}".encode(), number) for number in range(10_000)])
        await killed_until_done(f"kafka://{kafka_broker.bootstrap}", group_name(), source, sink, 10_000)
        found = await asyncio.to_thread(by_address, StreamsConfig(application_id="x", bootstrap_servers=kafka_broker.bootstrap), sink)
        assert sorted(row[2] for rows in found for row in rows) == list(range(10_000))


def by_address(config: StreamsConfig, topic: str) -> list[Rows]:
    with LogReader(address_of(config)) as reader:
        return [rows_of(reader.read(one)) for one in reader.ranges([topic], Bounds())]
