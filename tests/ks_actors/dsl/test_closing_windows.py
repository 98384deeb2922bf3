"""Tables with windows that close: how `suppress` finds the time when a row is final, and which tables have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import ProcessingFailed, Processor, Record, StreamsBuilder, Suppressed, TableJoined, TimeWindows, TopologyError, Windowed
from ks_actors.dsl import BufferConfig, Consumed, Grouped, Joined, JoinWindows, Materialized, Produced, SessionWindows, SlidingWindows
from ks_actors.processors.tables import Suppress
from ks_actors.serdes import LONG, STRING, windowed
from ks_actors.testing import TopologyTestDriver
from ks_actors.topology import ProcessorNode

TEXT: Consumed[str, str] = Consumed(STRING, STRING)
CLOSES: Suppressed = Suppressed.until_window_closes(BufferConfig.unbounded())
COUNTS: Materialized[str, int] = Materialized(key=STRING, value=LONG)
SHORT: TimeWindows = TimeWindows.of_size_and_grace(10, 5)
LONGER: TimeWindows = TimeWindows.of_size_and_grace(10, 7)
SLIDING: SlidingWindows = SlidingWindows.of_time_difference_and_grace(10, 5)
SESSIONS: SessionWindows = SessionWindows.of_inactivity_gap_and_grace(10, 3)
BY_WINDOW: Any = windowed(STRING, 10)


def counts(builder: StreamsBuilder, topic: str = "a", windows: Any = SHORT) -> Any:
    return builder.stream(topic, TEXT).group_by_key().windowed_by(windows).count(COUNTS)


def rows(builder: StreamsBuilder) -> Any:
    return builder.table("rows", Consumed(BY_WINDOW, LONG))


def changes(builder: StreamsBuilder, windows: Any = SHORT) -> Any:
    return counts(builder, windows=windows).to_stream()


def added(one: int, other: int) -> int:
    return one + other


def to_all(key: Windowed[str], value: int) -> tuple[Windowed[str], int]:
    """Group all keys of a window."""
    return Windowed("all", key.window), value


class Passing(Processor[Any, Any, Any, Any]):
    """A processor that forwards its records."""

    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        self._context.forward(record)


def tables() -> dict[str, tuple[Callable[[StreamsBuilder], Any], tuple[int, bool]]]:
    """Return tables that come from windows, each with its wait, and whether the windows include their end."""
    later = JoinWindows.of_time_difference_with_no_grace(1)
    return {
        "time windows": (counts, (5, False)),
        "sliding windows": (lambda b: counts(b, windows=SLIDING), (5, True)),
        "sessions": (lambda b: counts(b, windows=SESSIONS), (13, True)),
        "filter, map": (lambda b: counts(b).filter(lambda _, count: count > 1).map_values(lambda count: count + 1), (5, False)),
        "suppress": (lambda b: counts(b).suppress(CLOSES), (5, False)),
        "cogroup": (
            lambda b: b.stream("a", TEXT).group_by_key().cogroup(lambda _, __, n: n + 1).windowed_by(SHORT).aggregate(int, COUNTS),
            (5, False),
        ),
        "cogroup of sessions": (
            lambda b: (
                b.stream("a", TEXT)
                .group_by_key()
                .cogroup(lambda _, __, n: n + 1)
                .windowed_by(SESSIONS)
                .aggregate(int, lambda _, one, other: one + other, COUNTS)
            ),
            (13, True),
        ),
        "join": (lambda b: counts(b).join(counts(b, "b", LONGER), added), (7, False)),
        "left join": (lambda b: counts(b, "b", LONGER).left_join(counts(b), added), (7, False)),
        "outer join": (lambda b: counts(b, windows=SLIDING).outer_join(counts(b, "b"), added), (5, True)),
        "join, stored": (
            lambda b: counts(b, windows=SLIDING).join(counts(b, "b", LONGER), added, Materialized(key=BY_WINDOW, value=LONG)),
            (7, False),
        ),
        "join of a join": (lambda b: counts(b).join(counts(b, "b"), added).join(counts(b, "c", LONGER), added), (7, False)),
        "foreign key": (
            lambda b: counts(b).join(counts(b, "b", LONGER), added, foreign_key=lambda value: None, joined=TableJoined("fk")),
            (7, False),
        ),
        "group_by": (lambda b: counts(b).group_by(to_all, Grouped(BY_WINDOW, LONG)).count(), (5, False)),
        "group_by: reduce": (lambda b: counts(b).group_by(to_all, Grouped(BY_WINDOW, LONG)).reduce(added, added), (5, False)),
        "to_table": (lambda b: changes(b).to_table(), (5, False)),
        "repartitioned": (lambda b: changes(b).map(to_all).to_table(Materialized(key=BY_WINDOW, value=LONG)), (5, False)),
        "repartition": (lambda b: changes(b).repartition().to_table(), (5, False)),
        "merge": (lambda b: changes(b).merge(counts(b, "b", LONGER).to_stream()).to_table(), (7, False)),
        "split": (lambda b: changes(b).split("s-").branch(lambda _, __: True, "one").no_default_branch()["s-one"].to_table(), (5, False)),
        "processor": (lambda b: changes(b).process(Passing).to_table(Materialized(key=BY_WINDOW, value=LONG)), (5, False)),
        "stream-table join": (lambda b: changes(b).join(rows(b), added, Joined(BY_WINDOW, LONG)).to_table(), (5, False)),
        "stream-stream join": (lambda b: changes(b).join(counts(b, "b", LONGER).to_stream(), added, later).to_table(), (7, False)),
        "aggregated again": (lambda b: changes(b).group_by_key(Grouped(BY_WINDOW, LONG)).reduce(added), (5, False)),
        "windows of windows": (lambda b: changes(b, LONGER).group_by_key(Grouped(BY_WINDOW, LONG)).windowed_by(SHORT).count(), (5, False)),
    }


@pytest.mark.parametrize("shape", tables())
def test_a_row_is_final_when_the_windows_that_it_comes_from_have_closed(shape: str) -> None:
    """The nearest aggregation by windows on each way up decides, through all operations; of several, the one that closes last."""
    make, expected = tables()[shape]
    builder = StreamsBuilder()
    make(builder).suppress(CLOSES.with_name("final"))
    node = builder.build().nodes["final"]
    assert isinstance(node, ProcessorNode)
    assert isinstance(node.operator, Suppress)
    assert (node.operator.wait_ms, node.operator.end_included) == expected


REFUSED: dict[str, tuple[Callable[[StreamsBuilder], Any], str]] = {
    "table": (rows, "KTABLE-SOURCE-"),
    "aggregation without windows": (lambda b: b.stream("a", TEXT).group_by_key().count(), "KSTREAM-SOURCE-"),
    "join with a table without windows": (lambda b: counts(b).join(rows(b), added), "KTABLE-SOURCE-"),
    "join, the other way round": (lambda b: rows(b).left_join(counts(b), added), "KTABLE-SOURCE-"),
    "foreign key of a table without windows": (lambda b: counts(b).join(rows(b), added, foreign_key=lambda value: None), "KTABLE-SOURCE-"),
    "merge with a stream without windows": (lambda b: changes(b).merge(b.stream("b", Consumed(BY_WINDOW, LONG))).to_table(), "KSTREAM-SOURCE-"),
}


@pytest.mark.parametrize("shape", REFUSED)
def test_a_table_that_comes_from_a_source_without_windows_is_refused(shape: str) -> None:
    """Each way up must lead to an aggregation by windows, as in Kafka Streams; the error names the source of the one that does not."""
    make, source = REFUSED[shape]
    table = make(StreamsBuilder())
    with pytest.raises(TopologyError, match=f"{table.node.name} has no windows that close, because it is made from {source}"):
        table.suppress(CLOSES)


def results(builder: StreamsBuilder, *records: tuple[str, str, int]) -> list[tuple[str, int]]:
    """Return the keys and values that come out for records of topic, key and time."""
    with TopologyTestDriver(builder.build()) as driver:
        for topic, key, time in records:
            driver.create_input_topic(topic, STRING, STRING).pipe_input(key, "v", time)
        found = driver.create_output_topic("out", BY_WINDOW, LONG).read_records_to_list()
    return [(f"{record.key.key}@{record.key.window.start}", record.value) for record in found if record.key and record.value is not None]


def test_a_join_of_windowed_tables_has_one_final_row_for_each_window() -> None:
    """The row waits for the longer grace period, and takes in the late records that either side has accepted."""
    builder = StreamsBuilder()
    joined = counts(builder).join(counts(builder, "b", LONGER), added, Materialized(key=BY_WINDOW, value=LONG)).suppress(CLOSES)
    joined.to_stream().to("out", Produced(BY_WINDOW, LONG))
    records = [("a", "k", 1), ("b", "k", 2), ("b", "k", 16), ("a", "k", 14), ("b", "k", 3), ("b", "k", 17), ("a", "k", 17)]
    assert results(builder, *records) == [("k@0", 3)]


def test_groups_of_windowed_rows_have_one_final_row_for_each_window() -> None:
    """The rows of a window may be aggregated by another key with the same window, which is final when that window has closed."""
    builder = StreamsBuilder()
    totals = counts(builder).group_by(to_all, Grouped(BY_WINDOW, LONG)).reduce(added, lambda total, old: total - old)
    totals.suppress(CLOSES).to_stream().to("out", Produced(BY_WINDOW, LONG))
    assert results(builder, ("a", "k", 1), ("a", "l", 2), ("a", "k", 3), ("a", "k", 16)) == [("all@0", 3)]


def test_a_row_that_has_lost_its_window_is_an_error_of_its_record() -> None:
    """The error says that the key has no window, and what to do."""
    builder = StreamsBuilder()
    plain = changes(builder).select_key(lambda key, _: key.key).to_table(Materialized(key=STRING, value=LONG))
    plain.suppress(CLOSES.with_name("final"))
    with pytest.raises(ProcessingFailed, match="key 'k' has no window, so no end to wait for") as caught:
        results(builder, ("a", "k", 1))
    assert caught.value.node == "final"
