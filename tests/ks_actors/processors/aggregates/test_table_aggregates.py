"""Tables grouped by another key."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors.processors.aggregates._table_aggregates import TableAggregate, TableReduce, TableSelect
from tests.ks_actors.processors.helpers import DictStore, Node


def group(_: str, value: str) -> tuple[Any, Any] | None:
    return {"none": None, "no key": (None, "v"), "no value": ("g", None)}.get(value, (value[0], value[1:]))


def selected(change: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    node = Node({})
    TableSelect(selector=group).bind(node).process("k", change, 1, ())
    return [(row.key, row.value) for row in node.rows]


def test_a_change_within_a_group_travels_as_one() -> None:
    """New and old value together, so that the group is right at every moment."""
    assert selected(("a2", "a1")) == [("a", ("2", "1"))]


def test_a_change_of_group_takes_the_old_value_out_first() -> None:
    """Two records, of which the first has no new value and the second no old one."""
    assert selected(("b2", "a1")) == [("a", (None, "1")), ("b", ("2", None))]


@pytest.mark.parametrize("nothing", [None, "none", "no key", "no value"])
def test_no_group_is_no_record(nothing: str | None) -> None:
    """No value, no pair, no key or no value in the pair."""
    assert selected((nothing, nothing)) == []
    assert selected(("a1", nothing)) == [("a", ("1", None))]
    assert selected((nothing, "a1")) == [("a", (None, "1"))]


def aggregated(store: DictStore, *changes: tuple[tuple[Any, Any], int], send_old: bool = True) -> list[tuple[Any, int]]:
    node = Node({"s": store})
    operator = TableAggregate(
        store="s",
        initializer=lambda: "0",
        adder=lambda _, value, aggregate: f"{aggregate}+{value}",
        subtractor=lambda _, value, aggregate: None if value == "all" else f"{aggregate}-{value}",
        send_old=send_old,
    )
    process = operator.bind(node).process
    for change, timestamp in changes:
        process("g", change, timestamp, ())
    return [(row.value, row.timestamp) for row in node.rows]


def test_an_aggregate_loses_the_old_value_and_gets_the_new_one() -> None:
    """In this order; the time is the later one of aggregate and change."""
    rows = aggregated(DictStore(), (("a", None), 5), (("b", "a"), 3), ((None, "b"), 4))
    assert rows == [(("0+a", None), 5), (("0+a-a+b", "0+a"), 5), (("0+a-a+b-b", "0+a-a+b"), 5)]


def test_nothing_is_taken_out_of_no_aggregate() -> None:
    """A change with an old value that was never put in only adds, at its own time."""
    store = DictStore()
    assert aggregated(store, ((None, "a"), 5), (("b", "a"), 3)) == [((None, None), 5), (("0+b", None), 3)]
    assert store.entries == {"g": ("0+b", 3)}


def test_an_aggregate_that_a_subtractor_ends_begins_anew() -> None:
    """The initial aggregate is made once more for the added value."""
    rows = aggregated(DictStore(), (("a", None), 5), (("b", "all"), 3), ((None, "all"), 9), send_old=False)
    assert rows == [(("0+a", None), 5), (("0+b", None), 5), ((None, None), 9)]


def test_a_change_of_nothing_is_put_at_its_own_time() -> None:
    """It comes from nowhere but a defect upstream, and is treated as Kafka Streams treats it."""
    assert aggregated(DictStore(), (("a", None), 5), ((None, None), 3)) == [(("0+a", None), 5), (("0+a", "0+a"), 3)]


def reduced(store: DictStore, *changes: tuple[tuple[Any, Any], int]) -> list[tuple[Any, int]]:
    node = Node({"s": store})
    operator = TableReduce(
        store="s",
        adder=lambda aggregate, value: f"{aggregate}+{value}",
        subtractor=lambda aggregate, value: None if value == "all" else f"{aggregate}-{value}",
        send_old=True,
    )
    process = operator.bind(node).process
    for change, timestamp in changes:
        process("g", change, timestamp, ())
    return [(row.value, row.timestamp) for row in node.rows]


def test_the_first_value_of_a_group_is_its_reduced_value() -> None:
    """Later ones are combined with it, and the later time holds from then on."""
    rows = reduced(DictStore(), (("a", None), 5), (("b", None), 3), (("c", "b"), 7), ((None, "c"), 1))
    assert rows == [(("a", None), 5), (("a+b", "a"), 5), (("a+b-b+c", "a+b"), 7), (("a+b-b+c-c", "a+b-b+c"), 7)]


def test_a_reduced_value_that_a_subtractor_ends_begins_with_the_new_value() -> None:
    """At the later time, for the old one was there; without one before, at the change's own."""
    store = DictStore()
    assert reduced(store, (("a", None), 5), (("b", "all"), 3), ((None, "all"), 1), ((None, "x"), 2)) == [
        (("a", None), 5),
        (("b", "a"), 5),
        ((None, "b"), 5),
        ((None, None), 2),
    ]
    assert store.entries == {}


def test_changes_without_a_key_are_refused() -> None:
    """Upstream of a grouped table every row has a key: the processing handler decides about anything else, which may be in a repartition topic."""
    stores = {"s": DictStore()}
    operators = (
        TableSelect(selector=group),
        TableReduce(store="s", adder=max, subtractor=min),
        TableAggregate(store="s", initializer=int, adder=max, subtractor=min),
    )
    for operator in operators:
        with pytest.raises(ValueError, match="no key"):
            operator.bind(Node(stores)).process(None, ("a", None), 1, ())
