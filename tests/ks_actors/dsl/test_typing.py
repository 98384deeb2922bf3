"""Types that operations give; the type checker does the test, and a run only shows that the calls are real."""

from __future__ import annotations

from typing import Any, assert_type

from ks_actors.dsl import (
    Consumed,
    GlobalTable,
    GroupedStream,
    SessionWindowedCogroupedStream,
    SessionWindowedStream,
    SessionWindows,
    Stream,
    StreamsBuilder,
    Table,
    Windowed,
)
from ks_actors.processors import FixedKeyProcessor, FixedKeyRecord, Processor, Record
from ks_actors.serdes import LONG, STRING


class Length(Processor[str, int, int, str]):
    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_key(1).with_value("x"))


class Text(FixedKeyProcessor[str, int, str]):
    def process(self, record: FixedKeyRecord[str, int]) -> None:
        self.context.forward(record.with_value("x"))


async def later(value: int) -> bytes:
    return b""


async def later_with_key(key: str, value: int) -> bytes:
    return b""


async def pair_later(key: str, value: int) -> tuple[int, bytes]:
    return 1, b""


async def pairs_later(key: str, value: int) -> list[tuple[int, bytes]]:
    return []


async def values_later(value: int) -> list[bytes]:
    return []


async def many_later(records: list[Record[str, int]]) -> list[Record[int, bytes]]:
    return []


def many(records: list[Record[str, int]]) -> list[Record[str, bytes]]:
    return []


def test_operations_have_precise_types() -> None:
    """Keys and values are followed through functions, plain and async, with and without the key."""
    b = StreamsBuilder()
    s = b.stream("in", Consumed(STRING, LONG))
    assert_type(s, Stream[str, int])
    assert_type(b.stream("other"), Stream[Any, Any])
    assert_type(s.filter(lambda key, value: value > 1 and key.islower()), Stream[str, int])
    assert_type(s.map_values(lambda value: str(value)), Stream[str, str])
    assert_type(s.batch(many_later), Stream[int, bytes])
    assert_type(s.batch(many), Stream[str, bytes])
    assert_type(s.batch(lambda records: [record.with_value("x") for record in records]), Stream[str, str])
    assert_type(s.map_values(lambda key, value: key * value), Stream[str, str])
    assert_type(s.map_values(float), Stream[str, float])
    assert_type(s.map_values(later, max_in_flight=3), Stream[str, bytes])
    assert_type(s.map_values(later_with_key), Stream[str, bytes])
    assert_type(s.map(lambda key, value: (value, key)), Stream[int, str])
    assert_type(s.map(pair_later), Stream[int, bytes])
    assert_type(s.flat_map(lambda key, value: [(value, key)]), Stream[int, str])
    assert_type(s.flat_map(pairs_later), Stream[int, bytes])
    assert_type(s.flat_map_values(lambda value: [str(value)]), Stream[str, str])
    assert_type(s.flat_map_values(lambda key, value: [key.encode()] * value), Stream[str, bytes])
    assert_type(s.flat_map_values(values_later), Stream[str, bytes])
    assert_type(s.select_key(lambda key, value: len(key) + value), Stream[int, int])
    assert_type(s.select_key(later_with_key), Stream[bytes, int])
    assert_type(s.split().branch(lambda key, value: value > 1).default_branch(), dict[str, Stream[str, int]])
    assert_type(s.group_by(lambda key, value: value), GroupedStream[int, int])
    assert_type(s.group_by_key(), GroupedStream[str, int])
    assert_type(s.process(Length), Stream[int, str])
    assert_type(s.process_values(Text), Stream[str, str])
    assert_type(s.to_table(), Table[str, int])


def test_sessions_have_precise_types() -> None:
    """Keys are windowed, and aggregates are followed through the merger."""
    windows = SessionWindows.of_inactivity_gap_with_no_grace(5)
    grouped = StreamsBuilder().stream("in", Consumed(STRING, LONG)).group_by_key()
    sessions = grouped.windowed_by(windows)
    assert_type(sessions, SessionWindowedStream[str, int])
    assert_type(sessions.count(), Table[Windowed[str], int])
    assert_type(sessions.reduce(lambda one, other: one + other), Table[Windowed[str], int])
    assert_type(sessions.aggregate(float, added_or_none, summed), Table[Windowed[str], float])
    cogrouped = grouped.cogroup(added_or_none).windowed_by(windows)
    assert_type(cogrouped, SessionWindowedCogroupedStream[str, float])
    assert_type(cogrouped.aggregate(float, summed), Table[Windowed[str], float])


def summed(_: str, one: float, other: float) -> float:
    return one + other


def added_or_none(key: str, value: int, aggregate: float) -> float | None:
    return aggregate + value if key else None


def test_joins_have_precise_types() -> None:
    """Missing sides may be None; a global table has keys of its own."""
    b = StreamsBuilder()
    s = b.stream("in", Consumed(STRING, LONG))
    t = b.table("t", Consumed(STRING, STRING))
    g = b.global_table("g", Consumed(LONG, STRING))
    assert_type(g, GlobalTable[int, str])
    assert_type(s.join(t, lambda left, right: right * left), Stream[str, str])
    assert_type(s.join(t, lambda key, left, right: len(key + right) + left), Stream[str, int])
    assert_type(s.left_join(t, lambda left, right: left if right is None else len(right)), Stream[str, int])
    assert_type(s.join(g, lambda key, value: value, lambda left, right: (left, right)), Stream[str, tuple[int, str]])
    assert_type(s.left_join(g, lambda key, value: value, lambda key, left, right: right or key), Stream[str, str])
    assert_type(
        s.join(g, lambda key, value: value, lambda key, mapped, left, right: (key, mapped, left, right)), Stream[str, tuple[str, int, int, str]]
    )
    assert_type(s.left_join(g, lambda key, value: value, lambda key, mapped, left, right: mapped), Stream[str, int | None])


def test_joins_of_tables_have_precise_types() -> None:
    """Their joiners may take the key, and both keys where there is a foreign one."""
    b = StreamsBuilder()
    one = b.table("one", Consumed(STRING, LONG))
    two = b.table("two", Consumed(STRING, STRING))
    foreign = b.table("foreign", Consumed(LONG, STRING))
    assert_type(one.join(two, lambda left, right: right * left), Table[str, str])
    assert_type(one.join(two, lambda key, left, right: (key, left, right)), Table[str, tuple[str, int, str]])
    assert_type(one.left_join(two, lambda key, left, right: right or key), Table[str, str])
    assert_type(one.outer_join(two, lambda left, right: (left, right)), Table[str, tuple[int | None, str | None]])
    assert_type(one.outer_join(two, lambda key, left, right: (key, left)), Table[str, tuple[str, int | None]])
    assert_type(one.join(foreign, lambda left, right: right * left, foreign_key=lambda value: value), Table[str, str])
    assert_type(one.join(foreign, lambda key, left, right: (key, left), foreign_key=lambda value: value), Table[str, tuple[str, int]])
    both = one.join(foreign, lambda key, other, left, right: (key, other, left, right), foreign_key=lambda key, value: value + len(key))
    assert_type(both, Table[str, tuple[str, int, int, str]])
    assert_type(one.left_join(foreign, lambda key, other, left, right: other, foreign_key=lambda value: value), Table[str, int])
