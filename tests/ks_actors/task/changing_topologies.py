"""A topology for each operation and store, of functions that change their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ks_actors import serdes
from ks_actors.dsl import (
    BufferConfig,
    Consumed,
    EmitStrategy,
    Grouped,
    GroupedStream,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    Stream,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    Table,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.topology import Topology, stores
from tests.ks_actors.task.changing_functions import MAKES, SERDES, Hoard, Remembering, Spoiling, both, grow, meet, reduced, shrink, spoil, spoil_row

JSON = serdes.json()
RECORDS = Consumed(serdes.STRING, JSON)


class Build:
    """The builder, the stores and the kind of values that a topology is made with."""

    def __init__(self, value: str, store: str, *, hoards: bool, caching: bool) -> None:
        self.builder = StreamsBuilder()
        self.value: str = value
        self.store: Any = store
        self.make: Any = MAKES[value]
        self.caching: bool = caching
        self._hoards: bool = hoards

    def own(self, function: Callable[..., Any]) -> Any:
        """Return a function, or one that keeps its results."""
        return Hoard(function) if self._hoards else function

    def kept(self, name: str = "s", key: Any = serdes.STRING, value: Any = None, **more: Any) -> Materialized[Any, Any]:
        """Return how a table is kept."""
        return Materialized(name, key, value or SERDES[self.value], store_type=self.store, caching=self.caching, **more)

    def stream(self, topic: str = "in") -> Stream[str, Any]:
        return self.builder.stream(topic, RECORDS)

    def grouped(self) -> GroupedStream[str, Any]:
        return self.stream().group_by_key()


def _out(stream: Stream[Any, Any], key: Any = serdes.STRING) -> None:
    stream.map_values(spoil).to("out", Produced(key, JSON))


def _sent(table: Table[Any, Any], key: Any = serdes.STRING) -> None:
    _out(table.to_stream(), key)


WINDOWED = serdes.windowed(serdes.STRING, 10)


def _reduce(b: Build) -> None:
    stream = b.stream()
    _sent(stream.group_by_key().reduce(b.own(reduced), b.kept(value=JSON)))
    stream.foreach(spoil_row)


def _aggregate(b: Build) -> None:
    _sent(b.grouped().aggregate(b.make, b.own(grow), b.kept()))


def _chain(b: Build) -> None:
    table = b.grouped().aggregate(b.make, b.own(grow), b.kept())
    mapped = table.map_values(spoil, b.kept("mapped"))
    kept = mapped.filter(lambda _, value: bool(spoil(value)), b.kept("kept"))
    _sent(kept.transform_values(Remembering, materialized=b.kept("transformed")))
    table.to_stream().foreach(spoil_row)


def _cogroup(b: Build) -> None:
    other = b.stream("other").group_by_key()
    _sent(b.grouped().cogroup(b.own(grow)).cogroup(other, b.own(grow)).aggregate(b.make, b.kept()))


def _windows(windows: Any) -> Callable[[Build], None]:
    return lambda b: _sent(b.grouped().windowed_by(windows).aggregate(b.make, b.own(grow), b.kept()), WINDOWED)


def _reduced_windows(b: Build) -> None:
    stream = b.stream()
    _sent(stream.group_by_key().windowed_by(TimeWindows.of_size_and_grace(10, 5)).reduce(b.own(reduced), b.kept(value=JSON)), WINDOWED)
    stream.foreach(spoil_row)


def _sessions(b: Build) -> None:
    windows = SessionWindows.of_inactivity_gap_and_grace(5, 5)
    _sent(b.grouped().windowed_by(windows).aggregate(b.make, b.own(grow), meet, b.kept()), serdes.session_windowed(serdes.STRING))


def _closed_windows(b: Build) -> None:
    windowed = b.grouped().windowed_by(TimeWindows.of_size_and_grace(10, 5)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    _sent(windowed.aggregate(b.make, b.own(grow), b.kept()), WINDOWED)


def _closed_sessions(b: Build) -> None:
    windowed = b.grouped().windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 5)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    _sent(windowed.aggregate(b.make, b.own(grow), meet, b.kept()), serdes.session_windowed(serdes.STRING))


def _table(b: Build) -> None:
    table = b.builder.table("in", RECORDS, b.kept(value=JSON))
    table.to_stream().foreach(spoil_row)
    _sent(table.map_values(spoil))


def _regrouped(b: Build) -> None:
    table = b.builder.table("in", RECORDS, b.kept("rows", value=JSON))
    grouped = table.group_by(lambda key, value: (f"g{len(key) + value['n'] % 2}", value), Grouped(serdes.STRING, JSON, "by"))
    _sent(grouped.aggregate(b.make, b.own(grow), shrink, b.kept()))


def _regrouped_aggregates(b: Build) -> None:
    counted = b.grouped().reduce(b.own(reduced), b.kept("sums", value=JSON))
    grouped = counted.group_by(lambda _, value: ("all", value), Grouped(serdes.STRING, JSON, "by"))
    _sent(grouped.reduce(b.own(reduced), b.own(reduced), b.kept(value=JSON)))


def _suppressed(b: Build) -> None:
    table = b.grouped().aggregate(b.make, b.own(grow), b.kept())
    table.to_stream().foreach(spoil_row)
    _sent(table.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded())))


def _suppressed_lists(b: Build) -> None:
    """Keys are lists."""
    grouped = b.stream().group_by(lambda key, value: [key, value["n"] % 2], Grouped(JSON, JSON, "by"))
    table = grouped.aggregate(b.make, b.own(grow), b.kept(key=JSON))
    table.to_stream().foreach(spoil_row)
    _sent(table.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded())), JSON)


def _lists(b: Build) -> None:
    grouped = b.stream().group_by(lambda key, value: [key, value["n"] % 2], Grouped(JSON, JSON, "by"))
    stream = grouped.windowed_by(TimeWindows.of_size_and_grace(10, 5)).aggregate(b.make, b.own(grow), b.kept(key=JSON)).to_stream()
    _out(stream, serdes.windowed(JSON, 10))


def _stream_table(b: Build) -> None:
    table = b.builder.table("other", RECORDS, b.kept(value=JSON))
    _out(b.stream().left_join(table, both, Joined(serdes.STRING, JSON)))


def _past(b: Build) -> None:
    table = b.builder.table("other", RECORDS, Materialized("s", serdes.STRING, JSON, store_type=b.store, history_retention_ms=50))
    _out(b.stream().left_join(table, both, Joined(serdes.STRING, JSON, grace_ms=3)))


def _global(b: Build) -> None:
    table = b.builder.global_table("other", RECORDS, Materialized("s", serdes.STRING, JSON))
    _out(b.stream().left_join(table, lambda key, _: key, both))


def _tables(b: Build) -> None:
    table = b.builder.table("in", RECORDS, b.kept("l", value=JSON))
    other = b.builder.table("other", RECORDS, b.kept("r", value=JSON))
    _sent(table.outer_join(other, both, b.kept(value=JSON)))


def _streams(how: str) -> Callable[[Build], None]:
    def build(b: Build) -> None:
        join = getattr(b.stream(), how)
        _out(join(b.stream("other"), both, JoinWindows.of_time_difference_and_grace(4, 3), StreamJoined(serdes.STRING, JSON, JSON, store_name="s")))

    return build


def _processor(b: Build) -> None:
    kinds = (
        stores.key_value("plain", serdes.STRING, JSON, type=b.store),
        stores.key_value("timed", serdes.STRING, JSON, timestamped=True, type=b.store),
        stores.window("windows", serdes.STRING, JSON, retention_ms=50, window_size_ms=5, type=b.store),
        stores.session("sessions", serdes.STRING, JSON, retention_ms=50, type=b.store),
        stores.versioned_key_value("past", serdes.STRING, JSON, history_retention_ms=50, type=b.store),
        stores.key_value("by-list", JSON, JSON, type=b.store),
    )
    for spec in kinds:
        b.builder.add_state_store(spec)
    _out(b.stream().process(Spoiling, *[spec.name for spec in kinds]))


TOPOLOGIES: dict[str, Callable[[Build], None]] = {
    "reduce": _reduce,
    "aggregate": _aggregate,
    "chain": _chain,
    "cogroup": _cogroup,
    "tumbling": _windows(TimeWindows.of_size_and_grace(10, 5)),
    "hopping": _windows(TimeWindows.of_size_and_grace(10, 5).advance_by(5)),
    "sliding": _windows(SlidingWindows.of_time_difference_and_grace(10, 5)),
    "unlimited": _windows(UnlimitedWindows.of()),
    "reduced windows": _reduced_windows,
    "sessions": _sessions,
    "closed windows": _closed_windows,
    "closed sessions": _closed_sessions,
    "table": _table,
    "regrouped": _regrouped,
    "regrouped aggregates": _regrouped_aggregates,
    "suppressed": _suppressed,
    "suppressed lists": _suppressed_lists,
    "lists": _lists,
    "stream and table": _stream_table,
    "stream and past": _past,
    "global": _global,
    "tables": _tables,
    "inner join": _streams("join"),
    "left join": _streams("left_join"),
    "outer join": _streams("outer_join"),
    "processor": _processor,
}


CACHED = frozenset(TOPOLOGIES) - {"regrouped", "regrouped aggregates", "suppressed", "suppressed lists"}
"""Those of which the last of each row is the same with caches, wherever commits fall: the others keep something of each update."""


def build(name: str, value: str, store: str, *, hoards: bool, caching: bool) -> Topology:
    """Build one of them."""
    made = Build(value, store, hoards=hoards, caching=caching)
    TOPOLOGIES[name](made)
    return made.builder.build()
