"""An app that finds its Kafka by its config alone."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, Batch, ConfigError, Consumed, NotAuthorized, Produced, StreamsBuilder, StreamsConfig
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.log.kafka import KafkaLog
from ks_actors.serdes import STRING
from tests.kafka.broker import PASSWORD, USER, Broker
from tests.waiting import soon


async def shout(broker: Broker, state_dir: Path, **settings: Any) -> list[bytes | None]:
    """Run an app that writes everything in capitals; return its output."""
    name = f"app-{uuid.uuid4().hex}"
    builder = StreamsBuilder()
    builder.stream(f"{name}-in", Consumed(STRING, STRING)).map_values(str.upper).to(f"{name}-out", Produced(STRING, STRING))
    config = StreamsConfig.of({"application_id": name, "state_dir": str(state_dir), "commit_interval_ms": 100, **settings})
    async with KafkaLog(broker.bootstrap) as log:
        await log.create_topics([NewTopic(f"{name}-in", 1), NewTopic(f"{name}-out", 1)])
        producer = await log.producer(client_id="test")
        await producer.send([Outgoing(TopicPartition(f"{name}-in", 0), Batch([b"k"] * 3, [b"a", b"b", b"c"], [0, 1, 2]))])
        async with App(builder.build(), config) as app:
            await soon(app.wait_until_caught_up())
        fetcher = log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({TopicPartition(f"{name}-out", 0): 0})
        found = await soon(fetcher.fetch(max_wait_ms=10_000))
        return [value for fetched in found for value in fetched.batch.values]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_servers_are_enough(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """The bootstrap servers are the only setting needed, as in Kafka Streams."""
    written = await shout(kafka_broker, tmp_path, bootstrap_servers=kafka_broker.bootstrap, processing_guarantee=guarantee)
    assert written == [b"A", b"B", b"C"]


async def test_a_log_by_url_is_a_kafka(kafka_broker: Broker) -> None:
    """Several servers, of which one need not be there."""
    log = open_log(f"kafka://127.0.0.1:1,{kafka_broker.bootstrap}")
    await soon(log.start())
    assert await log.describe_topics(["no-such-topic"]) == {}
    await log.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_an_app_logs_in_by_config(secure_broker: Broker, tmp_path: Path, mechanism: str) -> None:
    """By TLS, with a name and a password."""
    settings = {
        "bootstrap_servers": secure_broker.address("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        "ssl_truststore_location": str(secure_broker.certificate),
    }
    # A store that Java's keytool has made.
    store = {"ssl_truststore_location": str(secure_broker.directory / "keys.p12"), "ssl_truststore_password": "changeit"}
    assert await shout(secure_broker, tmp_path, **{**settings, **store}) == [b"A", b"B", b"C"]
    with pytest.raises(NotAuthorized) as caught:
        await shout(secure_broker, tmp_path, **{**settings, "sasl_password": "of somebody else"})
    assert PASSWORD not in str(caught.value)
    with pytest.raises(ConfigError, match="the TLS keys and certificates cannot be loaded"):
        await shout(secure_broker, tmp_path, **{**settings, "ssl_truststore_location": str(tmp_path / "none")})
