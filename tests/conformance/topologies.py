"""The topology of each conformance case, and those that cannot be built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ks_actors.dsl import (
    BufferConfig,
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from ks_actors.processors import Processor, PunctuationType, Record
from ks_actors.serdes import INTEGER, LONG, STRING, Serde

# Null is a value like any other here: the functions below say where they expect one.
TEXT: Serde[Any] = STRING
NUMBER: Serde[Any] = LONG
CONSUMED = Consumed(TEXT, TEXT)
PRODUCED = Produced(TEXT, TEXT)
GROUPED = Grouped(TEXT, TEXT)
BY_NUMBER = Consumed(NUMBER, TEXT)
TO_NUMBER = Produced(NUMBER, TEXT)

Build: TypeAlias = Callable[[StreamsBuilder], None]


class Rebuilt(NamedTuple):
    """The builder of a case's topology, the topics it writes, the serde of the keys of all its topics, and that of the values that it writes."""

    build: Build
    outputs: tuple[str, ...]
    key: Serde[Any] = TEXT
    result: Serde[Any] = TEXT


def _dashed(left: str | None, right: str | None) -> str:
    return f"{_text(left)}-{_text(right)}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _plus(_: str, value: str, aggregate: str) -> str:
    return f"{aggregate}+{value}"


def _windowed_key(windowed: Any, _: Any) -> str:
    return f"{windowed.key}@{windowed.window.start}/{windowed.window.end}"


# ---- joins


def _streams(method: str) -> Build:
    def build(builder: StreamsBuilder) -> None:
        left, right = (builder.stream(topic, BY_NUMBER) for topic in ("inputTopicLeft", "inputTopicRight"))
        windows = JoinWindows.of_time_difference_and_grace(10_000, 24 * 3_600_000)
        getattr(left, method)(right, _dashed, windows, StreamJoined(NUMBER, TEXT, TEXT)).to("outputTopic", TO_NUMBER)

    return build


def _streams_in_order(builder: StreamsBuilder) -> None:
    key: Serde[Any] = INTEGER
    first, second = (builder.stream(topic, Consumed(key, TEXT)) for topic in ("topic1", "topic2"))
    windows = JoinWindows.of_time_difference_with_no_grace(100)
    both = first.left_join(second, lambda left, right: f"{_text(left)}+{_text(right)}", windows, StreamJoined(key, TEXT, TEXT))
    both.to("outputTopic", Produced(key, TEXT))


FIVE_MINUTES = 300_000


def _stream_table(method: str, history_ms: int | None = None) -> Build:
    def build(builder: StreamsBuilder) -> None:
        left = builder.stream("inputTopicLeft", BY_NUMBER)
        right = builder.table("inputTopicRight", BY_NUMBER, Materialized("table", NUMBER, TEXT, history_retention_ms=history_ms))
        getattr(left, method)(right, _dashed, Joined(NUMBER, TEXT, TEXT)).to("outputTopic", TO_NUMBER)

    return build


def _table_table(method: str, history_ms: int | None = None) -> Build:
    def build(builder: StreamsBuilder) -> None:
        left = builder.table("inputTopicLeft", BY_NUMBER, Materialized("left", NUMBER, TEXT, history_retention_ms=history_ms))
        right = builder.table("inputTopicRight", BY_NUMBER, Materialized("right", NUMBER, TEXT, history_retention_ms=history_ms))
        rows = getattr(left, method)(right, _dashed, Materialized("store", NUMBER, TEXT, logging=False))
        rows.to_stream().to("outputTopic", TO_NUMBER)

    return build


def _by_foreign_key(method: str) -> Build:
    def foreign_key(value: str) -> str | None:
        found = value.partition("|")[2]
        return None if found == "returnNull" else found

    def build(builder: StreamsBuilder) -> None:
        left, right = (builder.table(topic, CONSUMED) for topic in ("left_table", "right_table"))
        rows = getattr(left, method)(
            right, lambda one, other: f"({_text(one)},{_text(other)})", Materialized(None, TEXT, TEXT), foreign_key=foreign_key
        )
        rows.to_stream().to("outputTopic", PRODUCED)

    return build


def _stream_global_table(builder: StreamsBuilder) -> None:
    stream = builder.stream("s", CONSUMED)
    rows = builder.global_table("g", CONSUMED, Materialized("rows", TEXT, TEXT))

    def key(_: str | None, value: str | None) -> str | None:
        return None if value == "nil" else value

    def joined(value: str, found: str | None) -> str:
        return f"{value}+{_text(found)}"

    stream.join(rows, key, joined).to("out-inner", PRODUCED)
    stream.left_join(rows, key, joined).to("out-left", PRODUCED)


# ---- windows


def _windows(
    windows: TimeWindows | SlidingWindows, first: str, topic: str = "topic1", *, final: bool = False, retention_ms: int | None = None
) -> Build:
    def build(builder: StreamsBuilder) -> None:
        windowed = builder.stream(topic, CONSUMED).group_by_key(GROUPED).windowed_by(windows)
        if final:
            windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        rows = windowed.aggregate(lambda: first, _plus, Materialized("agg", TEXT, TEXT, retention_ms=retention_ms))
        rows.to_stream(_windowed_key).to("out", PRODUCED)

    return build


def _suppressed(rows: Any, suppressed: Suppressed, key: Callable[[Any, Any], str] | None) -> None:
    raw, last = rows, rows.suppress(suppressed)
    for table, topic in ((raw, "output-raw"), (last, "output-suppressed")):
        (table.to_stream() if key is None else table.to_stream(key)).to(topic, Produced(TEXT, NUMBER))


def _last_of_windows(builder: StreamsBuilder) -> None:
    windowed = builder.stream("input", CONSUMED).group_by_key(GROUPED).windowed_by(TimeWindows.of_size_and_grace(2, 1))
    counts = windowed.count(Materialized("counts", TEXT, NUMBER))
    _suppressed(counts, Suppressed.until_window_closes(BufferConfig.unbounded()), _windowed_key)


def _sessions(builder: StreamsBuilder) -> None:
    windowed = builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(300_000))
    rows = windowed.aggregate(int, lambda _, __, count: count + 1, lambda _, one, other: one + other, Materialized("counts", TEXT, NUMBER))
    rows.to_stream(_windowed_key).to("out", Produced(TEXT, NUMBER))


def _last_of_sessions(builder: StreamsBuilder) -> None:
    windowed = builder.stream("input", CONSUMED).group_by_key(GROUPED).windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    counts = windowed.count(Materialized("counts", TEXT, NUMBER))
    _suppressed(counts, Suppressed.until_window_closes(BufferConfig.unbounded()), _windowed_key)


def _last_in_time(builder: StreamsBuilder) -> None:
    rows = builder.table("input", CONSUMED, Materialized("rows", TEXT, TEXT))
    counts = rows.group_by(lambda key, value: (value, key), GROUPED).count(Materialized("counts", TEXT, NUMBER))
    _suppressed(counts, Suppressed.until_time_limit(2, BufferConfig.unbounded()), None)


# ---- tables


def _regrouped(builder: StreamsBuilder) -> None:
    def pair(key: str, value: str) -> tuple[str | None, str] | None:
        if key == "null":
            return (None, value)
        return None if key == "NULL" else (value, value)

    rows = builder.table("topic1", CONSUMED, Materialized("rows", TEXT, TEXT))
    aggregates = rows.group_by(pair, GROUPED).aggregate(
        lambda: "0", _plus, lambda _, value, aggregate: f"{aggregate}-{value}", Materialized("agg", TEXT, TEXT)
    )
    aggregates.to_stream().to("out", PRODUCED)


def _filtered(builder: StreamsBuilder) -> None:
    rows = builder.table("t", CONSUMED)  # a stored table would send old values, and then deletes of what is not there go no further
    rows.filter(lambda _, value: len(value) > 2, Materialized("long", TEXT, TEXT)).to_stream().to("out-mat", PRODUCED)
    rows.filter(lambda _, value: len(value) > 2).to_stream().to("out-virt", PRODUCED)


# ---- processors


class _Punctual(Processor[Any, Any, Any, Any]):
    """Tell the time, and let nothing through."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.STREAM_TIME, self.tick)

    def tick(self, now: int) -> None:
        self.context.forward(Record("punct", str(now), now))

    def process(self, record: Record[Any, Any]) -> None: ...


def _punctuated(builder: StreamsBuilder) -> None:
    builder.stream("in", CONSUMED).process(_Punctual).to("out", PRODUCED)


FIVE_MS_GRACE = TimeWindows.of_size_and_grace(10, 5).advance_by(5)

REBUILT: dict[str, Rebuilt] = {
    "01_stream_stream_inner_join": Rebuilt(_streams("join"), ("outputTopic",), NUMBER),
    "02_stream_stream_left_join": Rebuilt(_streams("left_join"), ("outputTopic",), NUMBER),
    "03_stream_stream_outer_join": Rebuilt(_streams("outer_join"), ("outputTopic",), NUMBER),
    "03c_stream_stream_left_join_ordering": Rebuilt(_streams_in_order, ("outputTopic",), INTEGER),
    "04_stream_table_inner_join": Rebuilt(_stream_table("join"), ("outputTopic",), NUMBER),
    "04b_stream_table_left_join": Rebuilt(_stream_table("left_join"), ("outputTopic",), NUMBER),
    "05_table_table_inner_join": Rebuilt(_table_table("join"), ("outputTopic",), NUMBER),
    "05b_table_table_left_join": Rebuilt(_table_table("left_join"), ("outputTopic",), NUMBER),
    "06_fk_inner_join_left_changes": Rebuilt(_by_foreign_key("join"), ("outputTopic",)),
    "06b_fk_inner_join_right_changes": Rebuilt(_by_foreign_key("join"), ("outputTopic",)),
    "06b_fk_left_join_right_changes": Rebuilt(_by_foreign_key("left_join"), ("outputTopic",)),
    "07_session_window_merge": Rebuilt(_sessions, ("out",), TEXT, NUMBER),
    "07b_session_window_close_and_late": Rebuilt(_last_of_sessions, ("output-raw", "output-suppressed"), TEXT, NUMBER),
    "08_sliding_window_small": Rebuilt(_windows(SlidingWindows.of_time_difference_and_grace(10, 5), "0", "topic"), ("out",)),
    "09_hopping_window_aggregate": Rebuilt(_windows(TimeWindows.of_size_and_grace(10, 100).advance_by(5), "0"), ("out",)),
    "09b_window_grace_late_drop": Rebuilt(_windows(TimeWindows.of_size_and_grace(10, 90).advance_by(10), "", "topic"), ("out",)),
    "09c_window_emit_final": Rebuilt(_windows(FIVE_MS_GRACE, "0", final=True), ("out",)),
    "09d_window_emit_final_long_retention": Rebuilt(_windows(FIVE_MS_GRACE, "0", final=True, retention_ms=3_600_000), ("out",)),
    "10_suppress_until_window_closes": Rebuilt(_last_of_windows, ("output-raw", "output-suppressed"), TEXT, NUMBER),
    "11_suppress_until_time_limit": Rebuilt(_last_in_time, ("output-raw", "output-suppressed"), TEXT, NUMBER),
    "12_versioned_stream_table_join": Rebuilt(_stream_table("join", FIVE_MINUTES), ("outputTopic",), NUMBER),
    "12e_versioned_table_table_inner_join": Rebuilt(_table_table("join", FIVE_MINUTES), ("outputTopic",), NUMBER),
    "13_table_groupby_aggregate_repartition": Rebuilt(_regrouped, ("out",)),
    "14_ktable_filter_tombstones": Rebuilt(_filtered, ("out-mat", "out-virt")),
    "15_stream_global_table_join": Rebuilt(_stream_global_table, ("out-inner", "out-left")),
    "16_punctuator_stream_time": Rebuilt(_punctuated, ("out",)),
}

OUT_OF_REACH: dict[str, str] = {}
"""Cases that cannot be built, and why."""
