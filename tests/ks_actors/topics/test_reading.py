"""Records that programs read from topics: their order, beginnings, ends and errors."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, assert_type

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.testing import VirtualLoop
from ks_actors import (
    Batch,
    DeserializationFailed,
    LogTimeout,
    NotRunning,
    OffsetOutOfRange,
    Publisher,
    Record,
    Topic,
    TopicRecord,
    TopologyError,
    UnknownTopicOrPartition,
)
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.topics import _reading
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import in_virtual_time
from tests.ks_actors.topics.helpers import ORDERS, TEXTS, Order, publishing

PLACE = TopicPartition("texts", 0)


async def values(publisher: Publisher, **options: Any) -> list[str | None]:
    """Return the values of the topic of one partition, up to its end."""
    return [record.value async for record in publisher.records(TEXTS, until="end", **options)]


def kept() -> list[str]:
    return [f"value {number}" for number in range(10)]


@in_virtual_time
async def test_a_record_is_read_with_all_that_it_has() -> None:
    """Its types are those of the Topic."""
    async with publishing() as (publisher, _):
        await publisher.send(ORDERS, "ann", Order(5), timestamp_ms=17, headers=(("h", b"1"),), partition=2)
        async for record in publisher.records(ORDERS, until="end"):
            assert_type(record, TopicRecord[str, Order])
            assert record == TopicRecord("ann", Order(5), 17, (("h", b"1"),), "orders", 2, 0)
        typed = publisher.records("orders", key_serde=str, value_serde=bytes, until="end", partitions=[2])
        assert [record.value async for record in typed] == [b'{"cents":5}']
        assert [record async for record in publisher.records(ORDERS, until="end", partitions=[0, 1])] == []


@in_virtual_time
async def test_reading_begins_where_it_is_told_to() -> None:
    """At the first record, the end, a time, an age, or an offset."""
    async with publishing() as (publisher, _):
        now = publisher._topics._clock()  # type: ignore[union-attr]
        hour = 3_600_000
        await publisher.send_many(TEXTS, [Record("a", str(age), now - age * hour) for age in (3, 2, 1, 0)])
        assert await values(publisher) == ["3", "2", "1", "0"]
        assert await values(publisher, from_="latest") == []
        assert await values(publisher, from_=timedelta(hours=1, minutes=30)) == ["1", "0"]
        time = datetime.fromtimestamp((now - 2 * hour) / 1000, UTC)
        assert await values(publisher, from_=time) == ["2", "1", "0"]
        assert await values(publisher, from_=time.replace(tzinfo=None)) == ["2", "1", "0"]
        assert await values(publisher, from_={0: 3}) == ["0"]
        assert await values(publisher, from_={1: 3}) == ["3", "2", "1", "0"]


@in_virtual_time
async def test_the_end_is_that_of_the_beginning() -> None:
    """Records that are written meanwhile are not read; without an end they are."""
    async with publishing() as (publisher, _):
        await publisher.send_many(TEXTS, [("a", text) for text in kept()])
        seen: list[str | None] = []
        async for record in publisher.records(TEXTS, until="end"):
            seen.append(record.value)
            if len(seen) == 1:
                await publisher.send_many(TEXTS, [("a", "later")] * 10)
        assert seen == kept()
        reader = publisher.records(TEXTS, from_="latest")
        following = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(3_600)
        await publisher.send(TEXTS, "a", "news")
        assert (await following).value == "news"
        await reader.aclose()


@in_virtual_time
async def test_leaving_closes_the_reader() -> None:
    """A loop that ends or fails, and a cancellation of it."""
    async with publishing() as (publisher, log):
        await publisher.send_many(TEXTS, [("a", text) for text in kept()])
        parts = set(log._parts)
        async with aclosing(publisher.records(TEXTS)) as records:
            async for _ in records:
                break
        assert set(log._parts) == parts

        async def follow() -> None:
            async for _ in publisher.records(TEXTS):
                pass

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(1)
        assert len(log._parts) == len(parts) + 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert set(log._parts) == parts
        following = asyncio.ensure_future(follow())
        await asyncio.sleep(1)
        await publisher.close()
        with pytest.raises(NotRunning, match="the Publisher was closed while topic texts was read"):
            await following


@in_virtual_time
async def test_records_of_open_and_aborted_transactions_are_left_out() -> None:
    """Unless uncommitted ones are asked for; the end is that of the committed ones."""
    async with publishing() as (publisher, log):
        producer = await log.transactional_producer("t", client_id="t", timeout_ms=60_000)
        for text in ("aborted", "open"):
            await producer.send([Outgoing(PLACE, Batch([b"a"], [text.encode()], [0]))])
            if text == "aborted":
                await producer.abort()
                await publisher.send(TEXTS, "a", "plain")
        assert await values(publisher) == ["plain"]
        assert await values(publisher, isolation="read_uncommitted") == ["aborted", "plain", "open"]
        assert await values(publisher, isolation=IsolationLevel.READ_UNCOMMITTED) == ["aborted", "plain", "open"]


@in_virtual_time
async def test_a_bad_record_is_told_or_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """An error with its place; skipped ones are logged once, and counted."""
    async with publishing() as (publisher, _):
        await publisher.send_many(Topic("texts", bytes, bytes), [(b"a", b"1"), (b"a", b"\xff"), (b"\xff", b"2"), (b"a", b"3")])
        with pytest.raises(DeserializationFailed, match=r"the value of a record does not fit <Serde STRING>") as failed:
            await values(publisher)
        assert (failed.value.topic, failed.value.partition, failed.value.offset) == ("texts", 0, 1)
        with pytest.raises(DeserializationFailed, match=r"the key of a record .* offset 2"):
            await values(publisher, from_={0: 2})
        with caplog.at_level(logging.WARNING, "ks_actors.topics"):
            assert await values(publisher, skip_bad=True) == ["1", "3"]
        assert "(topic texts, partition 0, offset 1); it is skipped" in caplog.messages[0]
        assert caplog.messages[1:] == ["2 records of topic texts could not be read, and were skipped"]


WRONG: list[tuple[str | Topic[Any, Any], dict[str, Any], str]] = [
    ("texts", {}, "the serde of keys of topic texts is not known: give key_serde=bytes, or Topic"),
    ("texts", {"key_serde": str}, "the serde of values of topic texts is not known: give value_serde=bytes"),
    (TEXTS, {"from_": "begin"}, "argument 'from_' of records is 'begin': give 'earliest', 'latest', a datetime"),
    (TEXTS, {"from_": 17}, "argument 'from_' of records is 17"),
    (TEXTS, {"until": "now"}, "argument 'until' of records is 'now': give 'end'"),
    (TEXTS, {"isolation": "committed"}, "argument 'isolation' of records is 'committed'"),
]


@pytest.mark.parametrize(("topic", "options", "text"), WRONG)
@in_virtual_time
async def test_a_wrong_argument_is_told_with_its_remedy(topic: str | Topic[Any, Any], options: dict[str, Any], text: str) -> None:
    """Before anything is read."""
    async with publishing() as (publisher, _):
        with pytest.raises(TopologyError, match=text):
            async for _ in publisher.records(topic, **options):
                pass


@in_virtual_time
async def test_a_missing_topic_or_partition_is_told() -> None:
    """By its name."""
    async with publishing() as (publisher, _):
        with pytest.raises(UnknownTopicOrPartition, match="topic none does not exist"):
            await anext(publisher.records(Topic("none", str, str)))
        with pytest.raises(UnknownTopicOrPartition, match="topic orders has partitions 0 to 3"):
            await anext(publisher.records(ORDERS, partitions=[4]))


@in_virtual_time
async def test_records_that_are_deleted_while_they_are_read_are_told() -> None:
    """Those before the first read one are passed over: the topic just begins later."""
    async with publishing() as (publisher, log):
        await publisher.send_many(TEXTS, [("a", text) for text in kept()])
        fetcher = log.fetcher(client_id="test")
        await log.delete_records({PLACE: 4})
        batches = _reading.read_batches(fetcher, {PLACE: 0}, ends={PLACE: 6})
        assert [each async for fetched in batches for each in fetched.batch.values] == [b"value 4", b"value 5"]
        reader = publisher.records(TEXTS)
        for _ in range(6):
            await anext(reader)
        following = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(1)
        (follower,) = publisher._topics._fetchers  # type: ignore[union-attr]
        follower.seek(PLACE, 0)
        with pytest.raises(OffsetOutOfRange):
            await following


@in_virtual_time
async def test_an_end_that_cannot_be_reached_is_told() -> None:
    """After `default_api_timeout_ms` without a record, by the partitions that are left."""
    async with publishing(default_api_timeout_ms=20_000) as (publisher, _):
        await publisher.send_many(TEXTS, [("a", text) for text in kept()])
        reader = publisher.records(TEXTS, until="end")
        await anext(reader)
        (fetcher,) = publisher._topics._fetchers  # type: ignore[union-attr]
        fetcher.seek(PLACE, 3)
        fetcher.pause([PLACE])
        with pytest.raises(LogTimeout, match=r"no more records within 20000 ms: texts-0 at 3 of 10, position 3, paused True"):
            async for _ in reader:
                pass


@in_virtual_time
async def test_a_topic_whose_last_records_are_gone_ends() -> None:
    """Markers and compacted records at the end are no records to wait for."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("texts", 1)])
        async with Publisher(log=log) as publisher:
            producer = await log.transactional_producer("t", client_id="t", timeout_ms=60_000)
            await publisher.send(TEXTS, "a", "1")
            await producer.send([Outgoing(PLACE, Batch([b"a"], [b"aborted"], [0]))])
            await producer.abort()
            assert await values(publisher) == ["1"]
            assert await values(publisher, from_={0: 1}) == []


def test_sent_records_are_read_in_the_order_of_their_calls() -> None:
    """Per partition, whichever calls send them, and whatever the log does meanwhile."""
    keys = st.none() | st.sampled_from("abcde")
    calls = st.lists(st.tuples(st.lists(keys, min_size=1, max_size=30), st.booleans(), st.booleans()), max_size=8)

    async def check(plan: list[tuple[list[str | None], bool, bool]]) -> None:
        async with publishing() as (publisher, _):
            topic: Topic[str, int] = Topic("orders", str, int)
            waiting: list[asyncio.Future[Any]] = []
            number = 0
            for batch, at_once, awaited in plan:
                records = [(key, number + place) for place, key in enumerate(batch)]
                number += len(batch)
                if at_once:
                    await asyncio.gather(*waiting)
                    waiting = [asyncio.ensure_future(publisher.send_many(topic, records))]
                    await asyncio.gather(*waiting)
                else:
                    waiting += [asyncio.ensure_future(publisher.send(topic, *record)) for record in records]
                if awaited:
                    await asyncio.gather(*waiting)
            await asyncio.gather(*waiting)
            found: dict[int, list[Any]] = {}
            async for record in publisher.records(topic, until="end"):
                found.setdefault(record.partition, []).append(record.value)
            assert all(sorted(column) == column for column in found.values())
            assert sorted(chain.from_iterable(found.values())) == list(range(number))

    @settings(max_examples=examples(30))
    @given(calls)
    def check_all(plan: list[tuple[list[str | None], bool, bool]]) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(check(plan))

    check_all()
