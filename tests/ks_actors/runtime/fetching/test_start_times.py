"""Starts from some time ago, where no offset is committed (KIP-1106)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ks_actors import StreamsError
from ks_actors.dsl import Consumed, StreamsBuilder
from ks_actors.log import GroupMetadata, Outgoing, TopicPartition
from ks_actors.records import Batch
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import OffsetReset, Topology
from tests.ks_actors.runtime.helpers import EOS, STRINGS_OUT, echo, feed, in_app, in_virtual_time

TOPICS = {"in": 1, "out": 1}
HOUR_MS = 3_600_000
NOW_MS = 24 * HOUR_MS


def reading(reset: OffsetReset | None) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING, offset_reset=reset)).to("out", STRINGS_OUT)
    return builder.build()


async def values(harness: AppHarness) -> list[Any]:
    return [record.value for record in await harness.read("out")]


async def produce_by_the_hour(harness: AppHarness) -> None:
    """Write a record of each of the 24 hours up to now, with its hour as value."""
    for hour in range(25):
        await harness.produce("in", "k", str(hour), hour * HOUR_MS)


@pytest.mark.parametrize("reset", [timedelta(hours=3), "by_duration:PT3H", "BY_DURATION:P0DT180M"])
@in_virtual_time
async def test_an_app_starts_at_the_first_record_of_at_most_some_age(guarantee: str, reset: Any) -> None:
    """The setting is a timedelta, or Kafka's words for it; a record of exactly that age is read."""
    async with AppHarness(
        echo(), topics=TOPICS, processing_guarantee=guarantee, auto_offset_reset=reset, start=False, wall_clock_ms=NOW_MS
    ) as harness:
        await produce_by_the_hour(harness)
        await harness.start()
        await harness.caught_up()
        assert await values(harness) == ["21", "22", "23", "24"]
        await harness.restart()
        await feed(harness, "in", "k", "later", NOW_MS)
        assert await values(harness) == ["21", "22", "23", "24", "later"]


def test_a_source_starts_by_its_own_policy() -> None:
    """A duration of `Consumed` goes before the setting, also a duration of zero, which is before what comes."""

    async def begin(harness: AppHarness) -> None:
        await produce_by_the_hour(harness)
        await harness.kit.clock.advance(1)
        await harness.start()
        await feed(harness, "in", "k", "later")

    found: list[list[Any]] = []

    async def test(harness: AppHarness) -> None:
        await begin(harness)
        found.append(await values(harness))

    for reset in (timedelta(hours=2), timedelta(0), "earliest", "latest", None):
        run_app(test, reading(reset), topics=TOPICS, auto_offset_reset="by_duration:PT1H", start=False, wall_clock_ms=NOW_MS)
    hours = [str(hour) for hour in range(25)]
    # The clock has gone on by a second: the first record of the hour is too old then.
    assert found == [[*hours[23:], "later"], ["later"], [*hours, "later"], ["later"], ["24", "later"]]


def test_an_app_starts_at_the_end_where_all_records_are_older() -> None:
    """No record is young enough: the next one is the first; and a time before 1970 is the first record."""

    async def old(harness: AppHarness) -> None:
        await harness.produce("in", "k", "old", 0)
        await harness.start()
        await feed(harness, "in", "k", "new", NOW_MS)
        assert await values(harness) == ["new"]

    async def all_of_them(harness: AppHarness) -> None:
        await produce_by_the_hour(harness)
        await harness.start()
        await harness.caught_up()
        assert len(await values(harness)) == 25

    run_app(old, reading(timedelta(hours=1)), topics=TOPICS, start=False, wall_clock_ms=NOW_MS)
    run_app(all_of_them, reading(timedelta(days=36500)), topics=TOPICS, start=False, wall_clock_ms=NOW_MS)


@in_app(reading(timedelta(hours=1)), topics=TOPICS, processing_guarantee=EOS, start=False, wall_clock_ms=NOW_MS)
async def test_records_of_an_open_transaction_are_not_passed_over(harness: AppHarness) -> None:
    """All committed records are too old: the start is before those that may yet be committed, not behind them."""
    await harness.produce("in", "k", "old", 0)
    producer = await harness.log.transactional_producer("other", client_id="other", timeout_ms=60_000)
    await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"k"], [b"open"], [1]))])
    await harness.start()
    await harness.turns(50)
    await producer.commit({}, GroupMetadata("other", -1, ""))
    await harness.caught_up()
    assert await values(harness) == ["open"]


def test_a_source_may_refuse_to_start_without_a_committed_offset() -> None:
    """The policy `none` of `Consumed` is an error that says so, whatever the setting is."""

    async def test(harness: AppHarness) -> None:
        await harness.caught_up()

    with pytest.raises(StreamsError, match="no committed offset and auto_offset_reset is none") as refused:
        run_app(test, reading("none"), topics=TOPICS)
    assert (refused.value.topic, refused.value.partition) == ("in", 0)


@in_app(reading(timedelta(minutes=150)), topics=TOPICS, start=False, wall_clock_ms=NOW_MS)
async def test_a_position_that_is_gone_leads_to_the_first_record_of_some_age(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Records were deleted that an app had not read: it goes on by the duration, and a warning says so."""
    await harness.produce("in", "k", "0", NOW_MS)
    await harness.start()
    await harness.caught_up()
    await harness.close()
    for hour in range(20, 25):
        await harness.produce("in", "k", str(hour), hour * HOUR_MS)
    await harness.log.delete_records({TopicPartition("in", 0): 2})
    await harness.start()
    await harness.caught_up()
    assert await values(harness) == ["0", "22", "23", "24"]
    assert "continuing from the first record of the last 2:30:00" in caplog.text
