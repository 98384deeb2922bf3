"""Records that programs send and read, on a real Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ks_actors import (
    App,
    LogTimeout,
    NotAuthorized,
    Produced,
    Publisher,
    RecordTooLarge,
    StreamsBuilder,
    StreamsConfig,
    Topic,
    UnknownTopicOrPartition,
    partition_of,
)
from ks_actors.log import NewTopic
from ks_actors.log.kafka import KafkaLog
from ks_actors.serdes import LONG, STRING
from tests.kafka.broker import STRANGER, STRANGERS_PASSWORD, Broker
from tests.kafka.test_secured_apps import settings
from tests.ks_actors.log.helpers import group_name
from tests.waiting import soon

COUNT = 10_000


async def test_many_calls_are_few_requests(kafka_broker: Broker) -> None:
    """Each result names the place of its record, and each partition has them in the order of the calls."""
    topic = Topic(f"sent-{group_name()}", str, int)
    async with Publisher(kafka_broker.bootstrap) as publisher:
        await publisher.create_topics({topic.name: 3})
        await publisher.create_topics({topic.name: 1})
        sent = await soon(asyncio.gather(*(publisher.send(topic, str(number % 97), number) for number in range(COUNT))))
        assert publisher._topics is not None
        log = publisher._topics._log
        assert isinstance(log, KafkaLog)
        (figures,) = log.requests()
        assert figures.records == COUNT
        # By default a request has at most 1 MB, and the records of 97 keys take less than that.
        assert figures.times.count <= 20
        found: dict[int, list[int | None]] = {}
        places = {}
        async for record in publisher.records(topic, until="end"):
            found.setdefault(record.partition, []).append(record.value)
            places[record.partition, record.offset] = record.value
        assert {number: sorted(column, key=lambda value: value or 0) for number, column in found.items()} == found
        assert [places[each.partition, each.offset] for each in sent] == list(range(COUNT))
        assert all(each.partition == partition_of(str(number % 97).encode(), 3) for number, each in enumerate(sent[:97]))
        assert await publisher.send_many(topic, ((None, number) for number in range(COUNT))) == COUNT
        assert sum([1 async for _ in publisher.records(topic, until="end")]) == 2 * COUNT


async def test_an_app_is_fed_and_read(kafka_broker: Broker, tmp_path: Path) -> None:
    """Without a producer, a consumer or a log at hand; its results are those of committed transactions."""
    name = f"words-{group_name()}"
    builder = StreamsBuilder()
    lines, counts = Topic(f"{name}-lines", str, str), Topic(f"{name}-counts", str, int)
    words = builder.stream(lines.name).flat_map_values(str.split).group_by(lambda _, word: word)
    words.count().to_stream().to(counts.name, Produced(STRING, LONG))
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=kafka_broker.bootstrap,
        state_dir=tmp_path,
        processing_guarantee="exactly_once_v2",
        default_key_serde=STRING,
        default_value_serde=STRING,
    )
    async with App(builder.build(), config, topics={lines.name: 2, counts.name: 1}) as app:
        await asyncio.gather(app.send(lines, None, "to be or"), app.send(lines, None, "not to be"))
        await soon(app.wait_until_caught_up())
        assert {record.key: record.value async for record in app.records(counts, until="end")} == {"to": 2, "be": 2, "or": 1, "not": 1}

        async def follow() -> int | None:
            async for record in app.records(counts, from_="latest"):
                return record.value
            return None

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        while not following.done():
            await app.send(lines, "k", "question")
            await app.commit()
        assert await following


async def test_a_record_that_is_too_large_fails_alone(kafka_broker: Broker) -> None:
    """Also where the topic's limit is lower than that of a write, and the results name the places of the others."""
    topic = Topic(f"small-{group_name()}", str, bytes)
    async with Publisher(kafka_broker.bootstrap) as publisher:
        await publisher.create_topics({topic.name: NewTopic(topic.name, 1, {"max.message.bytes": "5000"})})
        calls = [publisher.send(topic, "a", bytes([number]) * (9_000 if number == 5 else 1_000)) for number in range(10)]
        sent = await soon(asyncio.gather(*calls, return_exceptions=True))
        error = sent.pop(5)
        assert isinstance(error, RecordTooLarge)
        assert f"{topic.name}-0" in str(error)
        assert [each.offset for each in sent if not isinstance(each, BaseException)] == list(range(9))
        with pytest.raises(UnknownTopicOrPartition, match="does not exist"):
            await publisher.send(Topic(f"none-{group_name()}", str, str), "a", "b")


async def test_a_broker_that_is_away_is_waited_for_until_the_deadline(own_broker: Broker) -> None:
    """Then the call is told so, and later records are written when it is back."""
    topic = Topic(f"away-{group_name()}", str, str)
    brief = {"request_timeout_ms": 1_000, "default_api_timeout_ms": 3_000, "delivery_timeout_ms": 3_000}
    async with Publisher({"bootstrap_servers": own_broker.bootstrap, **brief}) as publisher:
        await publisher.create_topics({topic.name: 1})
        await publisher.send(topic, "a", "1")
        own_broker.pause()
        try:
            with pytest.raises(LogTimeout, match=f"{topic.name}-0"):
                await publisher.send(topic, "a", "2")
        finally:
            own_broker.resume()
        await soon(publisher.send(topic, "a", "3"))
        values = [record.value async for record in publisher.records(topic, until="end")]
        assert [value for value in values if value != "2"] == ["1", "3"]


async def test_a_topic_that_the_user_may_not_write_is_told(secure_broker: Broker) -> None:
    """By its name, to the caller."""
    name = f"secret-{group_name()}"
    async with Publisher(settings(secure_broker, "SASL_SSL", "PLAIN")) as publisher:
        await publisher.create_topics({name: 1})
    async with Publisher(settings(secure_broker, "SASL_SSL", "PLAIN", STRANGER, STRANGERS_PASSWORD)) as stranger:
        with pytest.raises(NotAuthorized, match=name):
            await stranger.send(name, "a", "b", key_serde=str, value_serde=str)
        with pytest.raises(NotAuthorized):
            await anext(stranger.records(name, key_serde=str, value_serde=str))
