"""Stores of a test driver: as processors have them, and with values alone, as a service reads them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ks_actors import Consumed, Grouped, Materialized, SessionWindows, StreamsBuilder, TimeWindows, ValueAndTimestamp
from ks_actors.records import Window, Windowed
from ks_actors.serdes import LONG, STRING
from ks_actors.state import StoreIterator
from ks_actors.testing import AppHarness, TopologyTestDriver
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import in_virtual_time

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def counting() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    grouped.count(Materialized("all", STRING, LONG))
    grouped.windowed_by(TimeWindows.of_size_and_grace(1_000, 60_000)).count(Materialized("windows", STRING, LONG))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(1_000, 60_000)).count(Materialized("sessions", STRING, LONG))
    return builder.build()


def test_a_test_takes_over_the_calls_of_the_service() -> None:
    """Values are values alone, as of `App.store`; `get_state_store` has the timestamps, as a processor."""
    with TopologyTestDriver(counting()) as driver:
        source = driver.create_input_topic("in", STRING, STRING)
        for time in (5, 6, 1_007):
            source.pipe_input("a", "x", time)
        counts, windows, sessions = driver.get_key_value_store("all"), driver.get_window_store("windows"), driver.get_session_store("sessions")
        assert (counts.get("a"), counts.get("b"), list(counts.all())) == (3, None, [("a", 3)])
        assert (windows.fetch("a", 0), list(windows.fetch("a", 0, 2_000))) == (2, [(0, 2), (1_000, 1)])
        assert list(sessions.fetch("a")) == [(Windowed("a", Window(5, 6)), 2), (Windowed("a", Window(1_007, 1_007)), 1)]
        with counts.all() as rows:
            assert next(rows) == ("a", 3)
        assert driver.get_state_store("all").get("a") == ValueAndTimestamp(3, 1_007)
        assert driver.get_timestamped_window_store("windows").fetch("a", 0) == ValueAndTimestamp(2, 6)


def test_values_that_a_test_puts_have_no_timestamp() -> None:
    """It is -1, as in Kafka Streams; None deletes."""
    with TopologyTestDriver(counting()) as driver:
        counts = driver.get_key_value_store("all")
        counts.put("a", 7)
        assert (counts.put_if_absent("a", 8), counts.put_if_absent("b", 9)) == (7, None)
        counts.put_all([("b", None), ("c", 1)])
        assert list(driver.get_state_store("all").all()) == [("a", ValueAndTimestamp(7, -1)), ("c", ValueAndTimestamp(1, -1))]
        assert counts.delete("a") == 7
        driver.get_window_store("windows").put("a", 5, 1_000)
        assert driver.get_window_store("windows").fetch("a", 1_000) == 5


def test_raw_records_without_a_timestamp_get_the_topics_own() -> None:
    """As those of `pipe_input`."""
    with TopologyTestDriver(counting()) as driver:
        source = driver.create_input_topic("in", STRING, STRING, start_timestamp_ms=5, auto_advance_ms=2_000)
        source.pipe_raw(b"a", b"x")
        source.pipe_input("a", "x")
        source.pipe_raw(b"a", b"x", 9)
        assert [start for start, _ in driver.get_window_store("windows").fetch("a", 0, 9_000)] == [0, 2_000]


ASKS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "a window": ("windows", lambda store, time: store.fetch("a", time)),
    "windows": ("windows", lambda store, time: store.fetch("a", 0, time)),
    "windows backward": ("windows", lambda store, time: store.backward_fetch("a", time, 5)),
    "windows of all": ("windows", lambda store, time: store.fetch_all(time, time)),
    "a session": ("sessions", lambda store, time: store.fetch_session("a", time, 5)),
    "sessions": ("sessions", lambda store, time: store.find_sessions("a", 0, time)),
    "sessions of all": ("sessions", lambda store, time: store.find_sessions_range(None, None, time, 5)),
}


@pytest.mark.parametrize("ask", ASKS)
@in_virtual_time
async def test_a_time_is_an_int_or_a_datetime_with_a_time_zone(ask: str) -> None:
    """For the stores of processors and of tests, and for queries of an app; a datetime is rounded down."""
    name, call = ASKS[ask]
    wrong = [(MOMENT.replace(tzinfo=None), ValueError, "time zone"), (timedelta(1), TypeError, "timedelta")]
    async with AppHarness(counting(), topics={"in": 1}) as harness:
        await harness.produce("in", "a", "x", 1)
        await harness.caught_up()

        async def answers(time: Any) -> tuple[Any, Any]:
            with TopologyTestDriver(counting()) as driver:
                driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x", 1)
                of_driver = call(driver.get_state_store(name), time)
                rows = list(of_driver) if isinstance(of_driver, StoreIterator) else of_driver
            return rows, await call(harness.app.store(name), time)

        assert await answers(datetime.fromtimestamp(0.0014, UTC)) == await answers(1)
        for time, error, told in wrong:
            with TopologyTestDriver(counting()) as driver, pytest.raises(error, match=f"store {name} is asked for the time .*{told}"):
                call(driver.get_state_store(name), time)
            with pytest.raises(error, match=f"store {name} is asked for the time .*{told}"):
                await call(harness.app.store(name), time)


@in_virtual_time
async def test_topics_that_the_topology_does_not_name_have_the_default_serdes() -> None:
    """To write and to read, global tables too; changelogs and dead letters are bytes."""
    builder = StreamsBuilder()
    names = builder.global_table("names")
    builder.stream("in").join(names, lambda _, value: value, lambda left, right: left + right).to(lambda *_: "chosen")
    builder.table("rows", materialized=Materialized("kept"))
    topics = dict.fromkeys(["names", "in", "chosen", "rows", "dead"], 1)
    settings: dict[str, Any] = {"default_key_serde": STRING, "default_value_serde": STRING, "errors_dead_letter_queue_topic_name": "dead"}
    async with AppHarness(builder.build(), topics=topics, **settings) as harness:
        await harness.produce("names", "v", "!")
        await harness.produce("in", "k", "v")
        await harness.produce("rows", "k", "v")
        await harness.produce("dead", b"k", b"v")
        await harness.caught_up()
        assert [(one.key, one.value) for one in await harness.read("names")] == [("v", "!")]
        assert [(one.key, one.value) for one in await harness.read("chosen")] == [("k", "v!")]
        await harness.produce("chosen", "more", "v")
        assert [one.key for one in await harness.read("chosen")] == ["k", "more"]
        for topic in ("app-kept-changelog", "dead"):
            assert [(one.key, one.value) for one in await harness.read(topic)] == [(b"k", b"v")]
