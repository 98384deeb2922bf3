"""Typed readers of stores."""

from __future__ import annotations

from typing import assert_type

import pytest

from ks_actors import GlobalTable, QueryableStore, QueryFailed, StreamsBuilder, Table, TopologyError, UnknownStore, ValueAndTimestamp, Windowed
from ks_actors.dsl import Consumed, Grouped, Materialized, TimeWindows
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, TestRecord
from tests.ks_actors.runtime.helpers import feed_all, in_virtual_time

TOPICS = {"in": 1, "names": 1}


class Tables:
    """A topology with a table of each kind."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder()
        grouped = self.builder.stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
        self.counts: Table[str, int] = grouped.count(Materialized("counts", STRING, LONG))
        windows = grouped.windowed_by(TimeWindows.of_size_with_no_grace(1_000))
        self.minutes: Table[Windowed[str], int] = windows.count(Materialized("minutes", STRING, LONG))
        self.many: Table[Windowed[str], int] = self.minutes.filter(lambda _, count: count > 1, materialized=Materialized("many"))
        self.names: GlobalTable[str, str] = self.builder.global_table("names", Consumed(STRING, STRING), Materialized("names"))


@in_virtual_time
async def test_the_answers_of_typed_readers_have_the_types_of_the_table() -> None:
    """By serdes or by the table itself; with timestamps too; windows are asked by plain keys."""
    tables = Tables()
    async with AppHarness(tables.builder.build(), topics=TOPICS) as harness:
        await feed_all(harness, "in", [TestRecord("a", "x", 5), TestRecord("a", "y", 6)])
        app = harness.app
        assert assert_type(await app.store("counts", STRING, LONG).get("a"), int | None) == 2
        counts = app.store(tables.counts.queryable())
        assert assert_type(await counts.get("a"), int | None) == 2
        assert assert_type(await counts.range(None, None), list[tuple[str, int]]) == [("a", 2)]
        timed = app.store("counts", STRING, LONG, timestamped=True)
        assert assert_type(await timed.get("a"), ValueAndTimestamp[int] | None) == ValueAndTimestamp(2, 6)
        minutes = app.store(assert_type(tables.minutes.queryable(), QueryableStore[str, int]))
        assert assert_type(await minutes.fetch("a", 0), int | None) == 2
        assert assert_type(await minutes.fetch("a", 0, 10), list[tuple[int, int]]) == [(0, 2)]
        names = app.store(tables.names.queryable())
        assert assert_type(await names.get("a"), str | None) is None


@in_virtual_time
async def test_serdes_that_are_not_the_stores_are_refused() -> None:
    """The error names both, before anything is read; an unknown store is an error of its own."""
    tables = Tables()
    async with AppHarness(tables.builder.build(), topics=TOPICS) as harness:
        app = harness.app
        with pytest.raises(QueryFailed, match="store counts has values by <Serde LONG>, not by <Serde STRING>: give its own serdes"):
            app.store("counts", STRING, STRING)
        with pytest.raises(QueryFailed, match="store counts has keys by <Serde STRING>, not by <Serde LONG>"):
            app.store("counts", LONG, LONG)
        with pytest.raises(QueryFailed, match=r"store many has keys by .*, not by <Serde STRING>"):
            app.store("many", STRING, LONG)
        assert await app.store(tables.many.queryable()).all() == []
        with pytest.raises(UnknownStore):
            app.store("none", STRING, LONG)


def test_a_table_without_a_named_store_has_no_reader() -> None:
    """The error says how to name one; the repr of a store has its name."""
    builder = StreamsBuilder()
    table = builder.table("in", Consumed(STRING, STRING))
    with pytest.raises(TopologyError, match="name one with Materialized"):
        table.queryable()
    named = builder.table("names", Consumed(STRING, STRING), Materialized("named"))
    assert repr(named.queryable()) == "<QueryableStore named>"
