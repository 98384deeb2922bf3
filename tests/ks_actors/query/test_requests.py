"""Requests with bounds, positions, and results by partition."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ks_actors import Materialized, NotRunning, QueryFailed, StreamsBuilder, ValueAndTimestamp, VersionedRecord, Window, Windowed, serdes
from ks_actors.query import (
    FailureReason,
    KeyQuery,
    LagInfo,
    MultiVersionedKeyQuery,
    Position,
    PositionBound,
    PrefixQuery,
    Query,
    QueryResult,
    RangeQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    StateQueryRequest,
    StateQueryResult,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    _scan,
)
from ks_actors.records._partitioner import partition as partition_of
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import StoreType
from tests.ks_actors.query.helpers import COMMITTED, ENGINES, SECOND, STRINGS, UNCOMMITTED, everything, put
from tests.ks_actors.runtime.helpers import feed_all, in_virtual_time, provided

HOME = partition_of(b"a", 3)
OPTIONS: dict[str, Any] = {"topics": {"in": 3}, "commit_interval_ms": 600_000}


def test_positions_are_values() -> None:
    """Positions are merged to the higher offset of each partition, compared by content, and travel as JSON."""
    one, other = Position.of({"a": {0: 5, 1: 2}}), Position.of({"a": {0: 3, 2: 1}, "b": {0: 9}})
    merged = one.merge(other)
    assert merged == Position.of({"a": {0: 5, 1: 2, 2: 1}, "b": {0: 9}}) == other.merge(one)
    assert hash(merged) == hash(other.merge(one))
    assert (one, other) == (Position.of({"a": {0: 5, 1: 2}}), Position.of({"a": {0: 3, 2: 1}, "b": {0: 9}}))
    assert merged.topics == {"a", "b"}
    assert dict(merged.partitions("b")) == {0: 9}
    assert dict(merged.partitions("c")) == {}
    assert one.with_component("a", 0, 4) == one
    assert one.with_component("a", 0, 6).partitions("a")[0] == 6
    assert not Position.empty()
    assert Position.empty() != {}
    travelled = json.loads(json.dumps({topic: dict(within) for topic, within in merged.offsets.items()}))
    assert Position.of(travelled) == merged
    assert eval(repr(merged)) == merged  # noqa: S307 - our own


def test_bounds_speak_of_their_own_partitions() -> None:
    """A bound holds for the partitions that it names; a position that does not know one of them has not reached it."""
    bound = PositionBound.at(Position.of({"a": {0: 5, 1: 2}}))
    assert bound.admits(Position.of({"a": {0: 5}}), 0)
    assert not bound.admits(Position.of({"a": {0: 4}}), 0)
    assert not bound.admits(Position.of({"b": {0: 9}}), 0)
    assert bound.admits(Position.empty(), 2)
    assert PositionBound.unbounded().admits(Position.empty(), 0)
    assert PositionBound.unbounded().is_unbounded
    assert bound == PositionBound.at(Position.of({"a": {0: 5, 1: 2}})) != PositionBound.unbounded()
    assert len({bound, PositionBound.at(Position.of({"a": {0: 5, 1: 2}})), PositionBound.unbounded()}) == 2
    assert repr(PositionBound.unbounded()) == "PositionBound.unbounded()"
    assert repr(bound) == "PositionBound.at(Position.of({'a': {0: 5, 1: 2}}))"


def test_results_have_a_readable_repr() -> None:
    """A failed result has no value, and a request that is to match in one partition has one result."""
    found, nothing = QueryResult("v", position=Position.of({"a": {0: 1}})), QueryResult[str](None)
    failed = QueryResult[str](None, FailureReason.NOT_PRESENT, "it is elsewhere")
    with pytest.raises(QueryFailed, match="it is elsewhere") as raised:
        _ = failed.value
    assert raised.value.reason is FailureReason.NOT_PRESENT
    assert (found.is_success, nothing.is_success, failed.is_success) == (True, True, False)
    assert StateQueryResult({0: found, 1: nothing, 2: failed}).only_partition_result is found
    assert StateQueryResult({1: nothing, 2: failed}).only_partition_result is None
    with pytest.raises(ValueError, match="2 partitions have a result"):
        _ = StateQueryResult({0: found, 1: found}).only_partition_result
    assert repr(failed) == "<QueryResult NOT_PRESENT: it is elsewhere, Position.of({})>"
    assert "value='v'" in repr(StateQueryResult({0: found}))
    assert StateQueryResult({}, found).position == found.position
    assert LagInfo(3, 10).offset_lag == 7
    assert LagInfo(11, 10).offset_lag == 0


def with_values(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test with a value of `a` that is committed and one that is not, each of them the only record but for `c`."""

    def run(**given: Any) -> None:
        async def main(harness: AppHarness) -> None:
            await put(harness, a="a1", c="c1")
            await harness.app.commit()
            await put(harness, a="a2")
            await test(harness, **given)

        run_app(main, everything(given.get("engine", "in_memory")), **OPTIONS)

    return provided(test, run)


@pytest.mark.parametrize("engine", ENGINES)
@with_values
async def test_each_query_is_answered_by_partition(harness: AppHarness, engine: StoreType) -> None:
    """All queries there are, by the level of isolation that is asked for, and the app's when none is."""

    async def ask(store: str, query: Query[Any], isolation: Any = None) -> Any:
        result = (await harness.app.query(StateQueryRequest(store=store, query=query, isolation=isolation))).partition_results
        assert result.keys() == {0, 1, 2}
        return result[HOME].value

    for level, value in ((COMMITTED, "a1"), (UNCOMMITTED, "a2"), (None, "a2")):
        timed = ValueAndTimestamp(value, SECOND + 5)
        assert await ask("plain", KeyQuery("a"), level) == value
        assert await ask("plain", KeyQuery("nobody"), level) is None
        assert await ask("timed", TimestampedKeyQuery("a"), level) == timed
        assert ("a", value) in await ask("timed", RangeQuery(), level)
        assert await ask("timed", TimestampedRangeQuery("a", "a"), level) == [("a", timed)]
        assert await ask("plain", PrefixQuery("a"), level) == [("a", value)]
        rows = await ask("plain", RangeQuery(), level)
        assert await ask("plain", RangeQuery(descending=True), level) == rows[::-1]
        assert await ask("window", WindowKeyQuery("a", 0, 9 * SECOND), level) == [(SECOND, value)]
        version = VersionedRecord([value], SECOND + 5)
        assert await ask("versioned", VersionedKeyQuery("a"), level) == version
        assert await ask("versioned", VersionedKeyQuery("a", SECOND + 4), level) is None
        assert await ask("versioned", MultiVersionedKeyQuery("a", SECOND, 9 * SECOND, descending=True), level) == [version]
        session = (Windowed("a", Window(SECOND, SECOND + 5)), value)
        assert await ask("session", SessionKeyQuery("a"), level) == [session]
        assert await ask("session", SessionKeyQuery("a", SECOND + 6), level) == []
        assert await ask("session", SessionRangeQuery("a", "b", 0, SECOND), level) == [session]
        assert (("a", SECOND), value) in await ask("window", WindowRangeQuery(0, 9 * SECOND), level)


@with_values
async def test_a_query_of_another_kind_is_unknown(harness: AppHarness) -> None:
    """A store that does not support a query answers UNKNOWN_QUERY_TYPE, for any author of the query."""

    class Riddle(Query[str]):
        """Not known to any store."""

    for store, query in (
        ("plain", Riddle()),
        ("window", Riddle()),
        ("plain", WindowRangeQuery(0, 1)),
        ("plain", TimestampedKeyQuery("a")),
        ("plain", TimestampedRangeQuery()),
        ("window", KeyQuery("a")),
        ("timed-window", TimestampedKeyQuery("a")),
    ):
        result: StateQueryResult[Any] = await harness.app.query(StateQueryRequest(store=store, query=query))
        assert {one.failure for one in result.partition_results.values()} == {FailureReason.UNKNOWN_QUERY_TYPE}


@with_values
async def test_partitions_that_are_asked_for_answer_each_for_itself(harness: AppHarness) -> None:
    """One that is elsewhere is NOT_PRESENT, one that no instance has DOES_NOT_EXIST, and the others answer."""
    async with harness.another():
        await harness.kit.clock.advance(5)
        here = {task.partition for task in harness.app._metrics.tasks}
        request = StateQueryRequest(store="plain", query=RangeQuery(), partitions=frozenset((0, 1, 2, 3)), execution_info=True)
        results = (await harness.app.query(request)).partition_results
        assert {number for number, one in results.items() if one.is_success} == here
        assert {number for number, one in results.items() if one.failure is FailureReason.NOT_PRESENT} == {0, 1, 2} - here
        assert results[3].failure is FailureReason.DOES_NOT_EXIST
        assert results[3].message == "store plain has no partition 3: it has 3"
        assert all("active" in results[number].execution_info[0] for number in here)
        assert (await harness.app.query(StateQueryRequest(store="plain", query=RangeQuery()))).partition_results.keys() == here


@pytest.mark.parametrize("engine", ENGINES)
@with_values
async def test_a_bound_is_held_against_the_position_of_the_level(harness: AppHarness, engine: StoreType) -> None:
    """Uncommitted changes count for READ_UNCOMMITTED only; a commit makes them count for both. A reported position is met."""

    async def ask(isolation: Any, bound: PositionBound, **options: Any) -> QueryResult[Any]:
        request = StateQueryRequest(store="plain", query=KeyQuery("a"), isolation=isolation, bound=bound, **options)
        return (await harness.app.query(request)).partition_results[HOME]

    unbounded = PositionBound.unbounded()
    first, last = (await ask(COMMITTED, unbounded)).position, (await ask(UNCOMMITTED, unbounded)).position
    assert last.partitions("in")[HOME] == first.partitions("in")[HOME] + 1
    assert (await ask(UNCOMMITTED, PositionBound.at(last))).value == "a2"
    assert (await ask(COMMITTED, PositionBound.at(first))).value == "a1"
    behind = await ask(COMMITTED, PositionBound.at(last))
    assert behind.failure is FailureReason.NOT_UP_TO_BOUND
    assert behind.position == first
    assert "not yet up to PositionBound.at" in behind.message
    scanned = await harness.app.query(StateQueryRequest(store="plain", query=RangeQuery(), isolation=COMMITTED, bound=PositionBound.at(last)))
    assert scanned.partition_results[HOME].failure is FailureReason.NOT_UP_TO_BOUND
    assert (await ask(COMMITTED, PositionBound.at(last), require_active=True)).value == "a1"  # as in Kafka Streams
    await harness.app.commit()
    assert (await ask(COMMITTED, PositionBound.at(last))).value == "a2"
    everywhere = await harness.app.query(StateQueryRequest(store="plain", query=KeyQuery("a"), isolation=UNCOMMITTED))
    assert everywhere.only_partition_result is everywhere.partition_results[HOME]
    assert everywhere.position.partitions("in")[HOME] == last.partitions("in")[HOME]


@with_values
async def test_a_position_outlives_a_restart_and_a_rollback(harness: AppHarness) -> None:
    """Committed changes stay part of the position when the app is started anew, and rolled-back ones do not."""

    async def position(level: Any) -> Any:
        result = await harness.app.query(StateQueryRequest(store="plain", query=KeyQuery("a"), isolation=level))
        return result.partition_results[HOME].position.partitions("in").get(HOME)

    committed = await position(COMMITTED)
    assert await position(UNCOMMITTED) == committed + 1
    await harness.crash()
    await harness.start()
    assert await position(COMMITTED) == committed
    await harness.caught_up()
    assert await position(COMMITTED) == await position(UNCOMMITTED) == committed + 1


@in_virtual_time
async def test_a_global_store_answers_as_a_whole() -> None:
    """The result of a global store is the global one, with the position in its topic; there are none by partition."""
    builder = StreamsBuilder()
    builder.global_table("names", STRINGS, Materialized("names", serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).to("out")

    options = {**OPTIONS, "topics": {"in": 1, "out": 1, "names": 1}, "default_key_serde": serdes.STRING, "default_value_serde": serdes.STRING}
    async with AppHarness(builder.build(), start=False, **options) as harness:
        await harness.produce_all("names", [TestRecord(f"n{number}", str(number), 0) for number in range(5)])
        await harness.start()
        result = await harness.app.query(StateQueryRequest(store="names", query=KeyQuery("n3")))
        assert result.partition_results == {}
        assert result.global_result is not None
        assert result.global_result.value == "3"
        assert dict(result.position.partitions("names")) == {0: 4}
        assert (await harness.app.query(StateQueryRequest(store="names", query=RangeQuery()))).global_result.value[0] == ("n0", "0")  # type: ignore[union-attr,index]  # it is there
        assert await harness.app.store_lags() == {}
        harness.app._registry.leave(next(iter(harness.app._registry)).task)
        gone = (await harness.app.query(StateQueryRequest(store="names", query=KeyQuery("n3")))).global_result
        assert gone is not None
        assert gone.failure is FailureReason.NOT_PRESENT


@with_values
async def test_an_app_that_closes_answers_no_request(harness: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is being answered when the app closes raises NotRunning: that is not a partition's failure."""
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(_scan, "GLANCES", 1)
    await feed_all(harness, "in", [TestRecord(f"k{number}", "v", 0) for number in range(5000)])
    asking = asyncio.ensure_future(harness.app.query(StateQueryRequest(store="plain", query=RangeQuery())))
    await harness.turns(10)
    await harness.close()
    with pytest.raises(NotRunning):
        await asking


@with_values
async def test_an_unsupported_query_is_part_of_the_result(harness: AppHarness) -> None:
    """A key that its serde cannot write fails the query in each partition, not the caller."""
    for query in (KeyQuery(5), RangeQuery(5, 6), WindowKeyQuery(None, 0, 1)):
        store = "window" if isinstance(query, WindowKeyQuery) else "plain"
        result: StateQueryResult[Any] = await harness.app.query(StateQueryRequest(store=store, query=query))
        for one in result.partition_results.values():
            assert one.failure is FailureReason.STORE_EXCEPTION
            assert "plain" in one.message or "window" in one.message
