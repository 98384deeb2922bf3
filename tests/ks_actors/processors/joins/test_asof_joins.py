"""Joins of streams as of a time, record by record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import TopologyError, serdes
from ks_actors.dsl import Consumed, Produced, StreamJoined, StreamsBuilder
from ks_actors.testing import TopologyTestDriver
from ks_actors.topology import Topology
from tests.examples_of import examples

TEXT = Consumed(serdes.STRING, serdes.STRING)
TOLERANCE = 50
FAR = 1 << 40
Row = tuple[bool, str, int]
ROWS = st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 300)), max_size=16)


def topology(*, left: bool, grace: int, **options: Any) -> Topology:
    builder = StreamsBuilder()
    trades, quotes = builder.stream("trades", TEXT), builder.stream("quotes", TEXT)
    join = trades.left_join_asof if left else trades.join_asof
    joined = join(quotes, lambda trade, quote: f"{trade}@{quote}", TOLERANCE, StreamJoined(store_type="in_memory", **options), grace_ms=grace)
    joined.to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def results(rows: list[Row], *, left: bool, grace: int) -> list[tuple[str, str, int]]:
    """Return the joined values; each record's value is its place in the input."""
    with TopologyTestDriver(topology(left=left, grace=grace)) as driver:
        topics = [driver.create_input_topic(name, serdes.STRING, serdes.STRING) for name in ("quotes", "trades")]
        for number, (trade, key, time) in enumerate(rows):
            topics[trade].pipe_input(key, str(number), time)
        if grace:
            topics[1].pipe_input("end", "end", FAR)
        found = driver.create_output_topic("out", serdes.STRING, serdes.STRING).read_records_to_list()
        return [(str(one.key), str(one.value), one.timestamp) for one in found if one.key != "end"]


def _latest(rows: list[Row], number: int, *, seen: int) -> int | None:
    """Return the quote as of a trade, among the records before `seen`."""
    _, key, time = rows[number]
    fitting = [(at, place) for place, (trade, of, at) in enumerate(rows[:seen]) if not trade and of == key and time - TOLERANCE <= at <= time]
    return max(fitting)[1] if fitting else None


@pytest.mark.parametrize("left", [False, True])
@settings(max_examples=examples(40))
@given(rows=ROWS)
def test_each_record_meets_the_latest_one_before_it(left: bool, rows: list[Row]) -> None:
    """At once, among those that have come and are kept; streams in the order of their times keep all that may be met."""
    rows = sorted(rows, key=lambda row: row[2])
    wanted = [(number, _latest(rows, number, seen=number)) for number, row in enumerate(rows) if row[0]]
    found = [(rows[one][1], f"{one}@{other}", rows[one][2]) for one, other in wanted if left or other is not None]
    assert results(rows, left=left, grace=0) == found


@pytest.mark.parametrize("left", [False, True])
@settings(max_examples=examples(40))
@given(rows=ROWS)
def test_with_a_grace_period_it_meets_those_that_come_late_by_it(left: bool, rows: list[Row]) -> None:
    """Records may come in any order within it: the result is that of all of them, by time and then key."""
    rows = sorted(rows, key=lambda row: (row[2] // 40, row[2] * 7 % 13))  # out of order by less than 40 ms
    wanted = [(number, _latest(rows, number, seen=len(rows))) for number, row in enumerate(rows) if row[0]]
    found = [(rows[one][1], f"{one}@{other}", rows[one][2]) for one, other in wanted if left or other is not None]
    assert sorted(results(rows, left=left, grace=40)) == sorted(found)
    assert [time for _, _, time in results(rows, left=left, grace=40)] == sorted(time for _, _, time in found)


def test_of_equal_timestamps_the_last_one_counts() -> None:
    """Its own timestamp is included, and so is the tolerance."""
    rows: list[Row] = [(False, "a", 0), (False, "a", 0), (True, "a", 0), (True, "a", TOLERANCE), (True, "a", TOLERANCE + 1)]
    assert [value for _, value, _ in results(rows, left=True, grace=0)] == ["2@1", "3@1", "4@None"]


@pytest.mark.parametrize(("left", "grace", "dropped", "found"), [(False, 0, 4, []), (True, 0, 3, ["v@None"])])
def test_records_without_key_or_value_are_dropped_and_counted(left: bool, grace: int, dropped: int, found: list[str]) -> None:
    """Except that a left join has a result for a record without key, as other joins have."""
    with TopologyTestDriver(topology(left=left, grace=grace)) as driver:
        for name in ("trades", "quotes"):
            topic: Any = driver.create_input_topic(name, serdes.STRING, serdes.STRING)
            topic.pipe_input(None, "v", 0)
            topic.pipe_input("k", None, 0)
        assert driver.metrics()["dropped-records-total"] == dropped
        out = driver.create_output_topic("out", serdes.STRING, serdes.STRING)
        assert [value for _, value in out.read_key_values_to_list()] == found


def test_names_are_those_that_are_given() -> None:
    """Of nodes, stores and repartition topics."""
    made = topology(left=False, grace=5, name="trade", store_name="kept")
    assert {"trade", "trade-other"} <= made.nodes.keys()
    assert made.stores.keys() == {"kept-other-store", "kept-this-store"}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"tolerance_ms": -1}, "tolerance_ms of join_asof"),
        ({"tolerance_ms": 5, "grace_ms": "1"}, "grace_ms of join_asof"),
        ({"tolerance_ms": 5, "joiner": lambda: 1}, "joiner"),
        ({"tolerance_ms": 5, "other": "quotes"}, "give a Stream"),
        ({"tolerance_ms": 5, "joined": "trade"}, "StreamJoined"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(wrong: dict[str, Any], text: str) -> None:
    """The error names the argument."""
    builder = StreamsBuilder()
    given_: dict[str, Any] = {"other": builder.stream("quotes", TEXT), "joiner": lambda one, other: one + other, **wrong}
    with pytest.raises(TopologyError, match=text):
        builder.stream("trades", TEXT).join_asof(**given_)
