"""Traces through topics of a real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from ks_actors import App, Batch, StreamsConfig
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from tests.kafka.broker import Broker
from tests.ks_actors.tracing.spans import HEADER, TRACE, Recorded, context_in, id_of
from tests.ks_actors.tracing.test_otel_tracing import check_one_trace, pipeline


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_a_trace_goes_through_the_topics_of_a_real_kafka(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """The spans are those of the embedded log, and the output has the context of the last one."""
    recorded, name = Recorded(), f"traced-{guarantee}"
    config = StreamsConfig(application_id=name, state_dir=tmp_path, processing_guarantee=guarantee, commit_interval_ms=100)
    source, output = TopicPartition(f"{name}-in", 0), TopicPartition(f"{name}-out", 0)
    async with KafkaLog(kafka_broker.bootstrap) as log:
        await log.create_topics([NewTopic(source.topic, 1), NewTopic(output.topic, 1)])
        producer = await log.producer(client_id="test")
        await producer.send([Outgoing(source, Batch([b"key"], [b"value"], [1], [(HEADER,)]))])
        await producer.close()
        async with App(pipeline(recorded, f"{name}-"), config, log=log, tracing=recorded.tracing) as app:
            await app.wait_until_caught_up()
        fetcher = log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({output: 0})
        while not (found := await fetcher.fetch(max_wait_ms=30_000)):
            pass
        await fetcher.close()
    check_one_trace(recorded, f"{name}-", f"{name}-words-repartition")
    assert found[0].batch.headers is not None
    assert context_in(found[0].batch.headers[0]) == (TRACE, id_of(recorded.one(f"send {name}-out")))
