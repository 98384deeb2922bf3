"""Streams: stateless, aggregated, windowed, cogrouped, and driven by processors."""

from __future__ import annotations

from typing import Any

from ks_actors.dsl import EmitStrategy, Grouped, Repartitioned, StreamsBuilder, UnlimitedWindows
from tests.differential.parts import (
    CONSUMED,
    GROUPED,
    NUMBER,
    PRODUCED,
    TEXT,
    Params,
    added,
    aggregate_sessions,
    aggregate_windows,
    aggregated,
    first,
    merged,
    rebuilds,
    reduced,
    register,
    stored,
    stored_windows,
    subtracted,
    text,
    text_or_null,
    time_windows,
    windows,
    write,
    write_windowed,
    zero,
)

# ---- stateless


def _ends(v: str) -> list[str]:
    if v.endswith("d"):
        return []
    return [v, v + "2"] if v.endswith("e") else [v]


def _both_ways(k: str | None, v: str) -> list[tuple[str | None, str | None]]:
    return [(k, v)] if k is None else [(k, v), (v, k)]


@rebuilds("out")
def stateless_chain(builder: StreamsBuilder, _: Params) -> None:
    stream = builder.stream("in", CONSUMED)
    stream = stream.filter(lambda _, v: v is not None and v != "x")
    stream = stream.filter_not(lambda k, v: k == "k2" and v == "a")
    stream = stream.map_values(lambda k, v: ("_" if k is None else k) + v)
    stream = stream.flat_map_values(_ends)
    stream = stream.flat_map(_both_ways)
    stream = stream.peek(lambda _, __: None)
    stream = stream.map(lambda k, v: (k, v + "."))
    stream.to("out", PRODUCED)


@rebuilds("out-lo", "out-k", "out-rest", "out-merged")
def branch_merge(builder: StreamsBuilder, p: Params) -> None:
    split = builder.stream("in", CONSUMED).split("br-")
    split = split.branch(lambda _, v: v is not None and v < "c", "lo").branch(lambda k, _: k == "k1", "k")
    branches = split.default_branch("rest") if p["default"] else split.no_default_branch()
    branches["br-lo"].to("out-lo", PRODUCED)
    branches["br-k"].to("out-k", PRODUCED)
    merged = branches["br-lo"].map_values(lambda v: "L" + v).merge(branches["br-k"].map_values(lambda v: "K" + text(v)))
    if p["default"]:
        branches["br-rest"].to("out-rest", PRODUCED)
        merged = merged.merge(branches["br-rest"].map(lambda k, v: (v, k)))
    merged.to("out-merged", PRODUCED)


@rebuilds("out", "out-count")
def merge_count(builder: StreamsBuilder, _: Params) -> None:
    stream = builder.stream(["a", "b"], CONSUMED).merge(builder.stream("c", CONSUMED).map_values(lambda v: None if v is None else "c" + v))
    stream.to("out", PRODUCED)
    write(stream.group_by_key(GROUPED).count(stored("cnt", NUMBER)), "out-count")


# ---- aggregations


@rebuilds("out")
def selectkey_count(builder: StreamsBuilder, _: Params) -> None:
    stream = builder.stream("in", CONSUMED).select_key(lambda _, v: first(v))
    write(stream.group_by_key(Grouped(TEXT, TEXT, name="grp")).count(stored("cnt", NUMBER)), "out")


@rebuilds("out-mid", "out")
def repartition_reduce(builder: StreamsBuilder, _: Params) -> None:
    stream = builder.stream("in", CONSUMED).map(lambda k, v: (v, k)).repartition(Repartitioned(TEXT, TEXT, name="rp", partitions=1))
    stream.to("out-mid", PRODUCED)
    write(stream.group_by_key(GROUPED).reduce(lambda a, v: text(a) + text(v), stored("red")), "out")


@rebuilds("out")
def stream_count(builder: StreamsBuilder, _: Params) -> None:
    write(builder.stream("in", CONSUMED).group_by_key(GROUPED).count(stored("cnt", NUMBER)), "out")


@rebuilds("out")
def stream_reduce(builder: StreamsBuilder, _: Params) -> None:
    write(builder.stream("in", CONSUMED).group_by_key(GROUPED).reduce(reduced, stored("red")), "out")


@rebuilds("out")
def stream_aggregate(builder: StreamsBuilder, _: Params) -> None:
    write(builder.stream("in", CONSUMED).group_by_key(GROUPED).aggregate(zero, aggregated, stored("agg")), "out")


@rebuilds("out")
def groupby_aggregate(builder: StreamsBuilder, _: Params) -> None:
    grouped = builder.stream("in", CONSUMED).group_by(lambda _, v: None if v == "n" else first(v), GROUPED)
    write(grouped.aggregate(zero, lambda k, v, a: f"{a}[{k}{text(v)}]", stored("agg")), "out")


@rebuilds("out")
def aggregate_filter_table(builder: StreamsBuilder, _: Params) -> None:
    counts = builder.stream("in", CONSUMED).group_by_key(GROUPED).count(stored("cnt", NUMBER))
    write(counts.filter(lambda _, count: count % 3 != 0).map_values(lambda count: f"c{count}"), "out")


@rebuilds("out-count", "out")
def multi_subtopology(builder: StreamsBuilder, _: Params) -> None:
    counts = builder.stream("in", CONSUMED).select_key(lambda _, v: first(v)).group_by_key(Grouped(TEXT, TEXT, name="g1")).count(stored("c1", NUMBER))
    write(counts, "out-count")
    by_count = counts.to_stream().map(lambda k, count: (f"n{count}", k)).group_by_key(Grouped(TEXT, TEXT, name="g2"))
    write(by_count.aggregate(zero, aggregated, stored("c2")), "out")


# ---- windows


def _emission(p: Params) -> EmitStrategy:
    return EmitStrategy.ON_WINDOW_CLOSE if p["emit"] == "close" else EmitStrategy.ON_WINDOW_UPDATE


def _windowed(builder: StreamsBuilder, p: Params) -> None:
    windowed = builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(windows(p)).emit_strategy(_emission(p))
    write_windowed(aggregate_windows(windowed, p), "out")


register("tumbling", _windowed, "out")
register("hopping", _windowed, "out")
register("sliding", _windowed, "out")


@rebuilds("out")
def session(builder: StreamsBuilder, p: Params) -> None:
    windowed = builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(windows(p)).emit_strategy(_emission(p))
    write_windowed(aggregate_sessions(windowed, p), "out")


@rebuilds("out")
def unlimited_count(builder: StreamsBuilder, p: Params) -> None:
    windowed = builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(UnlimitedWindows.of().start_on(p["start"]))
    write_windowed(windowed.count(stored_windows("agg", p, NUMBER)), "out")


@rebuilds("out")
def window_filter_table(builder: StreamsBuilder, p: Params) -> None:
    windowed = builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(time_windows(p))
    counts = windowed.count(stored_windows("agg", p, NUMBER))
    write_windowed(counts.filter(lambda _, count: count % 2 == 1).map_values(lambda count: f"c{count}"), "out")


@rebuilds("out")
def window_regroup(builder: StreamsBuilder, p: Params) -> None:
    windowed = builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(time_windows(p))
    counts = windowed.count(stored_windows("agg", p, NUMBER)).map_values(text_or_null)
    by_start = counts.group_by(lambda w, count: (str(w.window.start), w.key + count), GROUPED)
    write(by_start.aggregate(zero, added, subtracted, stored("agg2")), "out")


@rebuilds("out")
def session_regroup(builder: StreamsBuilder, p: Params) -> None:
    windowed = builder.stream("in", CONSUMED).group_by_key(GROUPED).windowed_by(windows(p))
    counts = windowed.count(stored_windows("agg", p, NUMBER)).map_values(text_or_null)
    by_start = counts.group_by(lambda w, count: (str(w.window.start), w.key + count), GROUPED)
    write(by_start.aggregate(zero, added, subtracted, stored("agg2")), "out")


def _from_a(_: str, v: str | None, a: str) -> str | None:
    return a + "A~" if v is None else None if v == "z" else f"{a}A{v}"


def _from_b(_: str, v: str | None, a: str) -> str:
    return a + "B~" if v is None else f"{a}B{v}"


def _cogrouped(builder: StreamsBuilder) -> Any:
    grouped = builder.stream("a", CONSUMED).group_by_key(GROUPED).cogroup(_from_a)
    return grouped.cogroup(builder.stream("b", CONSUMED).group_by_key(GROUPED), _from_b)


@rebuilds("out")
def cogroup(builder: StreamsBuilder, _: Params) -> None:
    write(_cogrouped(builder).aggregate(zero, stored("cg")), "out")


@rebuilds("out")
def cogroup_windowed(builder: StreamsBuilder, p: Params) -> None:
    windowed = _cogrouped(builder).windowed_by(windows(p))
    merger = (merged,) if "gap" in p else ()
    write_windowed(windowed.aggregate(zero, *merger, stored_windows("cg", p)), "out")
