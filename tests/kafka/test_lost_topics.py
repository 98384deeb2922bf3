"""Topics that are deleted under an app that runs: it ends, with an error that names the topic, and has committed nothing that is not so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ks_actors import InstanceState, MissingSourceTopics, ProductionFailed, UnknownTopicOrPartition
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.kafka.admin._committed_offsets import fetch_committed
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import PARTITIONS, Counting, counting, ended

GUARANTEES = [EXACTLY_ONCE, AT_LEAST_ONCE]


async def committed(here: Counting) -> dict[int, int]:
    """Return the offsets that the group has committed, by partition."""
    partitions = [TopicPartition(here.source, number) for number in range(PARTITIONS)]
    found = await fetch_committed(here.log._client, here.name, partitions)
    return {partition.partition: offset.offset for partition, offset in found.items()}


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_an_input_topic_that_is_deleted_ends_the_app(kafka_broker: Broker, tmp_path: Path, guarantee: str, idle: bool) -> None:
    """By MissingSourceTopics, whether there is something to do or not."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        app = here.app("app")
        await app.start()
        await here.through()
        ending = asyncio.create_task(ended(app))
        feeding = asyncio.create_task(here.feed(0 if idle else 5_000))
        await here.log.delete_topics([here.source])
        error = await ending
        await asyncio.gather(feeding, return_exceptions=True)
        assert isinstance(error, MissingSourceTopics), repr(error)
        assert here.source in str(error)
        assert app.state is InstanceState.ERROR
        assert await committed(here) == {}


@pytest.mark.parametrize("which", ["sink", "changelog"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_topic_that_is_written_to_and_deleted_ends_the_app(kafka_broker: Broker, tmp_path: Path, guarantee: str, which: str) -> None:
    """By ProductionFailed; unwritten records are not committed, and are processed again by an app that starts when the topic is there."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        topic = here.sink if which == "sink" else here.changelog
        app = here.app("app")
        await app.start()
        await here.through()
        await app.commit()
        before = await committed(here)
        await here.log.delete_topics([topic])
        ending = asyncio.create_task(ended(app))
        await here.feed()
        error = await ending
        assert isinstance(error, ProductionFailed), repr(error)
        assert isinstance(error.__cause__, UnknownTopicOrPartition)
        assert topic in str(error)
        assert app.state is InstanceState.ERROR
        assert await committed(here) == before
        if which == "sink":
            await here.log.create_topics([NewTopic(topic, PARTITIONS)])
            async with here.app("app") as again:
                await again.wait_until_caught_up()
            updates = {(update.key, update.total) for update in await here.updates()}
            # At least once, the changelog may have updates that were not committed: their records are counted again.
            latest = 11 if guarantee == EXACTLY_ONCE else 21
            for key in (b"k0", b"k1"):
                totals = sorted(total for of, total in updates if of == key and total is not None)
                assert 11 <= totals[0] <= latest, updates
                assert totals == [*range(totals[0], totals[0] + 10)], updates


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_changelog_that_is_made_anew_ends_the_app(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """By ProductionFailed before a commit, though the broker takes each record: the new topic lacks the rows that do not change."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        app = here.app("app")
        await app.start()
        for _ in range(4):
            await here.through()
        await app.commit()
        before = await committed(here)
        await here.log.delete_topics([here.changelog])
        await here.log.create_topics([NewTopic(here.changelog, PARTITIONS)])
        ending = asyncio.create_task(ended(app))
        await here.feed()
        error = await ending
        assert isinstance(error, ProductionFailed), repr(error)
        assert here.changelog in str(error)
        assert app.state is InstanceState.ERROR
        assert await committed(here) == before
