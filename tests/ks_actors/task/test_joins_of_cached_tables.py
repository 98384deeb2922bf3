"""Joins of tables whose updates a cache holds back: a join sees the rows of both ahead of their updates."""

from __future__ import annotations

from random import Random
from typing import Literal

import pytest

from ks_actors import Consumed, Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import in_app

Kind = Literal["join", "left_join", "outer_join"]
Rows = dict[str, str]
CACHE = {"statestore_cache_max_bytes": 1_000_000, "commit_interval_ms": 60_000}


def joined(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def topology(kind: Kind, *, counted: bool = False) -> Topology:
    """Join two tables; `counted` stores the join without a cache, and counts its rows."""
    builder = StreamsBuilder()
    left, right = (builder.table(topic, Consumed(STRING, STRING), Materialized(topic, STRING, STRING)) for topic in ("left", "right"))
    store = Materialized[str, str]("both", STRING, STRING, caching=False) if counted else None
    both = getattr(left, kind)(right, joined, store)
    if counted:
        both = both.group_by(lambda _, value: ("all", value), Grouped(STRING, STRING)).count().map_values(str)
    both.to_stream().to("out", Produced(STRING, STRING))
    return builder.build()


def model(kind: Kind, left: Rows, right: Rows) -> Rows:
    keys = {"join": left.keys() & right.keys(), "left_join": set(left), "outer_join": left.keys() | right.keys()}[kind]
    return {key: joined(left.get(key), right.get(key)) for key in keys}


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("seed", range(3))
@in_app(lambda kind, counted: topology(kind, counted=counted), topics={"left": 1, "right": 1, "out": 1}, **CACHE)
async def test_the_result_ends_as_the_join_of_both_tables(harness: AppHarness, kind: Kind, counted: bool, seed: int) -> None:
    """Any changes on both sides may come between two flushes; a count of a stored join is that of its rows."""
    random = Random(f"{kind} {seed}")
    tables: dict[str, Rows] = {"left": {}, "right": {}}
    for time in range(12):
        await harness.app.pause()
        for _ in range(random.randrange(1, 6)):
            topic, key = random.choice(("left", "right")), random.choice("abc")
            value = random.choice((None, None, f"{time}", f"{time}'"))
            await harness.produce(topic, key, value, time)
            tables[topic].pop(key, None)
            if value is not None:
                tables[topic][key] = value
        await harness.turns(20)
        await harness.app.resume()
        await harness.caught_up()
        await harness.app.commit()
        rows = {record.key: record.value for record in await harness.read("out")}
        expected = model(kind, tables["left"], tables["right"])
        if counted:
            assert int(str(rows.get("all", 0))) == len(expected)
        else:
            assert {key: value for key, value in rows.items() if value is not None} == expected


def test_kafka_streams_keeps_a_row_that_both_tables_delete_between_two_flushes() -> None:
    """By the setting `kafka_streams_faults`; without, the result is deleted."""

    async def test(harness: AppHarness) -> list[object]:
        for value in ("x", None):
            await harness.app.pause()
            for topic in ("left", "right"):
                await harness.produce(topic, "k", value, 1)
            await harness.turns(20)
            await harness.app.resume()
            await harness.caught_up()
            await harness.app.commit()
        return [record.value for record in await harness.read("out")]

    for faults in (False, True):
        values = run_app(test, topology("join"), topics={"left": 1, "right": 1, "out": 1}, kafka_streams_faults=faults, **CACHE)
        assert (values[-1] is None) is not faults
