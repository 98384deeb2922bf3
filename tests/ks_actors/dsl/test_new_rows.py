"""New rows of aggregations: no value was there before them, whatever makes the windows, with a cache and without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ks_actors import Materialized, Produced, SessionWindows, SlidingWindows, StreamsBuilder, Suppressed, TimeWindows, UnlimitedWindows, Window
from ks_actors.dsl import BufferConfig, CalendarWindows, Consumed, Grouped, GroupedStream, Table
from ks_actors.serdes import LONG, STRING, json
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from tests.ks_actors.runtime.helpers import feed, feed_all

if TYPE_CHECKING:
    Shape = Callable[[GroupedStream[str, str]], Table[Any, Any]]

CACHES = (0, 10_000_000)
TEXT = Consumed(STRING, STRING)
ROWS = json(dict)


class Tens:
    """Windows of 10 s, as a user may write them."""

    size_ms = 10_000
    grace_ms = 0

    def windows_for(self, timestamp_ms: int) -> Iterator[Window]:
        """Return the window of a timestamp."""
        start = timestamp_ms // 10_000 * 10_000
        yield Window(start, start + 10_000)


COUNTS: dict[str, Shape] = {
    "plain": lambda grouped: grouped.count(),
    "in memory": lambda grouped: grouped.count(Materialized("n", STRING, LONG, store_type="in_memory")),
    "history": lambda grouped: grouped.count(Materialized("n", STRING, LONG, history_retention_ms=1_000)),
    "tumbling": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(10_000)).count(),
    "hopping": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(10_000).advance_by(5_000)).count(),
    "unlimited": lambda grouped: grouped.windowed_by(UnlimitedWindows.of()).count(),
    "calendar": lambda grouped: grouped.windowed_by(CalendarWindows.days("UTC")).count(),
    "own": lambda grouped: grouped.windowed_by(Tens()).count(),
    "sliding": lambda grouped: grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(10)).count(),
    "sessions": lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10)).count(),
}


def country(value: dict[str, str]) -> dict[str, str]:
    """Read what each row has, and the initial aggregate has not."""
    assert value["country"]
    return value


def put(_: Any, value: str, row: dict[str, str]) -> dict[str, str]:
    return {**row, "country": value}


def rows() -> Materialized[Any, Any]:
    return Materialized(key=STRING, value=ROWS)


AGGREGATES: dict[str, Shape] = {
    "plain": lambda grouped: grouped.aggregate(dict, put, rows()),
    "cogroup": lambda grouped: grouped.cogroup(put).aggregate(dict, rows()),
    "history": lambda grouped: grouped.aggregate(dict, put, Materialized("n", STRING, ROWS, history_retention_ms=1_000)),
    "tumbling": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(10_000)).aggregate(dict, put, rows()),
    "hopping": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(10_000).advance_by(5_000)).aggregate(dict, put, rows()),
    "windowed cogroup": lambda grouped: grouped.cogroup(put).windowed_by(TimeWindows.of_size_with_no_grace(10_000)).aggregate(dict, rows()),
    "unlimited": lambda grouped: grouped.windowed_by(UnlimitedWindows.of()).aggregate(dict, put, rows()),
    "calendar": lambda grouped: grouped.windowed_by(CalendarWindows.days("UTC")).aggregate(dict, put, rows()),
    "own": lambda grouped: grouped.windowed_by(Tens()).aggregate(dict, put, rows()),
    "sliding": lambda grouped: grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(10)).aggregate(dict, put, rows()),
    "sliding cogroup": lambda grouped: grouped.cogroup(put).windowed_by(SlidingWindows.of_time_difference_with_no_grace(10)).aggregate(dict, rows()),
    "sessions": lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10)).aggregate(
        dict, put, lambda _, __, new: new, rows()
    ),
}

READERS: dict[str, Callable[[Table[Any, Any]], Table[Any, Any]]] = {
    "filter": lambda table: table.filter(lambda _, value: bool(country(value))),
    "filter_not": lambda table: table.filter_not(lambda _, value: not country(value)),
    "group_by": lambda table: table.group_by(lambda _, value: (value["country"], value), Grouped(STRING, ROWS)).count(),
    "map_values, group_by": lambda table: table.map_values(country).group_by(lambda _, value: ("all", value), Grouped(STRING, ROWS)).count(),
    "map_values, suppress": lambda table: table.map_values(country).suppress(Suppressed.until_time_limit(1, BufferConfig.unbounded())),
    "join, group_by": lambda table: (
        table.left_join(table.filter(lambda _, __: False), lambda one, _: country(one))
        .group_by(lambda _, value: ("all", value), Grouped(STRING, ROWS))
        .count()
    ),
}


def last_rows(build: Shape, values: list[tuple[str, str, int]], cache: int, *, faults: bool = False) -> dict[str | None, str | None]:
    """Return the last value of each key of a table, as text, for records of key, value and timestamp."""
    builder = StreamsBuilder()
    build(builder.stream("in", TEXT).group_by_key()).to_stream().map(lambda key, value: (str(key), str(value))).to("out", Produced(STRING, STRING))
    config = {"statestore_cache_max_bytes": cache, "default_key_serde": STRING, "default_value_serde": ROWS, "kafka_streams_faults": faults}
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        for key, value, timestamp in values:
            topic.pipe_input(key, value, timestamp_ms=timestamp)
        return dict(driver.create_output_topic("out", STRING, STRING).read_key_values_to_list())


def per_country(shape: str) -> Shape:
    """Return the number of rows per country, for keys like `ann/de`."""
    return lambda grouped: (
        COUNTS[shape](grouped).group_by(lambda key, value: (str(getattr(key, "key", key)).split("/")[1], value), Grouped(STRING, LONG)).count()
    )


USERS = [("ann/de", "x", 10_001), ("bob/de", "x", 10_002), ("cem/tr", "x", 10_003), ("dan/de", "x", 10_004)]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("shape", COUNTS)
def test_a_new_count_takes_nothing_from_its_group(shape: str, cache: int) -> None:
    """The rows of a group are counted, each once, when they are new counts themselves."""
    windows = 2 if shape == "hopping" else 1
    assert last_rows(per_country(shape), USERS, cache) == {"de": str(3 * windows), "tr": str(windows)}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("shape", COUNTS)
def test_a_row_that_is_updated_stays_one_row_of_its_group(shape: str, cache: int) -> None:
    """A second record at the same time replaces the row, also that of a session of one instant."""
    assert last_rows(per_country(shape), [*USERS, *USERS], cache) == last_rows(per_country(shape), USERS, cache)


@pytest.mark.parametrize("cache", CACHES)
def test_a_sliding_window_that_begins_with_records_of_another_has_no_old_value(cache: int) -> None:
    """Each window is one row of its group, though some begin with the aggregate of another one."""
    users = [("ann/de", "x", timestamp) for timestamp in (100, 104, 108, 102, 111, 95)]
    windows: set[tuple[int, int]] = set()

    def watched(grouped: GroupedStream[str, str]) -> Table[Any, Any]:
        table = grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(10, 100)).count()
        table.to_stream().foreach(lambda key, _: windows.add(key.window))
        return table.group_by(lambda _, value: ("de", value), Grouped(STRING, LONG)).count()

    found = last_rows(watched, users, cache)
    assert len(windows) > len(users)
    assert found == {"de": str(len(windows))}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shape", AGGREGATES)
def test_no_function_gets_an_initial_aggregate(shape: str, reader: str, cache: int) -> None:
    """Downstream of an aggregation, functions get only values that are rows of it."""
    users = [("ann", "de", 10_001), ("bob", "tr", 10_002), ("ann", "de", 10_003), ("cem", "tr", 10_004)]
    assert last_rows(lambda grouped: READERS[reader](AGGREGATES[shape](grouped)), users, cache)


@pytest.mark.parametrize("cache", CACHES)
def test_the_foreign_key_of_a_new_row_is_not_that_of_the_initial_aggregate(cache: int) -> None:
    """The extractor gets only values that are rows."""

    async def joined(harness: AppHarness) -> list[tuple[Any, Any]]:
        await feed(harness, "countries", "de", "Germany")
        await feed(harness, "in", "ann", "de")
        return [(record.key, record.value) for record in await harness.read("out")]

    builder = StreamsBuilder()
    table = AGGREGATES["plain"](builder.stream("in", TEXT).group_by_key())
    names = builder.table("countries", TEXT)
    table.join(names, lambda row, name: f"{row['country']}: {name}", foreign_key=lambda row: row["country"]).to_stream().to(
        "out", Produced(STRING, STRING)
    )
    topics = {"in": 1, "countries": 1, "out": 1}
    assert run_app(joined, builder.build(), topics=topics, statestore_cache_max_bytes=cache) == [("ann", "de: Germany")]


@pytest.mark.parametrize("shape", ["plain", "in memory", "tumbling", "hopping", "own", "sliding", "sessions"])
@pytest.mark.parametrize("cache", CACHES)
def test_a_batch_of_counts_is_right_in_a_group(shape: str, cache: int) -> None:
    """Many records that are fetched together give what they give one by one: by the kernel, too."""
    users = [(f"u{number % 40}/{'de' if number % 4 else 'tr'}", "x", 10_000 + number // 60) for number in range(200)]
    records = [TestRecord(*user, ()) for user in users]

    async def counted(harness: AppHarness) -> dict[Any, Any]:
        await feed_all(harness, "in", records)
        return {record.key: str(record.value) for record in await harness.read("out")}

    builder = StreamsBuilder()
    per_country(shape)(builder.stream("in", TEXT).group_by_key()).to_stream().to("out", Produced(STRING, LONG))
    found = run_app(counted, builder.build(), topics={"in": 1, "out": 1}, statestore_cache_max_bytes=cache)
    assert found == last_rows(per_country(shape), users, 0)
    if shape in {"plain", "in memory", "tumbling", "own"}:
        assert found == {"de": "30", "tr": "10"}


@pytest.mark.parametrize("shape", [shape for shape in COUNTS if shape != "sessions"])
def test_the_initial_count_is_sent_by_the_setting(shape: str) -> None:
    """With the faults of Kafka Streams, and as there without a cache only, a new row takes 1 from its group."""
    windows = 2 if shape == "hopping" else 1
    assert last_rows(per_country(shape), USERS[:2], 0, faults=True) == {"de": "1"}
    if shape != "history":  # such a table is never cached
        assert last_rows(per_country(shape), USERS[:2], CACHES[1], faults=True) == {"de": str(2 * windows)}


def test_the_initial_aggregate_is_sent_by_the_setting() -> None:
    """With the faults of Kafka Streams the predicate gets it, once for each new row."""

    def seen(*, faults: bool) -> list[Any]:
        values: list[Any] = []

        def note(_: Any, value: Any) -> bool:
            values.append(value)
            return True

        last_rows(
            lambda grouped: grouped.aggregate(dict, put, rows()).filter(note),
            [("ann", "de", 1)] * 2,
            0,
            faults=faults,
        )
        return values

    row = {"country": "de"}
    assert seen(faults=False) == [row, row, row]
    assert seen(faults=True) == [row, {}, row, row]
