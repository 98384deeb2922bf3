"""Kafka's SmokeTestClient as an app of ours: five subtopologies, windows, suppression, tables, joins. One process is one member.

Runs until SIGTERM, which closes it: exit code 0.
"""

from __future__ import annotations

from typing import Any, Final

from ks_actors import App, BufferConfig, Consumed, Grouped, Materialized, Produced, StreamsBuilder, Suppressed, Table, TimeWindows, Windowed
from ks_actors.serdes import DOUBLE, INTEGER, LONG, STRING
from ks_actors.topology import Topology
from tests.judges.drivers.member import config

APPLICATION: Final = "SmokeTest"
SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
LEAST, MOST = -(2**31), 2**31 - 1
FLUSH: Final = "flush"


def is_data(key: str, value: Any) -> bool:
    """Tell records from those that only move time."""
    return key != FLUSH


def write_windows(table: Table[Windowed[str], int], topic: str) -> None:
    """Write a windowed table with its keys as text: the driver reads `[key@start/end]`."""
    stream = table.to_stream().filter(lambda key, value: key.key != FLUSH)
    stream.map(lambda key, value: (str(key), value)).to(topic, Produced(STRING, INTEGER))


def write_keys(table: Table[Windowed[str], Any], topic: str, produced: Produced[str, Any]) -> None:
    """Write a windowed table with its keys alone."""
    table.to_stream().map(lambda key, value: (key.key, value)).filter(is_data).to(topic, produced)


def topology() -> Topology:
    """Return the topology of SmokeTestClient, with its names of stores and topics."""
    builder = StreamsBuilder()
    integers, longs = Produced(STRING, INTEGER), Produced(STRING, LONG)
    source = builder.stream("data", Consumed(STRING, INTEGER))
    source.filter(is_data).to("echo", integers)
    grouped = source.filter(lambda key, value: value != MOST).group_by_key(Grouped(STRING, INTEGER))
    final = Suppressed.until_window_closes(BufferConfig.unbounded())

    a_day = grouped.windowed_by(TimeWindows.of_size_and_grace(DAY, MINUTE))
    stored: Materialized[str, int] = Materialized("uwin-min", value=INTEGER, retention_ms=25 * DAY // 24)
    least = a_day.aggregate(lambda: MOST, lambda key, value, least: min(value, least), stored)
    write_windows(least, "min-raw")
    write_windows(least.suppress(final), "min-suppressed")
    write_keys(least, "min", integers)

    hops = grouped.windowed_by(TimeWindows.of_size_and_grace(2 * SECOND, 30 * SECOND).advance_by(SECOND))
    sums = hops.reduce(lambda one, other: one + other)
    write_windows(sums, "sws-raw")
    write_windows(sums.suppress(final), "sws-suppressed")

    two_days = grouped.windowed_by(TimeWindows.of_size_with_no_grace(2 * DAY))
    most = two_days.aggregate(lambda: LEAST, lambda key, value, most: max(value, most), Materialized("uwin-max", value=INTEGER))
    write_keys(most, "max", integers)
    write_keys(two_days.aggregate(lambda: 0, lambda key, value, sum_: value + sum_, Materialized("win-sum", value=LONG)), "sum", longs)
    write_keys(two_days.count(Materialized("uwin-cnt")), "cnt", longs)

    least_table = builder.table("min", Consumed(STRING, INTEGER), Materialized("minStoreName"))
    most_table = builder.table("max", Consumed(STRING, INTEGER), Materialized("maxStoreName"))
    sum_table = builder.table("sum", Consumed(STRING, LONG))
    count_table = builder.table("cnt", Consumed(STRING, LONG), Materialized("cntStoreName"))
    most_table.join(least_table, lambda most, least: most - least).to_stream().filter(is_data).to("dif", integers)
    sum_table.join(count_table, lambda sum_, count: sum_ / count).to_stream().filter(is_data).to("avg", Produced(STRING, DOUBLE))
    keys_by_count = count_table.group_by(lambda key, count: (str(count), 1), Grouped(STRING, LONG))
    tags = keys_by_count.aggregate(
        lambda: 0,
        lambda key, one, sum_: sum_ + one,
        lambda key, one, sum_: sum_ - one,
        Materialized("cntByCnt", STRING, LONG, store_type="in_memory"),
    )
    tags.to_stream().to("tagg", longs)
    return builder.build()


def main() -> None:
    App(topology(), config(__doc__, APPLICATION, default_key_serde=STRING)).main()


if __name__ == "__main__":
    main()
