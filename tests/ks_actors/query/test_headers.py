"""Stores that keep headers in whole apps: queries, restores, snapshots, and the stores of the DSL (KIP-1271, KIP-1285, KIP-1356)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from ks_actors import AggregationWithHeaders, Processor, ProcessorContext, Record, Topology, ValueTimestampHeaders, serdes, stores
from ks_actors._errors import FailureReason, QueryFailed
from ks_actors.dsl import Consumed, Materialized, StreamsBuilder, Window, Windowed
from ks_actors.query import (
    Query,
    StateQueryRequest,
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
)
from ks_actors.records import Headers
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreType
from tests.ks_actors.query.helpers import ENGINES, HOUR, SECOND, processed
from tests.ks_actors.runtime.helpers import in_app

TOPICS = {"in": 1}
FIRST: Headers = (("trace", b"1"), ("trace", None))


class Keeps(Processor[str, str, str, str]):
    """Keep each record in three stores, with its headers; `-` deletes."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._rows, self._windows, self._sessions = (context.get_state_store(name) for name in ("rows", "windows", "sessions"))

    def process(self, record: Record[str, str]) -> None:
        value = None if record.value == "-" else ValueTimestampHeaders(record.value, record.timestamp, record.headers)
        self._rows.put(record.key, value)
        self._windows.put(record.key, value, SECOND)
        self._sessions.put(
            Windowed(record.key, Window(SECOND, SECOND)), None if value is None else AggregationWithHeaders(value.value, value.headers)
        )


def keeping(engine: StoreType) -> Topology:
    text = serdes.STRING
    topology = Topology()
    topology.add_source("source", "in", key=text, value=text)
    topology.add_processor("keeps", Keeps, "source")
    for spec in (
        stores.key_value("rows", text, text, type=engine, headers=True),
        stores.window("windows", text, text, type=engine, headers=True, retention_ms=HOUR, window_size_ms=SECOND),
        stores.session("sessions", text, text, type=engine, headers=True, retention_ms=HOUR),
    ):
        topology.add_state_store(spec, "keeps")
    return topology


async def check(harness: AppHarness) -> None:
    """Check that the stores have the rows of `a` and `b`, by both ways of queries."""
    app = harness.app
    first, second = ValueTimestampHeaders("v", SECOND, FIRST), ValueTimestampHeaders("w", SECOND + 1, ())
    rows, windows, sessions = (app.store(name, headers=True) for name in ("rows", "windows", "sessions"))
    assert await rows.get("a") == first
    assert await rows.all() == [("a", first), ("b", second)]
    assert await windows.fetch("a", SECOND) == first
    assert await windows.all() == [(("a", SECOND), first), (("b", SECOND), second)]
    assert await sessions.fetch_session("a", SECOND, SECOND) == AggregationWithHeaders("v", FIRST)
    assert [found for _, found in await sessions.all()] == [AggregationWithHeaders("v", FIRST), AggregationWithHeaders("w", ())]
    assert await app.store("rows").get("a") == "v"
    assert await app.store("windows", timestamped=True).fetch("a", SECOND) == ("v", SECOND)

    async def ask(store: str, query: Query[Any]) -> Any:
        return (await app.query(StateQueryRequest(store=store, query=query))).partition_results[0].value

    assert await ask("rows", TimestampedKeyWithHeadersQuery("a")) == first
    assert await ask("rows", TimestampedRangeWithHeadersQuery(None, None, descending=True)) == [("b", second), ("a", first)]
    assert await ask("windows", TimestampedWindowKeyWithHeadersQuery("a", 0, HOUR)) == [(SECOND, first)]
    assert await ask("windows", TimestampedWindowRangeWithHeadersQuery(0, HOUR)) == [(("a", SECOND), first), (("b", SECOND), second)]


async def feed(harness: AppHarness) -> None:
    await harness.produce("in", "a", "v", SECOND, headers=FIRST)
    await harness.produce("in", "b", "w", SECOND + 1)
    await harness.produce("in", "c", "x", SECOND + 2)
    await harness.caught_up()
    await harness.produce("in", "c", "-", SECOND + 3, headers=(("why", b"gone"),))
    await harness.caught_up()


@pytest.mark.parametrize("engine", ENGINES)
@in_app(lambda engine: keeping(engine), topics=TOPICS)
async def test_headers_are_queried_and_restored(harness: AppHarness, engine: StoreType) -> None:
    """After a restart without state they come from the changelog, whose records have them; deletes have those of their record."""
    await feed(harness)
    await check(harness)
    for name in ("rows", "windows", "sessions"):
        logged = await harness.read(f"{harness.config.application_id}-{name}-changelog", serdes.BYTES, serdes.BYTES)
        assert [(record.value, record.headers) for record in logged] == [(b"v", FIRST), (b"w", ()), (b"x", ()), (None, (("why", b"gone"),))]
    await harness.close()
    harness.wipe_state()
    await harness.restart()
    await harness.caught_up()
    await check(harness)


@pytest.mark.parametrize("engine", ENGINES)
@in_app(lambda engine: keeping(engine), topics=TOPICS, snapshot_uri=f"memory://{uuid4()}")
async def test_snapshots_have_headers(harness: AppHarness, engine: StoreType) -> None:
    """A start from one has the rows as they were, without a record of the changelog."""
    await feed(harness)
    await harness.app.snapshot()
    await harness.close()
    harness.wipe_state()
    await harness.restart()
    await harness.caught_up()
    await check(harness)


def counting() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(serdes.STRING, serdes.STRING))
    stream.group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG))
    stream.to_table(materialized=Materialized("latest", serdes.STRING, serdes.STRING, store_type="in_memory"))
    return builder.build()


@in_app(counting(), topics=TOPICS)
async def test_stores_of_the_dsl_change_their_format(harness: AppHarness) -> None:
    """Their rows are there, without headers, as those that operators put; stores in memory have no headers."""
    await harness.produce("in", "a", "v", SECOND, headers=FIRST)
    await harness.caught_up()
    with pytest.raises(QueryFailed, match="cannot be queried with headers, because it keeps none") as raised:
        harness.app.store("counts", headers=True)
    assert raised.value.reason is FailureReason.UNKNOWN_QUERY_TYPE
    await harness.restart(dsl_store_format="HEADERS")
    await harness.produce("in", "b", "v", SECOND + 1, headers=FIRST)
    await harness.caught_up()
    counts = harness.app.store("counts", headers=True)
    assert await counts.all() == [("a", ValueTimestampHeaders(1, SECOND, ())), ("b", ValueTimestampHeaders(1, SECOND + 1, ()))]
    with pytest.raises(QueryFailed, match="with headers"):
        harness.app.store("latest", headers=True)
    await harness.restart(dsl_store_format="DEFAULT")
    await harness.produce("in", "a", "v", SECOND + 2)
    await harness.caught_up()
    await processed(harness)
    assert await harness.app.store("counts", timestamped=True).all() == [("a", (2, SECOND + 2)), ("b", (1, SECOND + 1))]


@in_app(counting(), topics=TOPICS)
async def test_a_question_for_headers_needs_a_store_that_keeps_them(harness: AppHarness) -> None:
    """Another store says that it does not support it."""
    await harness.produce("in", "a", "v", SECOND)
    await harness.caught_up()
    result = await harness.app.query(StateQueryRequest(store="counts", query=TimestampedKeyWithHeadersQuery("a")))
    assert result.partition_results[0].failure is FailureReason.UNKNOWN_QUERY_TYPE
