"""Tables with versioned stores: joins, filters and groups."""

from __future__ import annotations

from typing import Any

from ks_actors.dsl import Joined, Materialized, StreamsBuilder
from tests.differential.parts import (
    CONSUMED,
    GROUPED,
    PRODUCED,
    TEXT,
    Build,
    Params,
    added,
    first,
    joined,
    joined_by_key,
    rebuilds,
    register,
    stored,
    subtracted,
    table,
    write,
    zero,
)


def _versioned(builder: StreamsBuilder, topic: str, history_ms: int) -> Any:
    return builder.table(topic, CONSUMED, Materialized(f"{topic}-store", TEXT, TEXT, history_retention_ms=history_ms))


def _joining_table(method: str) -> Build:
    def build(builder: StreamsBuilder, p: Params) -> None:
        stream = builder.stream("left", CONSUMED)
        joining = Joined(TEXT, TEXT, TEXT, grace_ms=p.get("grace"))
        getattr(stream, method)(_versioned(builder, "right", p["history"]), joined_by_key, joining).to("out", PRODUCED)

    return build


register("versioned_st_inner", _joining_table("join"), "out")
register("versioned_st_left", _joining_table("left_join"), "out")


def _joining_tables(method: str) -> Build:
    def build(builder: StreamsBuilder, p: Params) -> None:
        left, right = (
            _versioned(builder, topic, p[f"history_{topic}"]) if f"history_{topic}" in p else table(builder, topic) for topic in ("left", "right")
        )
        write(getattr(left, method)(right, joined, stored("jn")), "out")

    return build


register("versioned_tt_inner", _joining_tables("join"), "out")
register("versioned_tt_left", _joining_tables("left_join"), "out")
register("versioned_tt_outer", _joining_tables("outer_join"), "out")


@rebuilds("out")
def versioned_filter(builder: StreamsBuilder, p: Params) -> None:
    write(_versioned(builder, "in", p["history"]).filter(lambda _, v: v < "c").map_values(lambda k, v: k + v), "out")


@rebuilds("out")
def versioned_groupby(builder: StreamsBuilder, p: Params) -> None:
    grouped = _versioned(builder, "in", p["history"]).group_by(lambda _, v: (first(v), v[1:]), GROUPED)
    write(grouped.aggregate(zero, added, subtracted, stored("agg")), "out")
