"""Positions that survive: restarts, crashes, standbys that take over."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import serdes
from ks_actors.dsl import Materialized, StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.query import FailureReason, KeyQuery, Position, PositionBound, QueryResult, StateQueryRequest
from ks_actors.runtime import RestoreListener
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.query.helpers import COMMITTED, STRINGS, UNCOMMITTED, processed
from tests.ks_actors.runtime.helpers import GUARANTEES, feed, in_app, in_virtual_time
from tests.ks_actors.runtime.stores.standbys import active, other, settled, standing

STORES = ("rocksdb", "in_memory")
OPTIONS: dict[str, Any] = {"topics": {"in": 1}, "commit_interval_ms": 5_000, "wall_clock_ms": 1_000_000}


def counts(store: Any = "rocksdb", **options: Any) -> Topology:
    """Count by key the values other than `-`."""
    builder = StreamsBuilder()
    kept = builder.stream("in", STRINGS).filter(lambda _, value: value != "-")
    kept.group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG, store_type=store, **options))
    return builder.build()


async def ask(harness: AppHarness, at: int | None = None, level: Any = COMMITTED, key: str = "a") -> QueryResult[Any]:
    """Ask the only partition for a count, bounded by an offset of the input."""
    bound = PositionBound.unbounded() if at is None else PositionBound.at(Position.of({"in": {0: at}}))
    found = await harness.app.query(StateQueryRequest(store="counts", query=KeyQuery(key), bound=bound, isolation=level))
    return found.partition_results[0]


def last(answer: QueryResult[Any]) -> int | None:
    return answer.position.partitions("in").get(0)


async def anew(harness: AppHarness) -> None:
    await harness.close()
    await harness.start()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("store", STORES)
@in_app(lambda store: counts(store), num_standby_replicas=1, **OPTIONS)
async def test_a_standby_knows_its_position(harness: AppHarness, store: str, guarantee: str) -> None:
    """The changelog gives its position: it meets the bounds up to there, and answers NOT_UP_TO_BOUND to others."""
    async with other(harness) as second:
        await settled(harness.kit)
        one, two = (harness, second) if active(harness) else (second, harness)
        assert standing(two) == {"0_0"}
        assert last(await ask(two)) is None
        at: int | None = None
        for number in range(4):
            await harness.produce("in", "a", "v")
            await one.app.wait_until_caught_up()
            await one.app.commit()
            await settled(harness.kit)
            at = last(await ask(one))
            assert at is not None
            assert last(await ask(two)) == at
            answer = await ask(two, at)
            assert answer.value == number + 1
            assert (await ask(two, at + 1)).failure is FailureReason.NOT_UP_TO_BOUND
        assert at is not None
        # A record that changes nothing is part of what is reached, and not of what is told: a standby never hears of it.
        await harness.produce("in", "a", "-")
        await one.app.wait_until_caught_up()
        await one.app.commit()
        await settled(harness.kit)
        assert (await ask(one, at + 1)).value == 4
        assert last(await ask(one, at + 1)) == at == last(await ask(two))
        assert (await ask(two, at)).value == 4


@pytest.mark.parametrize("store", STORES)
@in_app(lambda store: counts(store), num_standby_replicas=1, **OPTIONS)
async def test_a_position_is_handed_over(harness: AppHarness, store: str) -> None:
    """A standby that takes over, and a task that becomes a standby, are never behind the reported position of their last commit."""
    await feed(harness, "in", "a", "v")
    await harness.app.commit()
    async with other(harness) as second:
        await settled(harness.kit)
        for number in range(3):
            one, two = (harness, second) if active(harness) else (second, harness)
            await harness.produce("in", "a", "v")
            await one.app.wait_until_caught_up()
            await one.app.commit()
            await settled(harness.kit)
            at = last(await ask(one))
            assert at is not None
            assert (await ask(two, at)).value == number + 2
            if number < 2:
                await anew(one)
                await harness.kit.clock.advance(60)
                await settled(harness.kit)
                for each in (harness, second):
                    assert (await ask(each, at)).value == number + 2
                    assert last(await ask(each)) == at


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("crash", [False, True])
@in_virtual_time
async def test_a_bound_holds_after_a_restart(crash: bool, guarantee: str) -> None:
    """A committed position is met at once, another one is not, until its work is done again; while it restores, a store is where its database is."""
    seen: list[int | None] = []

    class Looks(RestoreListener):
        """Look at the position when a restore has begun."""

        def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
            seen.extend(registered.position("counts", committed=True).get(("in", 0)) for registered in run[0].app._registry)

    run: list[AppHarness] = []
    async with AppHarness(counts(), processing_guarantee=guarantee, restore_listener=Looks(), start=False, **OPTIONS) as harness:
        run.append(harness)
        await harness.start()
        for _ in range(3):
            await harness.produce("in", "a", "v")
        await harness.caught_up()
        await harness.app.commit()
        at = last(await ask(harness))
        assert at is not None
        await anew(harness)  # what is on disk is that commit
        assert last(await ask(harness)) == at
        await harness.produce("in", "a", "v")
        await processed(harness)
        live = last(await ask(harness, level=UNCOMMITTED))
        assert live is not None
        assert live > at
        assert (await ask(harness, live)).failure is FailureReason.NOT_UP_TO_BOUND
        assert (await ask(harness, live, UNCOMMITTED)).value == 4
        if crash:
            await harness.crash()
            await harness.start()
        else:
            await anew(harness)
        answer = await ask(harness, live)
        assert (answer.failure is FailureReason.NOT_UP_TO_BOUND) is crash
        assert (await ask(harness, at)).value == (3 if crash else 4)
        await harness.caught_up()
        await harness.app.commit()
        assert (await ask(harness, live)).value == 4
        assert seen[:3] == [None, at, at if crash else live]


@pytest.mark.parametrize("store", STORES)
@in_app(lambda store: counts(store, logging=False), **OPTIONS)
async def test_stores_without_a_changelog_do_not_claim_lost_positions(harness: AppHarness, store: str) -> None:
    """A store on disk has its position there; one in memory has none after a restart, until it changes, with any committed offsets of the group."""
    await feed(harness, "in", "a", "v")
    await harness.app.commit()
    at = last(await ask(harness))
    assert at is not None
    await anew(harness)
    answer = await ask(harness, at)
    if store == "rocksdb":
        assert answer.value == 1
    else:
        assert answer.failure is FailureReason.NOT_UP_TO_BOUND
    await harness.produce("in", "b", "v")
    await processed(harness)
    assert (await ask(harness, at, UNCOMMITTED)).value == (1 if store == "rocksdb" else None)
    await harness.app.commit()
    assert (await ask(harness, at, key="b")).value == 1


@in_virtual_time
async def test_cached_updates_are_not_part_of_a_position() -> None:
    """A store behind a cache is where the last commit was as long as the cache holds something; the store of the cache has it all."""
    builder = StreamsBuilder()
    table = builder.stream("in", STRINGS).group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG))
    texts = table.map_values(str, Materialized("texts", serdes.STRING, serdes.STRING))
    texts.join(table, lambda text, count: f"{text}{count}")
    async with AppHarness(builder.build(), statestore_cache_max_bytes=1 << 20, **OPTIONS) as harness:

        async def ask_texts(at: int) -> QueryResult[Any]:
            bound = PositionBound.at(Position.of({"in": {0: at}}))
            request = StateQueryRequest(store="texts", query=KeyQuery("a"), bound=bound, isolation=UNCOMMITTED)
            return (await harness.app.query(request)).partition_results[0]

        await harness.produce("in", "a", "v")
        await processed(harness)
        await harness.app.commit()
        assert (await ask_texts(0)).value == "1"
        await harness.produce("in", "a", "v")
        await processed(harness)
        assert (await ask(harness, 1, UNCOMMITTED)).value == 2
        assert (await ask_texts(1)).failure is FailureReason.NOT_UP_TO_BOUND
        assert (await ask_texts(0)).value == "1"
        await harness.app.commit()
        assert (await ask_texts(1)).value == "2"
