"""Tables, joins of tables, and joins of streams with tables."""

from __future__ import annotations

from typing import Any

from ks_actors.dsl import StreamsBuilder
from ks_actors.processors import ValueTransformer
from ks_actors.topology import stores
from tests.differential.parts import (
    CONSUMED,
    GROUPED,
    JOINED,
    NUMBER,
    PRODUCED,
    TEXT,
    Build,
    Params,
    added,
    aggregated,
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


def _if(condition: bool, name: str) -> Any:
    return stored(name) if condition else None


def _below_c(_: str, v: str) -> bool:
    return v < "c"


@rebuilds("out")
def table_source(builder: StreamsBuilder, p: Params) -> None:
    rows = table(builder, "in") if p["mat"] else builder.table("in", CONSUMED)
    rows.to_stream(lambda k, v: f"{k}/{'null' if v is None else v}").to("out", PRODUCED)


@rebuilds("out")
def table_filter_map(builder: StreamsBuilder, p: Params) -> None:
    rows = table(builder, "in")
    keep = rows.filter_not if p["not"] else rows.filter
    kept = keep(_below_c, _if(p["mat_filter"], "flt"))
    write(kept.map_values(lambda k, v: None if v == "b" else k + v, _if(p["mat_map"], "map")), "out")


@rebuilds("out")
def table_chain_groupby(builder: StreamsBuilder, _: Params) -> None:
    rows = table(builder, "in").filter(lambda _, v: not v.startswith("d")).map_values(lambda v: None if v == "b" else v + v)
    write(rows.group_by(lambda k, v: (first(v), k), GROUPED).count(stored("cnt", NUMBER)), "out")


class _Versions(ValueTransformer[Any, Any, Any]):
    """Number the calls per key."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store: Any = context.get_state_store("versions")

    def transform(self, key: str, value: str | None) -> str | None:
        number = int(self.store.get(key) or "0") + 1
        self.store.put(key, str(number))
        return None if value is None or value == "b" else f"{key}:{value}#{number}"


@rebuilds("out")
def table_transform(builder: StreamsBuilder, p: Params) -> None:
    builder.add_state_store(stores.key_value("versions", TEXT, TEXT, type=p["store"]))
    rows = table(builder, "in")
    write(rows.transform_values(_Versions, "versions", materialized=_if(p["mat"], "tv")), "out")


# ---- regrouped


def _regroup(_: str, v: str) -> tuple[str | None, str | None] | None:
    if v.startswith("N"):
        return None
    if v.startswith("n"):
        return (None, v)
    return ("m", None) if v.startswith("m") else (first(v), v[1:])


def _subtracted_but_2(_: str, v: str, a: str) -> str | None:
    return None if v == "2" else f"{a}-{v}"


@rebuilds("out")
def table_groupby_count(builder: StreamsBuilder, _: Params) -> None:
    write(table(builder, "in").group_by(_regroup, GROUPED).count(stored("cnt", NUMBER)), "out")


@rebuilds("out")
def table_groupby_reduce(builder: StreamsBuilder, _: Params) -> None:
    grouped = table(builder, "in").group_by(_regroup, GROUPED)
    write(grouped.reduce(lambda a, v: f"{a}+{v}", lambda a, v: None if v == "2" else f"{a}-{v}", stored("red")), "out")


@rebuilds("out")
def table_groupby_aggregate(builder: StreamsBuilder, _: Params) -> None:
    write(table(builder, "in").group_by(_regroup, GROUPED).aggregate(zero, added, _subtracted_but_2, stored("agg")), "out")


@rebuilds("out")
def table_samekey_aggregate(builder: StreamsBuilder, _: Params) -> None:
    write(table(builder, "in").group_by(lambda k, v: (k, v), GROUPED).aggregate(zero, added, subtracted, stored("agg")), "out")


@rebuilds("out")
def to_table(builder: StreamsBuilder, p: Params) -> None:
    stream = builder.stream("in", CONSUMED).filter_not(lambda _, v: v == "x").map_values(lambda v: None if v is None else v + "!")
    write(stream.to_table(_if(p["mat"], "tt")), "out")


@rebuilds("out")
def to_table_repartition(builder: StreamsBuilder, _: Params) -> None:
    stream = builder.stream("in", CONSUMED).select_key(lambda k, v: k if v is None else first(v))
    write(stream.to_table(stored("tt")).filter(lambda _, v: not v.endswith("2")), "out")


# ---- joins of tables


def _joining_tables(method: str) -> Build:
    def build(builder: StreamsBuilder, p: Params) -> None:
        left = table(builder, "left")
        write(getattr(left, method)(table(builder, "right"), joined, _if(p["mat"], "jn")), "out")

    return build


register("tt_inner", _joining_tables("join"), "out")
register("tt_left", _joining_tables("left_join"), "out")
register("tt_outer", _joining_tables("outer_join"), "out")


@rebuilds("out")
def tt_chain(builder: StreamsBuilder, _: Params) -> None:
    both = table(builder, "left").outer_join(table(builder, "right"), joined)
    write(both.left_join(table(builder, "third"), joined), "out")


@rebuilds("out")
def tt_diamond(builder: StreamsBuilder, _: Params) -> None:
    rows = table(builder, "in")
    write(rows.outer_join(rows.filter(_below_c), joined), "out")


@rebuilds("out")
def tt_join_groupby(builder: StreamsBuilder, _: Params) -> None:
    both = table(builder, "left").left_join(table(builder, "right"), joined)
    grouped = both.group_by(lambda _, v: (first(v), v), GROUPED)
    write(grouped.aggregate(zero, added, lambda _, v, a: f"{a}_{v}", stored("agg")), "out")


# ---- joins of tables by a foreign key


def _foreign_key(v: str) -> str | None:
    return None if v.startswith("null|") else v[: v.index("|")]


def _joining_by_foreign_key(method: str) -> Build:
    def build(builder: StreamsBuilder, p: Params) -> None:
        left = table(builder, "left")
        write(getattr(left, method)(table(builder, "right"), joined, _if(p["mat"], "jn"), foreign_key=_foreign_key), "out")

    return build


register("fk_inner", _joining_by_foreign_key("join"), "out")
register("fk_left", _joining_by_foreign_key("left_join"), "out")


@rebuilds("out")
def fk_left_groupby(builder: StreamsBuilder, _: Params) -> None:
    both = table(builder, "left").left_join(table(builder, "right"), joined, foreign_key=_foreign_key)
    write(both.group_by(lambda k, v: (v[v.index("-") + 1 :], k), GROUPED).count(stored("cnt", NUMBER)), "out")


# ---- joins of streams with tables


def _joining_table(method: str) -> Build:
    def build(builder: StreamsBuilder, _: Params) -> None:
        stream = builder.stream("left", CONSUMED)
        getattr(stream, method)(table(builder, "right"), joined_by_key, JOINED).to("out", PRODUCED)

    return build


register("st_inner", _joining_table("join"), "out")
register("st_left", _joining_table("left_join"), "out")


@rebuilds("out", "out-table")
def st_left_aggtable(builder: StreamsBuilder, _: Params) -> None:
    aggregates = builder.stream("right", CONSUMED).group_by_key(GROUPED).aggregate(zero, aggregated, stored("agg"))
    short = aggregates.filter(lambda _, v: len(v) < 5)
    write(short, "out-table")
    builder.stream("left", CONSUMED).left_join(short, joined_by_key, JOINED).to("out", PRODUCED)


@rebuilds("out")
def st_left_repartition(builder: StreamsBuilder, _: Params) -> None:
    stream = builder.stream("left", CONSUMED).select_key(lambda _, v: first(v))
    stream.left_join(table(builder, "right"), joined_by_key, JOINED).to("out", PRODUCED)


def _wanted(_: str | None, v: str | None) -> str | None:
    return None if v == "n" else v


def _joining_global_table(method: str) -> Build:
    def build(builder: StreamsBuilder, _: Params) -> None:
        stream = builder.stream("left", CONSUMED)
        rows = builder.global_table("right", CONSUMED, stored("right-store"))
        getattr(stream, method)(rows, _wanted, joined).to("out", PRODUCED)

    return build


register("sg_inner", _joining_global_table("join"), "out")
register("sg_left", _joining_global_table("left_join"), "out")
