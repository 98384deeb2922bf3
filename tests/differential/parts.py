"""The building blocks of the topologies: functions, options, and registration by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ks_actors import StreamsConfig
from ks_actors.dsl import Consumed, Grouped, Joined, Materialized, Produced, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from ks_actors.serdes import LONG, STRING, Serde
from ks_actors.topology import Topology

Params: TypeAlias = Mapping[str, Any]

TEXT: Serde[Any] = STRING  # a null is no error anywhere here: the functions below say where they expect one
NUMBER: Serde[Any] = LONG
CONSUMED = Consumed(TEXT, TEXT)
PRODUCED = Produced(TEXT, TEXT)
GROUPED = Grouped(TEXT, TEXT)
JOINED = Joined(TEXT, TEXT, TEXT)


class Rebuilt(NamedTuple):
    """A topology of the oracle in our own words: its output topics, and its builder from a case's parameters."""

    outputs: tuple[str, ...]
    build: Callable[[Params], Topology]


REBUILT: dict[str, Rebuilt] = {}

Build: TypeAlias = Callable[[StreamsBuilder, Params], None]


def register(name: str, build: Build, *outputs: str) -> None:
    """Enter a topology that is made with the DSL."""

    def with_builder(p: Params) -> Topology:
        builder = StreamsBuilder()
        build(builder, p)
        settings = {"default_key_serde": TEXT, "default_value_serde": TEXT, "topology_optimization": p.get("optimization", "none")}
        return builder.build(StreamsConfig.of({"application_id": "app", **settings}))

    REBUILT[name] = Rebuilt(outputs, with_builder)


def rebuilds(*outputs: str) -> Callable[[Build], Build]:
    """Enter the topology that has the function's name."""

    def decorate(build: Build) -> Build:
        register(build.__name__, build, *outputs)
        return build

    return decorate


# ---- functions: null is written as "null"


def text(value: Any) -> str:
    return "null" if value is None else str(value)


def text_or_null(value: Any) -> str | None:
    return None if value is None else str(value)


def first(value: str | None) -> str | None:
    return value[0] if value else None


def zero() -> str:
    return "0"


def reduced(a: str, value: str | None) -> str | None:
    return a + "~" if value is None else None if value == "z" else a + value


def aggregated(_: str, value: str | None, a: str) -> str | None:
    return reduced(a, value)


def merged(_: str, a: str, b: str) -> str:
    return f"{a}&{b}"


def added(_: str, value: str, a: str) -> str:
    return f"{a}+{value}"


def subtracted(_: str, value: str, a: str) -> str:
    return f"{a}-{value}"


def joined(left: str | None, right: str | None) -> str:
    return f"{text(left)}-{text(right)}"


def joined_by_key(_: str | None, left: str | None, right: str | None) -> str:
    return joined(left, right)


def windowed_key(windowed: Any, _: Any) -> str:
    return f"{windowed.key}@{windowed.window.start}/{windowed.window.end}"


# ---- options


def stored(name: str, value: Serde[Any] = TEXT) -> Materialized[Any, Any]:
    """Return a store of the kind that the case's config names."""
    return Materialized(name, TEXT, value)


def stored_windows(name: str, p: Params, value: Serde[Any] = TEXT) -> Materialized[Any, Any]:
    """Return a window store, with the case's retention if it has one."""
    return Materialized(name, TEXT, value, retention_ms=p.get("retention"))


def time_windows(p: Params) -> TimeWindows:
    windows = TimeWindows.of_size_and_grace(p["size"], p["grace"])
    return windows.advance_by(p["advance"]) if "advance" in p else windows


def windows(p: Params) -> Any:
    """Return sessions where the case has a gap, sliding windows where it has a difference of times, else windows of a size."""
    if "gap" in p:
        return SessionWindows.of_inactivity_gap_and_grace(p["gap"], p["grace"])
    return SlidingWindows.of_time_difference_and_grace(p["diff"], p["grace"]) if "diff" in p else time_windows(p)


# ---- ends


def table(builder: StreamsBuilder, topic: str) -> Any:
    return builder.table(topic, CONSUMED, stored(f"{topic}-store"))


def write(table: Any, topic: str) -> None:
    table.to_stream().map_values(text_or_null).to(topic, PRODUCED)


def write_windowed(table: Any, topic: str) -> None:
    table.to_stream(windowed_key).map_values(text_or_null).to(topic, PRODUCED)


def aggregate_windows(windowed: Any, p: Params) -> Any:
    """Count, reduce or aggregate, as the case's `op` says."""
    op = p.get("op", "aggregate")
    if op == "count":
        return windowed.count(stored_windows("agg", p, NUMBER)).map_values(text_or_null)
    if op == "reduce":
        return windowed.reduce(reduced, stored_windows("agg", p))
    return windowed.aggregate(zero, aggregated, stored_windows("agg", p))


def aggregate_sessions(windowed: Any, p: Params) -> Any:
    """Do the same to sessions."""
    if p.get("op", "aggregate") == "aggregate":
        return windowed.aggregate(zero, aggregated, merged, stored_windows("agg", p))
    return aggregate_windows(windowed, p)
