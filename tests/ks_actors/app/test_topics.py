"""Records that a program sends and reads by its app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import (
    App,
    Consumed,
    Grouped,
    LogTimeout,
    NotRunning,
    Produced,
    ProductionFailed,
    SentRecord,
    StreamsBuilder,
    StreamsConfig,
    Topic,
    Topology,
    TopologyError,
)
from ks_actors.dsl import TimeWindows
from ks_actors.serdes import LONG, STRING, windowed
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import echo, in_app

LINES = Topic("lines", str, str)
COUNTS = Topic("counts", str, int)
TOPICS = {"lines": 2, "counts": 3}


def to_first(topic: str, word: Any, count: Any, size: int) -> int | None:
    del topic, count, size
    return 0 if word == "first" else None


def words() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("lines", Consumed(STRING, STRING))
        .flat_map_values(str.split)
        .group_by(lambda _, word: word, Grouped(STRING, STRING))
        .count()
        .to_stream()
        .to("counts", Produced(STRING, LONG, partitioner=to_first))
    )
    return builder.build()


@in_app(words(), topics=TOPICS)
async def test_an_app_sends_and_reads_with_the_serdes_of_its_topology(harness: AppHarness, guarantee: str) -> None:
    """By the names of its topics, by Topics, and with the partitioner with which it writes."""
    del guarantee
    app = harness.app
    first = await app.send("lines", None, "to be or not", timestamp_ms=17)
    assert first == SentRecord("lines", first.partition, 0, 17)
    assert await app.send_many(LINES, [(None, "to be"), ("k", "question")]) == 2
    await app.wait_until_caught_up()
    counts = {record.key: record.value async for record in app.records("counts", until="end")}
    assert counts == {"to": 2, "be": 2, "or": 1, "not": 1, "question": 1}
    assert counts == {record.key: record.value async for record in app.records(COUNTS, until="end")}
    assert (await app.send("counts", "first", 1)).partition == 0
    with pytest.raises(TopologyError, match="the serde of keys of topic other is not known"):
        await app.send("other", "a", "b")


@in_app(words(), topics={**TOPICS, "other": 1}, default_key_serde=STRING, default_value_serde=LONG)
async def test_other_topics_have_the_default_serdes(harness: AppHarness) -> None:
    """Changelogs have none: their bytes are the app's own."""
    await harness.app.send("other", "a", 5)
    assert [(each.key, each.value) async for each in harness.app.records("other", until="end")] == [("a", 5)]
    with pytest.raises(TopologyError, match="serde of keys of topic app-KSTREAM-AGGREGATE-STATE-STORE"):
        await anext(harness.app.records("app-KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog"))


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_a_record_has_the_time_of_the_apps_clock(harness: AppHarness) -> None:
    """Which is virtual under test."""
    await asyncio.sleep(90)
    assert (await harness.app.send("in", "a", "b")).timestamp_ms == harness.kit.wall_time_ms() == 90_000


@in_app(echo(), topics={"in": 1, "out": 1}, start=False)
async def test_records_are_sent_as_soon_as_a_start_has_its_log(harness: AppHarness) -> None:
    """Calls during the start wait for that; before it they are refused, and after a failed one."""
    app = App(echo(), harness.config, log=harness.log, system=harness.kit)
    with pytest.raises(NotRunning, match="has not been started"):
        await app.send("in", "a", "early")
    with pytest.raises(NotRunning, match="has not been started"):
        await anext(app.records("in"))
    harness.log._faults.hold("join")
    starting = asyncio.ensure_future(app.start())
    await harness.turns(1)
    assert (await app.send("in", "a", "during")).offset == 0
    await app.close()
    with pytest.raises(NotRunning):
        await starting
    with pytest.raises(NotRunning, match="app app is closed"):
        await app.send("in", "a", "late")


@in_app(echo(), topics={"in": 1, "out": 1}, start=False)
async def test_a_call_does_not_wait_for_a_start_for_ever(harness: AppHarness, tmp_path: Path) -> None:
    """For `delivery_timeout_ms`, or until the start has failed."""
    held = harness.log._faults.hold("describe_topics")
    config = StreamsConfig(
        application_id="app", bootstrap_servers="nowhere:1", delivery_timeout_ms=5_000, request_timeout_ms=4_000, state_dir=tmp_path
    )
    app = App(echo(), config, log=harness.log, system=harness.kit, topics={"made": 1})
    starting = asyncio.ensure_future(app.start())
    await harness.turns(1)
    with pytest.raises(LogTimeout, match="app app starts, and has not opened its log within 5000 ms"):
        await app.send("in", "a", "b")
    waiting = asyncio.ensure_future(app.send("in", "a", "b"))
    await harness.turns(1)
    await app.close(timeout_ms=0)
    with pytest.raises(NotRunning, match="has ended before its log was open"):
        await waiting
    held.set()
    await asyncio.gather(starting, return_exceptions=True)


@in_app(echo(), topics={"in": 1, "out": 1}, start=False)
async def test_services_send_records_until_they_are_left(harness: AppHarness) -> None:
    """To topics that the start has made, too."""
    told: list[SentRecord] = []

    @asynccontextmanager
    async def service() -> AsyncIterator[None]:
        told.append(await app.send("made", "a", "enter", key_serde=str, value_serde=str))
        yield
        told.append(await app.send("made", "a", "leave", key_serde=str, value_serde=str))

    app = App(echo(), harness.config, log=harness.log, system=harness.kit, topics={"made": 1}, services=[service()])
    async with app:
        pass
    assert [each.offset for each in told] == [0, 1]


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_the_close_of_an_app_ends_its_reads_and_refuses_records(harness: AppHarness) -> None:
    """Records of earlier calls are written first, within the time of the close."""
    app = harness.app
    sent = [asyncio.ensure_future(app.send("in", "a", str(number))) for number in range(3)]

    async def follow() -> list[Any]:
        return [record async for record in app.records("in")]

    following = asyncio.ensure_future(follow())
    await asyncio.sleep(1)
    await app.close()
    assert [(await each).offset for each in sent] == [0, 1, 2]
    with pytest.raises(NotRunning, match="app app was closed while topic in was read"):
        await following
    with pytest.raises(NotRunning, match="app app is closed"):
        await app.send("in", "a", "b")


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_an_app_that_has_failed_sends_nothing(harness: AppHarness) -> None:
    """Its error is the cause: a service hears of it by the first refused request."""
    app = harness.app
    harness.fail("send", ValueError("boom"))
    await harness.produce("in", "a", "b")
    error = await harness.ended()
    assert isinstance(error, ProductionFailed | ValueError)
    with pytest.raises(NotRunning, match="app app has ended by an error") as refused:
        await app.send("in", "a", "b")
    assert refused.value.__cause__ is error


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_a_crash_ends_what_is_being_sent(harness: AppHarness) -> None:
    """The next app of the harness sends by a producer of its own."""
    await harness.app.send("in", "a", "1")
    held = harness.log._faults.hold("send")
    lost = asyncio.ensure_future(harness.app.send("in", "a", "2"))
    await harness.turns(3)
    await harness.crash()
    with pytest.raises(NotRunning, match="was closed before the log acknowledged the record, which may be written"):
        await lost
    held.set()
    await harness.restart()
    await harness.app.send("in", "a", "3")
    await harness.caught_up()
    assert [record.value for record in await harness.read("out")] == ["1", "3"]


def by_window() -> Topology:
    builder = StreamsBuilder()
    size = TimeWindows.of_size_with_no_grace(10)
    counts = builder.stream("in", Consumed(STRING, STRING)).group_by_key().windowed_by(size).count()
    counts.to_stream().to("out", Produced(windowed(STRING, size), LONG))
    return builder.build()


@in_app(by_window(), topics={"in": 1, "out": 4})
async def test_windowed_results_are_read_as_they_are_written(harness: AppHarness) -> None:
    """Keys with their windows."""
    await harness.app.send_many("in", [("a", "x"), ("a", "y")])
    await harness.caught_up()
    (last,) = {record.key: record.value async for record in harness.app.records("out", until="end")}.items()
    assert (last[0].key, last[1]) == ("a", 2)  # type: ignore[union-attr]
