"""Joins of two streams, and changes of tables that are held back."""

from __future__ import annotations

from typing import Any

from ks_actors.dsl import BufferConfig, JoinWindows, StreamJoined, StreamsBuilder, Suppressed
from tests.differential.parts import (
    CONSUMED,
    GROUPED,
    NUMBER,
    PRODUCED,
    TEXT,
    Build,
    Params,
    added,
    aggregate_sessions,
    aggregate_windows,
    aggregated,
    first,
    joined_by_key,
    rebuilds,
    register,
    stored,
    stored_windows,
    subtracted,
    table,
    text_or_null,
    time_windows,
    windows,
    write,
    write_windowed,
    zero,
)

JOINED = StreamJoined(TEXT, TEXT, TEXT)

# ---- joins of streams


def _join_windows(p: Params) -> JoinWindows:
    before, after = p["before"], p["after"]
    return JoinWindows.of_time_difference_and_grace(max(abs(before), abs(after)), p["grace"]).after(after).before(before)


def _joining_streams(method: str, *, rekeyed: bool = False) -> Build:
    def build(builder: StreamsBuilder, p: Params) -> None:
        left = builder.stream("left", CONSUMED)
        if rekeyed:
            left = left.select_key(lambda _, v: first(v))
        right = builder.stream("right", CONSUMED)
        if rekeyed:
            right = right.select_key(lambda _, v: first(v))
        getattr(left, method)(right, joined_by_key, _join_windows(p), JOINED).to("out", PRODUCED)

    return build


register("ss_inner", _joining_streams("join"), "out")
register("ss_left", _joining_streams("left_join"), "out")
register("ss_outer", _joining_streams("outer_join"), "out")
register("ss_inner_repartition", _joining_streams("join", rekeyed=True), "out")
register("ss_left_repartition", _joining_streams("left_join", rekeyed=True), "out")


@rebuilds("out")
def ss_self(builder: StreamsBuilder, p: Params) -> None:
    stream = builder.stream("in", CONSUMED)
    stream.join(stream, joined_by_key, _join_windows(p), JOINED).to("out", PRODUCED)


@rebuilds("out")
def ss_join_window(builder: StreamsBuilder, p: Params) -> None:
    both = builder.stream("left", CONSUMED).join(builder.stream("right", CONSUMED), joined_by_key, _join_windows(p), JOINED)
    windowed = both.group_by_key(GROUPED).windowed_by(time_windows(p))
    write_windowed(windowed.aggregate(zero, aggregated, stored_windows("agg", p)), "out")


@rebuilds("out")
def ss_chain(builder: StreamsBuilder, p: Params) -> None:
    both = builder.stream("left", CONSUMED).left_join(builder.stream("right", CONSUMED), joined_by_key, _join_windows(p), JOINED)
    both.outer_join(builder.stream("third", CONSUMED), joined_by_key, _join_windows(p), JOINED).to("out", PRODUCED)


# ---- suppression


@rebuilds("out-raw", "out-suppressed")
def suppress_window(builder: StreamsBuilder, p: Params) -> None:
    rows = aggregate_windows(builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(time_windows(p)), p)
    write_windowed(rows.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())), "out-suppressed")
    write_windowed(rows, "out-raw")


@rebuilds("out-raw", "out-suppressed")
def suppress_session(builder: StreamsBuilder, p: Params) -> None:
    rows = aggregate_sessions(builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(windows(p)), p)
    write_windowed(rows.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())), "out-suppressed")
    write_windowed(rows, "out-raw")


def _by_first(_: str, v: str) -> tuple[str | None, str]:
    return first(v), v


@rebuilds("out-raw", "out-suppressed")
def suppress_limit(builder: StreamsBuilder, p: Params) -> None:
    rows: Any = table(builder, "in")
    if p["source"] == "count":
        rows = rows.group_by(_by_first, GROUPED).count(stored("cnt", NUMBER)).map_values(text_or_null, stored("cs"))
    buffer = BufferConfig(max_records=p["max_records"], when_full="emit_early") if "max_records" in p else BufferConfig.unbounded()
    write(rows.suppress(Suppressed.until_time_limit(p["limit"], buffer)), "out-suppressed")
    write(rows, "out-raw")


@rebuilds("out")
def suppress_limit_groupby(builder: StreamsBuilder, p: Params) -> None:
    rows = table(builder, "in").suppress(Suppressed.until_time_limit(p["limit"], BufferConfig.unbounded()))
    write(rows.group_by(_by_first, GROUPED).aggregate(zero, added, subtracted, stored("agg")), "out")
