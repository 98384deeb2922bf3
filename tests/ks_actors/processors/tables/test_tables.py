"""Tables as operators: sources, filters, maps, and back to streams."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ks_actors.processors.tables._tables import TableFilter, TableMapValues, TablePassThrough, TableSource, ToStream
from ks_actors.records._batch import Batch
from tests.ks_actors.processors.helpers import DictStore, Node, Row, run
from tests.ks_actors.processors.records import batches, refuse

PLAIN = st.sampled_from(["a", "b", "broken"])
CHANGES = st.tuples(st.sampled_from(["x", "y", "!", None]), st.sampled_from(["x", "y", None]))


def stores(stored: bool) -> dict[str, DictStore]:
    store = DictStore()
    store.broken = {"broken"}
    return {"s": store} if stored else {}


def both_ways(operator: Any, stored: bool, records: list[Batch]) -> None:
    by_record = run(operator, stores(stored), records, in_batches=False)
    by_batch = run(operator, stores(stored), records, in_batches=True)
    assert by_batch == by_record


def is_x(_: str, value: str) -> bool:
    refuse(value)
    return value == "x"


def doubled(value: str) -> str | None:
    refuse(value)
    return None if value == "y" else value + value


def keyed(key: str, value: str) -> str:
    refuse(value)
    return key + value


@given(batches(), st.booleans(), st.booleans())
def test_a_table_is_read_in_batches_as_one_by_one(records: list[Batch], stored: bool, send_old: bool) -> None:
    """Stored or not, with old values or without."""
    both_ways(TableSource(store="s" if stored else None, send_old=stored and send_old), stored, records)


@given(batches(PLAIN, CHANGES), st.booleans(), st.booleans(), st.booleans())
def test_a_table_is_filtered_in_batches_as_one_by_one(records: list[Batch], stored: bool, send_old: bool, negated: bool) -> None:
    """Stored or not, with old values or without, either way round, and when the predicate raises."""
    both_ways(TableFilter(predicate=is_x, negated=negated, store="s" if stored else None, send_old=send_old), stored, records)


@given(batches(PLAIN, CHANGES), st.booleans(), st.booleans(), st.booleans())
def test_a_table_is_mapped_in_batches_as_one_by_one(records: list[Batch], stored: bool, send_old: bool, with_key: bool) -> None:
    """Stored or not, with old values or without, by value or by key and value, and when the mapper raises."""
    operator = TableMapValues(mapper=keyed if with_key else doubled, keyed=with_key, store="s" if stored else None, send_old=send_old)
    both_ways(operator, stored, records)


@given(batches(PLAIN, CHANGES))
def test_changes_become_records_in_batches_as_one_by_one(records: list[Batch]) -> None:
    """The new value, or None; and a pass-through passes."""
    both_ways(ToStream(), False, records)
    both_ways(TablePassThrough(), False, records)


def test_a_stored_table_sends_the_earlier_value_of_the_store() -> None:
    """Updates with an older timestamp update all the same; a delete of nothing goes on; keyless records are dropped."""
    store = DictStore()
    records = Batch(["a", "a", "a", "b", None], ["x", "y", None, None, "x"], [5, 3, 7, 8, 9])
    outcome = run(TableSource(store="s", send_old=True), {"s": store}, [records], in_batches=False)
    assert [(row.key, row.value) for row in outcome.rows] == [("a", ("x", None)), ("a", ("y", "x")), ("a", (None, "y")), ("b", (None, None))]
    assert outcome.dropped == 1
    assert store.entries == {}


def test_a_filter_with_old_values_does_not_tell_of_nothing_that_stays_nothing() -> None:
    """Without them it has to: the row may have been there."""
    change = Batch(["a"], [("y", "y")], [1], None, [4])
    quiet = run(TableFilter(predicate=is_x, send_old=True), {}, [change], in_batches=True)
    assert quiet.rows == []
    told = run(TableFilter(predicate=is_x), {}, [change], in_batches=True)
    assert told.rows == [Row("a", (None, None), 1, (), 4)]


def test_a_stored_filter_takes_the_old_value_from_its_own_store() -> None:
    """The old value from upstream is not used."""
    store = DictStore()
    store.entries["a"] = ("was", 1)
    outcome = run(TableFilter(predicate=is_x, store="s", send_old=True), {"s": store}, [Batch(["a"], [("x", "other")], [2])], in_batches=False)
    assert [row.value for row in outcome.rows] == [("x", "was")]
    assert store.entries == {"a": ("x", 2)}


def test_deletes_are_not_mapped() -> None:
    """The mapper never sees None; a result of None is a delete."""
    outcome = run(TableMapValues(mapper=doubled, send_old=True), {}, [Batch(["a", "a"], [(None, "x"), ("y", None)], [1, 2])], in_batches=True)
    assert [row.value for row in outcome.rows] == [(None, "xx"), (None, None)]


def test_all_dropped_is_nothing_forwarded() -> None:
    """No empty batch goes downstream."""
    node = Node({})
    bound = TableSource().bind(node)
    assert bound.batch is not None
    bound.batch(Batch([None], ["x"], [1]))
    assert (node.batches, node.dropped_count) == ([], 1)
