"""Tables joined by a foreign key in an app: several partitions, moves of foreign keys, crashes, caches; in the end the table is the join of both."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from ks_actors import TopologyError
from ks_actors.dsl import Materialized, Repartitioned, StreamsBuilder, TableJoined
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT

pytestmark = pytest.mark.unmeasured


def foreign_key(value: str) -> str | None:
    return None if value.startswith("-") else value.partition("|")[0]


def joined(one: str, other: str | None) -> str:
    return f"{one}+{other}"


def topology(store: str = "in_memory", *, left: bool, history_ms: int | None = None) -> Topology:
    """Join `left` with `right` by what is before the bar."""
    builder = StreamsBuilder()
    one, other = (
        builder.table(topic, STRINGS, Materialized(topic, STRING, STRING, store_type=store, history_retention_ms=history_ms))  # type: ignore[arg-type]  # of two words
        for topic in ("left", "right")
    )
    join: Any = one.left_join if left else one.join
    join(other, joined, Materialized("joined", STRING, STRING), foreign_key=foreign_key, joined=TableJoined("j")).to_stream().to("out", STRINGS_OUT)
    return builder.build()


class Tables:
    """Both tables as they are to be, and the changes of them."""

    def __init__(self, harness: AppHarness, random: Random) -> None:
        self.left: dict[str, str] = {}
        self.right: dict[str, str] = {}
        self._harness = harness
        self._random = random
        self._count = 0

    async def change(self, number: int) -> None:
        """Write so many changes."""
        for _ in range(number):
            random = self._random
            self._count += 1
            if random.random() < 0.7:
                key = f"l{random.randrange(12)}"
                foreign = random.choice(["-", "r0", "r1", "r2", "r3", "r4", "none"])
                value = None if random.random() < 0.2 else f"{foreign}|{self._count}"
                await self._put("left", self.left, key, value)
            else:
                value = None if random.random() < 0.3 else f"v{self._count}"
                await self._put("right", self.right, f"r{random.randrange(5)}", value)

    async def _put(self, topic: str, table: dict[str, str], key: str, value: str | None) -> None:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        await self._harness.produce(topic, key, value)

    def joined(self, *, left: bool) -> dict[str, str]:
        """Return the join of the tables."""
        rows: dict[str, str] = {}
        for key, value in self.left.items():
            other = self.right.get(foreign_key(value) or "")
            if other is not None or left:
                rows[key] = joined(value, other)
        return rows


async def table_of(harness: AppHarness) -> dict[str, str]:
    """Return the latest value of each key of the output."""
    rows: dict[Any, Any] = {record.key: record.value for record in await harness.read("out")}
    return {key: value for key, value in rows.items() if value is not None}


def run(seed: int, built: Topology, *, left: bool, crashes: int, **config: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Change tables while the app crashes now and then; return its result and the join as it should be."""
    random = Random(seed)
    found: list[Mapping[str, str]] = []

    async def test(harness: AppHarness) -> None:
        tables = Tables(harness, random)
        for _ in range(crashes):
            await tables.change(random.randrange(1, 60))
            if random.random() < 0.7:
                await asyncio.sleep(random.choice([0.05, 0.1, 0.1001, 0.35]))
            await tables.change(random.randrange(1, 30))
            await harness.turns(random.randrange(120))
            await harness.crash()
            if random.random() < 0.2:
                harness.wipe_state()
            await harness.restart()
        await tables.change(20)
        await harness.caught_up()
        found.extend((await table_of(harness), tables.joined(left=left)))

    run_app(test, built, seed=seed, topics={"left": 3, "right": 2, "out": 2}, num_workers=1 + seed % 3, commit_interval_ms=100, **config)
    got, expected = found
    return dict(got), dict(expected)


@pytest.mark.parametrize("seed", range(4))
def test_an_inner_join_ends_as_the_join_of_both_tables(seed: int, guarantee: str) -> None:
    """The join sends the delete also where Kafka Streams drops it because the left row has changed meanwhile."""
    got, expected = run(seed, topology(left=False), left=False, crashes=4, processing_guarantee=guarantee)
    assert got == expected


@pytest.mark.parametrize("left", [False, True])
def test_a_cache_changes_nothing_in_the_end(left: bool) -> None:
    """Changes of both tables and of the result are held back until the commit."""
    got, expected = run(7, topology(left=left), left=left, crashes=3, processing_guarantee="exactly_once_v2", statestore_cache_max_bytes=1_000_000)
    assert got == expected


@pytest.mark.parametrize("left", [False, True])
def test_tables_with_a_history_are_joined_as_they_are_last(left: bool) -> None:
    """Their stores are versioned ones."""
    built = topology("rocksdb", left=left, history_ms=60_000)
    got, expected = run(5, built, left=left, crashes=3, processing_guarantee="exactly_once_v2")
    assert got == expected


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("seed", range(3))
def test_a_left_join_ends_as_the_join_of_both_tables(seed: int, guarantee: str, store: str) -> None:
    """With tables of different numbers of partitions: foreign keys move between tasks, rows come and go on both sides, and the app crashes."""
    got, expected = run(seed, topology(store, left=True), left=True, crashes=4, processing_guarantee=guarantee)
    assert got == expected


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("gone", [None, "-|1"])
def test_a_row_that_comes_back_without_a_partner_is_deleted_whichever_response_is_first(gone: str | None, seed: int) -> None:
    """The delete and the new row go to different right partitions: the response to the new row may overtake that to the delete."""
    keys = [f"k{index}" for index in range(8)]

    async def test(harness: AppHarness) -> None:
        await harness.produce("right", "r0", "x")
        for key in keys:
            await harness.produce("left", key, "r0|0")
        await harness.caught_up()
        assert await table_of(harness) == dict.fromkeys(keys, "r0|0+x")
        for index, key in enumerate(keys):
            await harness.produce("left", key, gone)
            await harness.produce("left", key, f"none{index}|2")
        await harness.caught_up()
        assert await table_of(harness) == {}

    run_app(test, topology(left=False), seed=seed, topics={"left": 3, "right": 3, "out": 2}, num_workers=1 + seed % 3, commit_interval_ms=100)


def sizes(build: Any, **topics: int) -> dict[str, int]:
    """Return the sizes of the internal topics when a left table, joined with a right one, has rows in all partitions; check the join."""
    found: dict[str, int] = {}
    builder = StreamsBuilder()
    left, right = build(builder)
    left.join(right, joined, foreign_key=foreign_key, joined=TableJoined("j")).to_stream().to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        await harness.produce("right", "r0", "x")
        keys = [f"k{index}" for index in range(12)]
        for key in keys:
            await harness.produce("left", key, "r0|0")
        await harness.caught_up()
        assert await table_of(harness) == dict.fromkeys(keys, "r0|0+x")
        described = await harness.log.describe_topics(configs=False)
        found.update({name.removeprefix("app-"): topic.partitions for name, topic in described.items() if name.startswith("app-")})

    run_app(test, builder.build(), topics={**topics, "out": 1})
    return found


def test_a_left_table_that_is_read_by_a_pattern_has_as_many_responses() -> None:
    """Each left task reads its own partition of the topic of responses. Patterns match no topic of a foreign-key join, with or without a name."""

    def build(builder: StreamsBuilder) -> tuple[Any, Any]:
        left = builder.stream(re.compile("left.*|app-.*"), STRINGS).to_table(Materialized("l", STRING, STRING))
        return left, builder.table("right", STRINGS, Materialized("r", STRING, STRING))

    found = sizes(build, left=4, right=2)
    assert found["j-subscription-response-topic"] == found["l-changelog"] == 4
    assert found["j-subscription-registration-topic"] == found["r-changelog"] == 2


@pytest.mark.parametrize("told", [2, 4])
def test_a_size_that_is_told_holds_for_the_copartitioned_topics(told: int) -> None:
    """The subscriptions go to as many partitions as the right table was given, more or fewer than the left one has."""

    def build(builder: StreamsBuilder) -> tuple[Any, Any]:
        right = builder.stream("right", STRINGS).repartition(Repartitioned(STRING, STRING, name="fixed", partitions=told))
        return builder.table("left", STRINGS, Materialized("l", STRING, STRING)), right.to_table(Materialized("r", STRING, STRING))

    found = sizes(build, left=3, right=1)
    assert found["fixed-repartition"] == found["j-subscription-registration-topic"] == told
    assert found["j-subscription-response-topic"] == 3


def test_a_size_that_is_told_must_fit_the_topics_that_it_is_joined_with() -> None:
    """As in Kafka Streams: it is not changed to theirs."""

    def build(builder: StreamsBuilder) -> tuple[Any, Any]:
        left = builder.stream("left", STRINGS).repartition(Repartitioned(STRING, STRING, name="fixed", partitions=2)).to_table()
        other = builder.table("right", STRINGS)
        return left.join(other, joined, Materialized(None, STRING, STRING)), other

    with pytest.raises(TopologyError, match=r"same number of partitions, but fixed-repartition has 2, right has 3"):
        sizes(build, left=3, right=3)
