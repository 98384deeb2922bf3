"""Joins by a foreign key against a model in memory: any changes, crashes, workers and instances that come and go, on several partitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors.dsl import Grouped, Materialized, Produced, StreamsBuilder, TableJoined
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import EOS, STRINGS

pytestmark = pytest.mark.unmeasured

SHAPES = ("join", "left_join", "self", "chain", "counted")
LEFT = [f"l{index}" for index in range(6)]
RIGHT = [f"r{index}" for index in range(4)]


def foreign_key(value: str) -> str | None:
    """Return what is before the bar, None for nothing."""
    return value.rpartition("+")[2].partition("|")[0] or None


def joined(one: str, other: str | None) -> str:
    return f"{one}+{other or '|'}"


def place(_topic: str, key: str | None, _value: None, count: int) -> int | None:
    return None if key is None else sum(key.encode()) % count


def topology(shape: str, *, placed: bool) -> Topology:
    """Return the join of this shape; `placed` topics are written, and joined, by a partitioner of the user's."""
    builder = StreamsBuilder()
    left, right = (builder.table(topic, STRINGS, Materialized(topic, STRING, STRING)) for topic in ("left", "right"))

    def options(name: str) -> TableJoined[str, str]:
        return TableJoined(name, place, place) if placed else TableJoined(name)

    both = Materialized[str, str]("joined", STRING, STRING)
    match shape:
        case "join" | "counted":
            rows = left.join(right, joined, both, foreign_key=foreign_key, joined=options("j"))
        case "left_join":
            rows = left.left_join(right, joined, both, foreign_key=lambda _, value: foreign_key(value), joined=options("j"))
        case "self":
            rows = left.left_join(left, joined, both, foreign_key=foreign_key, joined=options("j"))
        case _:
            first: Any = left.join(right, joined, both, foreign_key=foreign_key, joined=options("j"))
            rows = first.join(right, joined, Materialized("twice", STRING, STRING), foreign_key=foreign_key, joined=options("k"))
    if shape == "counted":
        grouped = rows.group_by(lambda _, value: (value.partition("+")[2], value), Grouped(STRING, STRING, name="by-right"))
        grouped.count(Materialized("counts", STRING, LONG)).to_stream().to("out", Produced(STRING, LONG))
    else:
        rows.to_stream().to("out", Produced(STRING, STRING))
    return builder.build()


def model(shape: str, left: dict[str, str], right: dict[str, str]) -> dict[str, Any]:
    """Return the rows that must be in the output in the end."""

    def join(one: dict[str, str], other: dict[str, str], *, outer: bool) -> dict[str, str]:
        pairs = ((key, value, other.get(foreign_key(value) or "")) for key, value in one.items())
        return {key: joined(value, found) for key, value, found in pairs if outer or found is not None}

    match shape:
        case "self":
            return join(left, left, outer=True)
        case "left_join":
            return join(left, right, outer=True)
        case "chain":
            return join(join(left, right, outer=False), right, outer=False)
        case "counted":
            return dict(Counter(value.partition("+")[2] for value in join(left, right, outer=False).values()))
        case _:
            return join(left, right, outer=False)


KEYS = st.sampled_from([*RIGHT, *LEFT[:3], "none", ""])
CHANGES = st.one_of(
    st.tuples(st.just("left"), st.sampled_from(LEFT), st.one_of(st.none(), KEYS)),
    st.tuples(st.just("left"), st.sampled_from(LEFT), KEYS),
    st.tuples(st.just("right"), st.sampled_from(RIGHT), st.one_of(st.none(), KEYS)),
)
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["turns", "sleep"]), st.integers(0, 120), st.none()),
    st.tuples(st.sampled_from(["settle", "crash", "worker", "instance"]), st.none(), st.none()),
)
STEPS = st.lists(st.one_of(CHANGES, CHANGES, CHANGES, EVENTS), max_size=40)


class Run:
    """One app, with the tables as they must be."""

    def __init__(self, harness: AppHarness, stack: AsyncExitStack, sizes: dict[str, int], *, placed: bool) -> None:
        self.tables: dict[str, dict[str, str]] = {"left": {}, "right": {}}
        self._harness = harness
        self._stack = stack
        self._sizes = sizes
        self._placed = placed
        self._count = 0
        self._more = False

    async def step(self, kind: str, key: Any, value: str | None) -> None:
        """Change a row, or let something happen."""
        harness = self._harness
        match kind:
            case "left" | "right":
                await self._put(kind, key, value)
            case "turns":
                await harness.turns(key)
            case "sleep":
                await asyncio.sleep(key / 1000)
            case "settle":
                await harness.caught_up()
            case "crash":
                await harness.crash()
                self._more = False
                await harness.restart()
            case "worker":
                self._more = not self._more
                await (harness.add_worker() if self._more else harness.remove_worker())
            case _:
                await self._stack.aclose()
                if value is None and self._count % 2:
                    await self._stack.enter_async_context(harness.another())

    async def _put(self, topic: str, key: str, value: str | None) -> None:
        self._count += 1
        written = None if value is None else f"{value}|{self._count}"
        if written is None:
            self.tables[topic].pop(key, None)
        else:
            self.tables[topic][key] = written
        partition = place(topic, key, None, self._sizes[topic]) if self._placed else None
        await self._harness.produce(topic, key, written, partition=partition)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=examples(6))
@given(data=st.data())
def test_a_join_ends_as_the_model(shape: str, data: st.DataObject) -> None:
    """Tables joined with themselves, twice, counted or repartitioned end as the model, whatever changes come between, once each."""
    sizes = {"left": data.draw(st.integers(1, 3)), "right": data.draw(st.integers(1, 3))}
    placed, steps, cached = data.draw(st.booleans()), data.draw(STEPS), data.draw(st.booleans())

    async def test(harness: AppHarness) -> None:
        async with AsyncExitStack() as stack:
            run = Run(harness, stack, sizes, placed=placed)
            for step in steps:
                await run.step(*step)
            await harness.caught_up()
            rows = {record.key: record.value for record in await harness.read("out")}
            found = {key: value for key, value in rows.items() if value}
            assert found == model(shape, run.tables["left"], run.tables["right"])

    run_app(
        test,
        topology(shape, placed=placed),
        topics={**sizes, "out": 2},
        seed=data.draw(st.integers(0, 99)),
        processing_guarantee=EOS,
        commit_interval_ms=100,
        statestore_cache_max_bytes=100_000 if cached else 0,
    )
