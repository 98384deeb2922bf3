"""A store has each value as it was put, and a value that it cannot write is the error of its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import serdes
from ks_actors.config._exception_handlers import HandlerResponse
from ks_actors.dsl import (
    Consumed,
    GroupedStream,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Table,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.ks_actors.runtime.helpers import feed_all

NUMBERS = Consumed(serdes.STRING, serdes.LONG)
MOST = (1 << 63) - 1


def _plus(_: str, value: int, total: int) -> int:
    return total + value


def _both(_: str, one: int, other: int) -> int:
    return one + other


def _kept(store: str, value: Any) -> Materialized[Any, Any]:
    return Materialized("s", serdes.STRING, value, store_type=store)  # type: ignore[arg-type]  # of two words


KINDS: dict[str, Callable[[GroupedStream[str, int], Materialized[Any, Any]], Table[Any, Any]]] = {
    "reduce": lambda grouped, kept: grouped.reduce(lambda one, other: one + other, kept),
    "aggregate": lambda grouped, kept: grouped.aggregate(int, _plus, kept),
    "tumbling": lambda grouped, kept: grouped.windowed_by(TimeWindows.of_size_with_no_grace(100)).aggregate(int, _plus, kept),
    "hopping": lambda grouped, kept: grouped.windowed_by(TimeWindows.of_size_with_no_grace(100).advance_by(50)).aggregate(int, _plus, kept),
    "sliding": lambda grouped, kept: grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(100)).aggregate(int, _plus, kept),
    "unlimited": lambda grouped, kept: grouped.windowed_by(UnlimitedWindows.of()).aggregate(int, _plus, kept),
    "sessions": lambda grouped, kept: grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(100)).aggregate(int, _plus, _both, kept),
}


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("store", ["in_memory", "rocksdb"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_that_is_too_large_is_the_error_of_its_record(kind: str, store: str, guarantee: str, cache_bytes: int) -> None:
    """The handler is asked about it, with its place in the topic; the others count, and commits go on."""
    asked: list[Any] = []

    def handler(context: Any, record: Any, error: Exception) -> HandlerResponse:
        asked.append((context.topic, context.offset, record.value, type(error).__name__))
        return HandlerResponse.RESUME

    builder = StreamsBuilder()
    table = KINDS[kind](builder.stream("in", NUMBERS).group_by_key(), _kept(store, serdes.LONG))
    table.to_stream().map(lambda _, total: ("k", total)).to("out", Produced(serdes.STRING, serdes.LONG))

    async def test(harness: AppHarness) -> list[Any]:
        await feed_all(harness, "in", [TestRecord("k", value, 200) for value in (MOST - 1, 1, 5, 0)])
        return [record.value for record in await harness.read("out")]

    written = run_app(
        test,
        builder.build(),
        topics={"in": 1, "out": 1},
        processing_guarantee=guarantee,
        processing_exception_handler=handler,
        statestore_cache_max_bytes=cache_bytes,
    )
    assert written[-1] == MOST
    assert set(asked) == {("in", 2, 5, "SerializationError")}
