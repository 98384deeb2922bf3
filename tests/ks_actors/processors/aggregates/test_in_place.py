"""Aggregators that change their aggregate in place and forget to return it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ks_actors import serdes
from ks_actors.dsl import EmitStrategy, Grouped, Materialized, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from ks_actors.testing import TopologyTestDriver
from tests.ks_actors.runtime.helpers import STRINGS

LISTS = serdes.json(list[str])


def closing(windowed: Any) -> Any:
    """Return windows that send only when they close; cogroups have none."""
    return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if hasattr(windowed, "emit_strategy") else windowed


SHAPES: dict[str, Any] = {
    "keys": lambda grouped: grouped,
    "tumbling": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(10)),
    "hopping": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(10).advance_by(5)),
    "on close": lambda grouped: closing(grouped.windowed_by(TimeWindows.of_size_with_no_grace(10))),
    "sliding": lambda grouped: grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(10)),
    "sessions": lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10)),
}


def aggregated(shape: str, aggregator: Any, *, cogroup: bool, cached: bool, values: list[str]) -> None:
    """Aggregate values of one key into lists."""
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", STRINGS).group_by_key(Grouped(serdes.STRING, serdes.STRING))
    more: list[Any] = [lambda key, one, other: one + other] if shape == "sessions" else []
    if cogroup:
        grouped = SHAPES[shape](grouped.cogroup(aggregator))
    else:
        grouped, more = SHAPES[shape](grouped), [aggregator, *more]
    grouped.aggregate(list, *more, Materialized("lists", serdes.STRING, LISTS))
    with TopologyTestDriver(builder.build(), {"statestore_cache_max_bytes": 10_000 if cached else 0}) as driver:
        topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        for number, value in enumerate(values):
            topic.pipe_input("k", value, number)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "changed its aggregate" in record.getMessage()]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cogroup", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_an_aggregator_that_forgets_its_aggregate_is_told_once(shape: str, cogroup: bool, cached: bool, caplog: pytest.LogCaptureFixture) -> None:
    """One warning names the node and the remedy; None still deletes the row."""
    aggregated(shape, lambda key, value, rows: rows.append(value), cogroup=cogroup, cached=cached, values=["a", "b", "c"])
    (text,) = told(caplog)
    assert "node KSTREAM-AGGREGATE-" in text or "node COGROUPKSTREAM-AGGREGATE-" in text
    assert text.endswith("and returned None, which deletes the row: return the aggregate")


def test_an_adder_that_forgets_its_aggregate_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The adder of a grouped table makes the aggregate of a new group, so it is watched too."""
    builder = StreamsBuilder()
    rows = builder.table("in", STRINGS).group_by(lambda key, value: (value, key), Grouped(serdes.STRING, serdes.STRING))
    rows.aggregate(
        list, lambda key, value, some: some.append(value), lambda key, value, some: some, Materialized("lists", serdes.STRING, LISTS)
    )  # the mistake
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 1)
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("seed", range(40))
def test_an_aggregator_that_returns_its_aggregate_is_not_told(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Aggregators that change their aggregate in place and return it, or delete a row on purpose, are right."""

    def add(key: str, value: str, rows: list[str]) -> list[str] | None:
        if value == "-":
            return None
        rows.append(value)
        return rows

    random = Random(seed)
    values = random.choices("ab-", k=random.randrange(7))
    aggregated(random.choice([*SHAPES]), add, cogroup=random.random() < 0.5, cached=random.random() < 0.5, values=values)
    assert told(caplog) == []


def test_an_initializer_that_varies_is_no_evidence(caplog: pytest.LogCaptureFixture) -> None:
    """Where two first aggregates differ from each other, or cannot be compared, nothing is told."""
    numbers = iter(range(100))
    for initializer in (lambda: [next(numbers)], lambda: [lambda: None]):
        builder = StreamsBuilder()
        grouped = builder.stream("in", STRINGS).group_by_key(Grouped(serdes.STRING, serdes.STRING))
        grouped.aggregate(
            initializer, lambda key, value, rows: rows.append(value), Materialized("lists", serdes.STRING, serdes.json(list[Any]))
        )  # the mistake
        with TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 1)
    assert told(caplog) == []
