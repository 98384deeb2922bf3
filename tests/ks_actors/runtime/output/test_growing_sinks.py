"""Topics that are written to, and that come or grow while the app runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from ks_actors import StreamsError
from ks_actors.dsl import Produced, StreamsBuilder
from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.processors import Processor, Record
from ks_actors.records._partitioner import partition as default
from ks_actors.runtime.output import _collector
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed_all, in_app, in_virtual_time

KEYS = [f"k{number}" for number in range(40)]
MAX_AGE_MS = 60_000


def passing_on(produced: Produced[str, str] = STRINGS_OUT, *, by_record: bool = False, to: Any = "out") -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    if by_record:
        stream = stream.process(Forward)
    stream.to(to, produced)
    return builder.build()


class Forward(Processor[str, str, str, str]):
    """Hand records on one by one."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


async def places(harness: AppHarness, topic: str = "out") -> dict[str, set[int]]:
    """Return the partitions in which the records of each key are."""
    found: dict[str, set[int]] = {}
    for number in range(harness._topics._partitions(topic)):
        for batch in await harness._batches(TopicPartition(topic, number), 0, IsolationLevel.READ_COMMITTED):
            for key in batch.keys:
                found.setdefault((key or b"").decode(), set()).add(number)
    return found


async def feed(harness: AppHarness, keys: Iterable[str] = KEYS) -> None:
    await feed_all(harness, "in", [TestRecord(key, "v", 0) for key in keys])


@pytest.mark.parametrize("by_record", [False, True])
@in_virtual_time
async def test_records_go_to_partitions_that_were_added_to_their_topic(guarantee: str, by_record: bool) -> None:
    """Within metadata_max_age_ms of the growth, by Kafka's partitioner among all that there are."""
    topology = passing_on(by_record=by_record)
    async with AppHarness(topology, topics={"in": 1, "out": 2}, processing_guarantee=guarantee, metadata_max_age_ms=MAX_AGE_MS) as harness:
        await feed(harness)
        assert await places(harness) == {key: {default(key.encode(), 2)} for key in KEYS}
        harness.create_partitions({"out": 5})
        await asyncio.sleep(MAX_AGE_MS / 1000 + 1)
        fresh = [f"fresh-{key}" for key in KEYS]
        await feed(harness, fresh)
        found = await places(harness)
        assert {key: found[key] for key in fresh} == {key: {default(key.encode(), 5)} for key in fresh}


@in_app(passing_on(), topics={"in": 1, "out": 1}, metadata_max_age_ms=MAX_AGE_MS)
async def test_records_of_one_partition_spread_when_their_topic_grows(harness: AppHarness) -> None:
    """A topic of one partition takes no short cut that outlives its growth."""
    await feed(harness)
    harness.create_partitions({"out": 2})
    await asyncio.sleep(MAX_AGE_MS / 1000 + 1)
    await feed(harness, ["fresh-1", "fresh-2", "fresh-3", "fresh-4"])
    assert {1} in (await places(harness)).values()


@in_virtual_time
async def test_a_partitioner_is_asked_with_the_number_of_partitions_that_there_is() -> None:
    """Before and after the topic has grown."""
    asked: list[int] = []

    def last(topic: str, key: str, value: str, count: int) -> int:
        del topic, key, value
        asked.append(count)
        return count - 1

    async with AppHarness(
        passing_on(Produced(STRING, STRING, partitioner=last)), topics={"in": 1, "out": 2}, metadata_max_age_ms=MAX_AGE_MS
    ) as harness:
        await feed(harness, ["a"])
        harness.create_partitions({"out": 4})
        await asyncio.sleep(MAX_AGE_MS / 1000 + 1)
        await feed(harness, ["b"])
        assert asked == [2, 4]
        assert await places(harness) == {"a": {1}, "b": {3}}


@in_virtual_time
async def test_a_partitioner_is_asked_about_topics_that_came_after_the_start(guarantee: str) -> None:
    """For each record, from the first one on; with no partition for a record it is dropped, with several it goes to each."""

    def choose(topic: str, key: str, value: str, count: int) -> Any:
        del value
        assert (topic, count) == ("late", 3)
        return {"none": (), "all": range(count), "default": None}.get(key, 2)

    topology = passing_on(Produced(STRING, STRING, partitioner=choose), to=lambda *_: "late")
    async with AppHarness(topology, topics={"in": 1}, processing_guarantee=guarantee) as harness:
        harness.create_topics({"late": 3})
        await feed(harness, ["none", "all", "default", "other", "another"])
        await feed(harness, ["once more"])
        assert await places(harness, "late") == {
            "all": {0, 1, 2},
            "default": {default(b"default", 3)},
            "other": {2},
            "another": {2},
            "once more": {2},
        }
        assert harness.app.metrics()["dropped-records-total"] == 1


@in_virtual_time
async def test_records_that_a_partitioner_drops_do_not_count_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are for a topic that is not there: nobody has to wait until they are written."""

    def none(topic: str, key: str, value: str, count: int) -> Any:
        del topic, key, value, count
        return ()

    monkeypatch.setattr(_collector, "_HIGH", 5_000)
    monkeypatch.setattr(_collector, "_LOW", 2_500)
    async with AppHarness(passing_on(Produced(STRING, STRING, partitioner=none), to=lambda *_: "nowhere"), topics={"in": 1}) as harness:
        for _ in range(5):
            await feed(harness, KEYS)
        assert harness.app.metrics()["dropped-records-total"] == 5 * len(KEYS)


@in_app(passing_on(to=lambda *_: "late"), topics={"in": 1}, metadata_max_age_ms=MAX_AGE_MS)
async def test_a_topic_that_a_function_names_grows(harness: AppHarness) -> None:
    """One that came after the start is looked up again like the others."""
    harness.create_topics({"late": 2})
    await feed(harness)
    assert await places(harness, "late") == {key: {default(key.encode(), 2)} for key in KEYS}
    harness.create_partitions({"late": 4})
    await asyncio.sleep(MAX_AGE_MS / 1000 + 1)
    fresh = [f"fresh-{key}" for key in KEYS]
    await feed(harness, fresh)
    found = await places(harness, "late")
    assert {key: found[key] for key in fresh} == {key: {default(key.encode(), 4)} for key in fresh}


@pytest.mark.parametrize("answer", [9, "x", ZeroDivisionError("/")])
@in_virtual_time
async def test_a_partitioner_that_fails_for_a_topic_that_came_late_ends_the_app(answer: object) -> None:
    """By an error that names topic, node and record, and nothing of the record is committed."""

    def choose(topic: str, key: str, value: str, count: int) -> Any:
        del topic, key, value, count
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, int) else [answer]

    async with AppHarness(passing_on(Produced(STRING, STRING, partitioner=choose), to=lambda *_: "late"), topics={"in": 1}) as harness:
        harness.create_topics({"late": 2})
        await harness.produce("in", "a", "1")
        error = await harness.ended()
        assert isinstance(error, StreamsError)
        assert "partition" in str(error)
        assert "late" in str(error)
        assert (error.topic, error.partition, error.offset) == ("in", 0, 0)
        assert await harness.read("late") == []
        assert harness.log._groups.get("app").committed() == {}


@in_app(
    passing_on(), topics={"in": 1, "out": 2, "letters": 1}, production_exception_handler="continue", errors_dead_letter_queue_topic_name="letters"
)
async def test_records_for_a_topic_that_is_deleted_are_for_the_production_handler(harness: AppHarness, guarantee: str) -> None:
    """With CONTINUE the app goes on without them, with a dead letter each, and writes to the topic again when it is there again."""
    await feed(harness, ["before"])
    harness.delete_topics("out")
    await feed(harness, ["lost", "lost too"])
    assert {record.key for record in await harness.read("letters")} == {b"lost", b"lost too"}
    harness.create_topics({"out": 2})
    await feed(harness, KEYS)
    assert await places(harness) == {key: {default(key.encode(), 2)} for key in KEYS}
