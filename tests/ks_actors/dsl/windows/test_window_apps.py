"""Apps with windows of the calendar, and of the user's own."""

from __future__ import annotations

import asyncio
import datetime as dt
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyarrow import parquet

from ks_actors import App, CalendarWindows, Consumed, StreamsConfig, TopologyError, Window, Windowed, serdes
from ks_actors.dsl import BufferConfig, EmitStrategy, Grouped, Materialized, Produced, StreamsBuilder, Suppressed, TimeWindows
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.testing import AppHarness, TopologyTestDriver
from ks_actors.topology import StoreType, Topology
from tests.ks_actors.batch.histories import fill, filled_back, streamed
from tests.ks_actors.dsl.windows.uneven import Uneven
from tests.ks_actors.runtime.helpers import EOS, GUARANTEES, STRINGS, feed, in_app

ZONE = "Europe/Berlin"
MINUTE = 60_000
DAYS = CalendarWindows.days(ZONE, grace_ms=MINUTE)
KEY = serdes.windowed(serdes.STRING, DAYS)
COUNT = serdes.LONG
UNEVEN = Uneven(6_000, 1_000)
# The clocks are set back in the second one.
SATURDAY, SUNDAY, MONDAY = (DAYS.window_of(date(2026, 10, day)) for day in (24, 25, 26))


def at(*of: int) -> int:
    return int(datetime(*of, tzinfo=ZoneInfo(ZONE)).timestamp() * 1_000)  # type: ignore[arg-type,misc]  # numbers, and a zone


def topology(kind: str, windows: Any = DAYS, *, store: StoreType | None = "in_memory", idle_after_ms: int | None = None) -> Topology:
    """Count by windows, with one result each: when they close, or by `suppress`."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", STRINGS).group_by_key().windowed_by(windows)
    kept = Materialized("days", serdes.STRING, COUNT, store_type=store)
    if kind == "close":
        table = grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_after_ms=idle_after_ms).count(kept)
    else:
        table = grouped.count(kept)
        if kind == "suppress":
            table = table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), idle_after_ms=idle_after_ms))
    table.to_stream().to("out", Produced(None, COUNT))
    return builder.build()


RECORDS = [
    ("a", at(2026, 10, 24, 23, 59)),
    ("a", at(2026, 10, 25, 0, 0)),
    ("b", at(2026, 10, 25, 23, 59)),
    ("a", at(2026, 10, 25, 12, 0)),
    ("a", at(2026, 10, 26, 0, 0)),
    ("b", at(2026, 10, 25, 23, 58)),
]
RESULTS = {("a", SATURDAY): 1, ("a", SUNDAY): 2, ("b", SUNDAY): 2}


def read(out: Any) -> dict[tuple[str, Window], int]:
    """Return the results; each window has one."""
    found: dict[tuple[str, Window], int] = {}
    for key, count in out.read_key_values_to_list():
        assert tuple(key) not in found
        found[tuple(key)] = count
    return found


@pytest.mark.parametrize("kind", ["close", "suppress"])
def test_a_day_with_25_hours_closes_after_25_hours_and_grace(kind: str) -> None:
    """With all records of the grace period, and with its own end in the keys of a topic."""
    with TopologyTestDriver(topology(kind)) as driver:
        topic, out = driver.create_input_topic("in", serdes.STRING, serdes.STRING), driver.create_output_topic("out", KEY, COUNT)
        for key, time in RECORDS:
            topic.pipe_input(key, "x", time)
        assert read(out) == {("a", SATURDAY): 1}
        topic.pipe_input("c", "x", SUNDAY.end + MINUTE - 1)
        assert read(out) == {}
        topic.pipe_input("c", "x", SUNDAY.end + MINUTE)
        assert read(out) == {("a", SUNDAY): 2, ("b", SUNDAY): 2}
        topic.pipe_input("b", "x", SUNDAY.end - 1)
        assert driver.metrics()["dropped-records-total"] == 1


@pytest.mark.parametrize("kind", ["close", "suppress"])
def test_a_day_closes_by_the_clock_at_midnight_and_grace(kind: str) -> None:
    """Though no record comes: not one ms earlier, and also on a day of 25 hours."""
    with TopologyTestDriver(topology(kind, idle_after_ms=1_000)) as driver:
        topic, out = driver.create_input_topic("in", serdes.STRING, serdes.STRING), driver.create_output_topic("out", KEY, COUNT)
        topic.pipe_input("a", "x", SUNDAY.start)
        driver.advance_wall_clock_time(25 * 60 * MINUTE + MINUTE - 1)
        assert read(out) == {}
        driver.advance_wall_clock_time(1)
        assert read(out) == {("a", SUNDAY): 1}
        topic.pipe_input("a", "x", SUNDAY.end)
        driver.advance_wall_clock_time(24 * 60 * MINUTE + MINUTE)
        assert read(out) == {("a", MONDAY): 1}


def test_updates_come_at_once_without_an_emit_strategy() -> None:
    """With windows that a topic's readers find by the same windows; without a cache each update."""
    with TopologyTestDriver(topology("update")) as driver:
        topic, out = driver.create_input_topic("in", serdes.STRING, serdes.STRING), driver.create_output_topic("out", KEY, COUNT)
        for key, time in RECORDS:
            topic.pipe_input(key, "x", time)
        assert out.read_key_values_to_list() == [
            (Windowed(key, window), count)
            for key, window, count in [("a", SATURDAY, 1), ("a", SUNDAY, 1), ("b", SUNDAY, 1), ("a", SUNDAY, 2), ("a", MONDAY, 1), ("b", SUNDAY, 2)]
        ]


@pytest.mark.parametrize("windows", [DAYS, CalendarWindows.months(ZONE), UNEVEN])
def test_a_topology_is_described_as_with_other_windows(windows: Any) -> None:
    """Names and parts do not depend on the windows."""
    for kind in ("close", "suppress"):
        assert str(topology(kind, windows).describe()) == str(topology(kind, TimeWindows.of_size_and_grace(MINUTE, 0)).describe())


def added(_: str, value: str, text: str) -> str:
    return text + value


def test_reduce_and_cogroup_take_windows_of_ones_own() -> None:
    """As `count` and `aggregate` do; the table's rows are found by its windows downstream."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", STRINGS).group_by_key()
    months = CalendarWindows.months(ZONE)
    grouped.windowed_by(months).reduce(lambda one, two: one + two).to_stream().to("reduced")
    grouped.cogroup(added).windowed_by(UNEVEN).aggregate(str, Materialized(value=serdes.STRING)).to_stream().to("grouped")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        reduced = driver.create_output_topic("reduced", serdes.windowed(serdes.STRING, months), serdes.STRING)
        grouped_out = driver.create_output_topic("grouped", serdes.windowed(serdes.STRING, UNEVEN), serdes.STRING)
        topic.pipe_input("a", "x", 1)
        topic.pipe_input("a", "y", 2_000)
        january = months.window_of(date(1970, 1, 1))
        assert reduced.read_key_values_to_list() == [(Windowed("a", january), "x"), (Windowed("a", january), "xy")]
        assert grouped_out.read_key_values_to_list() == [
            (Windowed("a", Window(0, 4_000)), "x"),
            (Windowed("a", Window(0, 4_000)), "xy"),
            (Windowed("a", Window(1_000, 5_000)), "y"),
            (Windowed("a", Window(2_000, 2_001)), "y"),
        ]


@pytest.mark.parametrize("store", ["in_memory", "rocksdb"])
@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("kind", ["close", "suppress"])
@in_app(lambda kind, store: topology(kind, store=store), topics={"in": 1, "out": 1}, wall_clock_ms=SATURDAY.start, commit_interval_ms=100)
async def test_days_go_on_after_a_restart(harness: AppHarness, kind: str, guarantee: str, wipe: bool, store: StoreType) -> None:
    """From the disk, or from changelogs that keep a day for 25 hours and the grace period: one result each, with all records."""
    for key, time in [*RECORDS, ("c", SUNDAY.end + MINUTE)]:
        await feed(harness, "in", key, "x", time)
        await harness.app.commit()
        await harness.crash()
        if wipe:
            harness.wipe_state()
        await harness.restart()
    await harness.caught_up()
    found = [(record.key.key, record.key.window, record.value) for record in await harness.read("out") if record.key]
    assert sorted(found) == sorted((key, window, count) for (key, window), count in RESULTS.items())


@in_app(topology("update", store="rocksdb"), topics={"in": 1, "out": 1}, processing_guarantee=EOS, wall_clock_ms=SATURDAY.start)
async def test_queries_find_the_window_of_a_day(harness: AppHarness) -> None:
    """By its start, which `window_of` has."""
    for key, time in RECORDS:
        await harness.produce("in", key, "x", time)
    await harness.caught_up()
    await harness.app.commit()
    store = harness.app.store("days")
    assert await store.fetch("a", SUNDAY.start) == 2
    assert await store.fetch("a", SUNDAY.start, MONDAY.start) == [(SUNDAY.start, 2), (MONDAY.start, 1)]


def test_stores_keep_a_window_for_as_long_as_it_may_last() -> None:
    """The changelog keeps the longest window and its grace period, or longer if set; less is refused."""
    days = topology("update").stores["days"]
    assert days.retention_ms == 25 * 60 * MINUTE + MINUTE
    months = topology("update", CalendarWindows.months("Asia/Tokyo")).stores["days"]
    assert months.retention_ms == 31 * 24 * 60 * MINUTE
    grouped = StreamsBuilder().stream("in", STRINGS).group_by_key().windowed_by(DAYS)
    with pytest.raises(TopologyError, match=f"window and grace take {25 * 60 * MINUTE + MINUTE} ms"):
        grouped.count(Materialized("days", retention_ms=25 * 60 * MINUTE))


HISTORY = [("in", key.encode(), b"x", time) for key, time in [*RECORDS, ("c", SUNDAY.end + MINUTE)]]
SETTINGS = {"application_id": "app", "commit_interval_ms": 1_000_000}
TOPICS = {"in": 2, "out": 1}


@pytest.mark.parametrize("kind", ["close", "suppress", "update"])
def test_a_backfill_counts_the_days_of_history(kind: str, tmp_path: Path) -> None:
    """It gives what the stream gives."""
    written, _ = streamed(topology(kind), SETTINGS, TOPICS, HISTORY)
    got, _ = filled_back(topology(kind), SETTINGS, TOPICS, HISTORY, tmp_path, allow=("order_after_rekey", "incomplete_snapshot"))
    assert written
    assert {where: sorted(rows) for where, rows in got.items()} == {where: sorted(rows) for where, rows in written.items()}


def test_exports_have_the_end_of_each_day(tmp_path: Path) -> None:
    """In a column, though only the start is stored."""

    async def main() -> None:
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic(name, count) for name, count in TOPICS.items()])
            await fill(log, TOPICS, HISTORY)
            async with App(topology("update"), StreamsConfig(application_id="app", state_dir=tmp_path / "state"), log=log) as app:
                await app.wait_until_caught_up()
                await app.export(tmp_path / "out", tables=["days"])

    asyncio.run(main())
    rows = [row for file in (tmp_path / "out" / "days").iterdir() for row in parquet.ParquetFile(file).read().to_pylist()]
    ends = {(row["key"], row["window_start"]): row["window_end"] for row in rows}
    moments = [dt.datetime.fromtimestamp(time / 1_000, dt.UTC) for time in SUNDAY]
    assert ends["a", moments[0]] == moments[1]


class Incomplete:
    """Has no size."""

    grace_ms = 0

    def windows_for(self, _: int) -> list[Window]:
        return []


class Negative(Incomplete):
    size_ms = 5
    grace_ms = -1


class NoFunction(Incomplete):
    size_ms = 5
    windows_for = None  # type: ignore[assignment]  # the mistake


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        (Incomplete(), "size_ms of the windows .* of windowed_by .* is None"),
        (Negative(), "grace_ms of the windows .* is -1"),
        (NoFunction(), "argument .windows. of windowed_by"),
        (CalendarWindows, "argument 'windows' of windowed_by"),
        (DAYS.windows_for, "give TimeWindows, .* CalendarWindows"),
    ],
)
def test_windows_that_are_none_are_refused_where_they_are_given(windows: Any, text: str) -> None:
    """With the member that is missing or wrong."""
    with pytest.raises(TopologyError, match=text):
        StreamsBuilder().stream("in", Consumed(serdes.STRING, serdes.STRING)).group_by_key(Grouped()).windowed_by(windows)
