"""Counting, reducing and aggregating streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors._errors import ProcessingFailed
from ks_actors.processors.aggregates._aggregates import StreamAggregate, StreamCount
from ks_actors.processors.api._operator import Operator
from ks_actors.records._batch import Batch
from tests.ks_actors.processors.helpers import DictStore, Node, Row, run
from tests.ks_actors.processors.records import batches, folded, folded_by_key, grown, grown_by_key


def new_store() -> DictStore:
    store = DictStore()
    store.broken = {"broken"}
    return store


def both_ways(operator: Operator, records: list[Batch]) -> None:
    by_record = run(operator, {"s": new_store()}, records, in_batches=False, snapshot=repr)
    by_batch = run(operator, {"s": new_store()}, records, in_batches=True, snapshot=repr)
    assert by_batch == by_record


@given(batches(), st.booleans())
def test_counting_in_batches_is_counting_one_by_one(records: list[Batch], send_old: bool) -> None:
    """Same records out, same drops, same failures with their offsets, same store: however the records are cut into batches."""
    both_ways(StreamCount(store="s", send_old=send_old), records)


@given(batches(), st.booleans())
def test_aggregating_in_batches_is_aggregating_one_by_one(records: list[Batch], send_old: bool) -> None:
    """Likewise, with a function that deletes and that raises."""
    both_ways(StreamAggregate(store="s", aggregator=folded_by_key, initializer=str, send_old=send_old), records)


@given(batches(), st.booleans())
def test_reducing_in_batches_is_reducing_one_by_one(records: list[Batch], send_old: bool) -> None:
    """Likewise; a serde that promises nothing about its values changes nothing about text."""
    both_ways(StreamAggregate(store="s", aggregator=folded, send_old=send_old), records)


@given(batches())
def test_an_aggregate_that_is_changed_in_place_is_seen_as_it_was(records: list[Batch]) -> None:
    """The function changes an object of its own, so downstream sees every state of it."""
    both_ways(StreamAggregate(store="s", aggregator=grown_by_key, initializer=list), records)


def test_a_reduced_object_that_is_changed_in_place_is_seen_as_it_was() -> None:
    """The rule holds for the first value too, which is the aggregate itself."""
    values = [[1], [2], [3], [9]]
    records = Batch(["a", "a", "a", "b"], values, [1, 2, 3, 4], None, range(4))
    outcome = run(StreamAggregate(store="s", aggregator=grown), {"s": DictStore()}, [records], in_batches=True, snapshot=repr)
    assert [row.value for row in outcome.rows] == ["([1], None)", "([1, [2]], None)", "([1, [2], [3]], None)", "([9], None)"]


def test_a_count_goes_out_with_the_later_timestamp_and_the_records_headers() -> None:
    """Out-of-order records update the count and do not turn its time back."""
    store = DictStore()
    records = Batch(["a", "a"], ["x", "x"], [20, 10], [(("h", b"1"),), ()], [5, 6])
    outcome = run(StreamCount(store="s", send_old=True), {"s": store}, [records], in_batches=True)
    assert outcome.rows == [Row("a", (1, None), 20, (("h", b"1"),), 5), Row("a", (2, 1), 20, (), 6)]
    assert store.entries == {"a": (2, 20)}


def test_records_without_key_or_value_are_dropped() -> None:
    """They are counted as dropped, and nothing else happens."""
    records = Batch([None, "a", "a"], ["x", None, "x"], [1, 2, 3])
    for operator in (
        StreamCount(store="s"),
        StreamAggregate(store="s", aggregator=folded),
        StreamAggregate(store="s", aggregator=folded_by_key, initializer=str),
    ):
        for in_batches in (False, True):
            outcome = run(operator, {"s": DictStore()}, [records], in_batches=in_batches)
            assert outcome.dropped == 2
            assert [row.key for row in outcome.rows] == ["a"]


@pytest.mark.parametrize("in_batches", [True, False])
def test_a_new_row_has_no_old_value(in_batches: bool) -> None:
    """Neither is the initial aggregate sent as one: downstream, no row leaves that was never there."""
    records = Batch(["a", "a"], ["x", "y"], [1, 2])
    operator = StreamAggregate(store="s", aggregator=folded_by_key, initializer=lambda: "0", send_old=True)
    outcome = run(operator, {"s": DictStore()}, [records], in_batches=in_batches)
    assert [row.value for row in outcome.rows] == [("0x", None), ("0xy", "0x")]


def test_an_aggregate_of_none_deletes_and_the_next_record_begins_anew() -> None:
    """The delete goes downstream, and the time of the new aggregate is its record's own."""
    store = DictStore()
    records = Batch(["a", "a", "a"], ["x", "z", "y"], [30, 20, 10])
    outcome = run(StreamAggregate(store="s", aggregator=folded, send_old=True), {"s": store}, [records], in_batches=False)
    assert [(row.value, row.timestamp) for row in outcome.rows] == [(("x", None), 30), ((None, "x"), 30), (("y", None), 10)]
    assert store.entries == {"a": ("y", 10)}


def test_a_handler_that_ends_processing_ends_the_batch() -> None:
    """Nothing of the batch goes on; the store's transaction is the runtime's to drop."""
    node = Node({"s": DictStore()}, go_on=False)
    bound = StreamAggregate(store="s", aggregator=folded).bind(node)
    assert bound.batch is not None
    with pytest.raises(ProcessingFailed):
        bound.batch(Batch(["a", "a"], ["x", "!"], [1, 2], None, [7, 9]))
    assert node.rows == []
    assert [failure.offset for failure in node.failures] == [9]


def test_a_batch_of_which_nothing_is_left_is_not_forwarded() -> None:
    """An empty batch would make work downstream."""
    node = Node({"s": DictStore()})
    bound = StreamCount(store="s").bind(node)
    assert bound.batch is not None
    bound.batch(Batch([None], ["x"], [1]))
    assert node.batches == []
    assert node.dropped_count == 1
