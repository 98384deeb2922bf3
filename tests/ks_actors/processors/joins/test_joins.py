"""Joins of streams with tables, of tables with tables, and how tables that are not stored are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.processors.joins._stream_table_join import StreamTableJoin
from ks_actors.processors.joins._table_joins import TableJoinMerge, TableJoinSide
from ks_actors.processors.tables._views import FilterView, JoinView, MapView, StoreView, WindowView
from ks_actors.records._batch import Batch
from ks_actors.records._windowed import Window, Windowed
from tests.ks_actors.processors.helpers import DictStore, DictWindowStore, Node, Row, run
from tests.ks_actors.processors.records import batches, refuse


def rows(**values: str) -> DictStore:
    store = DictStore()
    store.entries = {key: (value, 50) for key, value in values.items()}
    store.broken = {"broken"}
    return store


def pair(left: Any, right: Any) -> str:
    refuse(left)
    return f"{left}-{right}"


def keyed_pair(key: Any, left: Any, right: Any) -> str:
    return f"{key}:{pair(left, right)}"


def by_value(_: Any, value: Any) -> Any:
    return None if value is None else {"x": "a", "y": None}.get(value, "c")


@given(batches(), st.booleans(), st.booleans(), st.booleans())
def test_a_stream_is_joined_in_batches_as_one_by_one(records: list[Batch], left: bool, keyed: bool, selected: bool) -> None:
    """Inner and left joins, by the key or a selected one, with rows missing and joiners that raise."""
    operator = StreamTableJoin(
        view=StoreView("s"), joiner=keyed_pair if keyed else pair, keyed=keyed, left=left, select=by_value if selected else None
    )
    by_record = run(operator, {"s": rows(a="1", b="2")}, records, in_batches=False)
    by_batch = run(operator, {"s": rows(a="1", b="2")}, records, in_batches=True)
    assert by_batch == by_record


RECORDS = Batch(["a", "c", None, "a"], ["x", "x", "x", None], [1, 2, 3, 4], None, range(4))


def test_an_inner_join_leaves_out_records_without_a_row() -> None:
    """Those without key or value are dropped; the result has the record's time, not the row's."""
    outcome = run(StreamTableJoin(view=StoreView("s"), joiner=pair), {"s": rows(a="1")}, [RECORDS], in_batches=True)
    assert outcome.rows == [Row("a", "x-1", 1, (), 0)]
    assert outcome.dropped == 2


def test_a_left_join_joins_records_without_a_row_or_key_with_none() -> None:
    """Those without value are dropped."""
    outcome = run(StreamTableJoin(view=StoreView("s"), joiner=keyed_pair, keyed=True, left=True), {"s": rows(a="1")}, [RECORDS], in_batches=False)
    assert [row.value for row in outcome.rows] == ["a:x-1", "c:x-None", "None:x-None"]
    assert outcome.dropped == 1


SIDES = {"inner": (False, False), "left, this": (False, True), "left, other": (True, False), "outer": (True, True)}
CHANGES = [("n", "o"), ("n", None), (None, "o"), (None, None)]


@pytest.mark.parametrize(
    ("side", "with_row", "without_row"),
    [
        ("inner", [("n-t", "o-t"), ("n-t", None), (None, "o-t"), (None, None)], []),
        ("left, this", [("n-t", "o-t"), ("n-t", None), (None, "o-t"), (None, None)], [("n-None", "o-None"), ("n-None", None), (None, "o-None")]),
        ("left, other", [("n-t", "o-t"), ("n-t", "None-t"), ("None-t", "o-t"), ("None-t", "None-t")], []),
        (
            "outer",
            [("n-t", "o-t"), ("n-t", "None-t"), ("None-t", "o-t"), ("None-t", "None-t")],
            [("n-None", "o-None"), ("n-None", None), (None, "o-None")],
        ),
    ],
)
def test_a_change_is_joined_with_the_row_of_the_other_table(side: str, with_row: list[Any], without_row: list[Any]) -> None:
    """The results of each kind of join for a new and an old value, with a row and without, are Kafka Streams'."""
    this_optional, other_optional = SIDES[side]
    operator = TableJoinSide(other=StoreView("s"), joiner=pair, this_optional=this_optional, other_optional=other_optional, send_old=True)
    for store, expected, timestamp in ((rows(k="t"), with_row, 50), (rows(), without_row, 7)):
        node = Node({"s": store})
        process = operator.bind(node).process
        for change in CHANGES:
            process("k", change, 7, ())
        assert [row.value for row in node.rows] == expected
        assert {row.timestamp for row in node.rows} <= {timestamp}


def test_a_join_of_tables_drops_changes_without_key_and_sends_old_values_when_told_to() -> None:
    """The joiner is not called for old values that nobody wants."""
    node = Node({"s": rows(k="t")})
    process = TableJoinSide(other=StoreView("s"), joiner=pair, this_optional=True, other_optional=True).bind(node).process
    process(None, ("n", "o"), 1, ())
    process("k", ("n", "o"), 90, ())
    assert (node.dropped_count, [(row.value, row.timestamp) for row in node.rows]) == (1, [(("n-t", None), 90)])


def test_both_sides_of_a_join_meet_in_one_store() -> None:
    """The merged table has the new value; the old one is sent on when told to."""
    store = DictStore()
    node = Node({"s": store})
    TableJoinMerge(store="s", send_old=True).bind(node).process("k", ("n", "o"), 1, ())
    TableJoinMerge().bind(node).process("k", ("n", "o"), 2, ())
    assert store.entries == {"k": ("n", 1)}
    TableJoinMerge(store="s").bind(node).process("k", (None, "o"), 3, ())
    assert store.entries == {}
    assert [row.value for row in node.rows] == [("n", "o"), ("n", None), (None, None)]


def read(view: Any, **stores: Any) -> dict[str, Any]:
    get, close, _ = view.bind(Node(stores))
    found = {key: get(key) for key in ("a", "b", "c")}
    close()
    return found


def test_a_view_of_a_filter_shows_passing_rows() -> None:
    """Either way round."""
    view = FilterView(StoreView("s"), lambda _, value: value == "1", negated=False)
    assert read(view, s=rows(a="1", b="2")) == {"a": ("1", 50), "b": None, "c": None}
    view = FilterView(StoreView("s"), lambda _, value: value == "1", negated=True)
    assert read(view, s=rows(a="1", b="2")) == {"a": None, "b": ("2", 50), "c": None}
    assert view.stores == ("s",)


def test_a_view_of_a_map_shows_mapped_values_with_the_rows_times() -> None:
    """By value or by key and value; None is no row."""
    assert read(MapView(StoreView("s"), lambda value: None if value == "2" else value * 2, keyed=False), s=rows(a="1", b="2")) == {
        "a": ("11", 50),
        "b": None,
        "c": None,
    }
    view = MapView(StoreView("s"), lambda key, value: key + value, keyed=True)
    assert read(view, s=rows(a="1")) == {"a": ("a1", 50), "b": None, "c": None}
    assert view.stores == ("s",)


@pytest.mark.parametrize(
    ("left_optional", "right_optional", "expected"),
    [
        (False, False, {"a": ("1-3", 60), "b": None, "c": None}),
        (False, True, {"a": ("1-3", 60), "b": ("2-None", 50), "c": None}),
        (True, False, {"a": ("1-3", 60), "b": None, "c": ("None-4", 60)}),
        (True, True, {"a": ("1-3", 60), "b": ("2-None", 50), "c": ("None-4", 60)}),
    ],
)
def test_a_view_of_a_join_joins_the_views_of_its_sides(left_optional: bool, right_optional: bool, expected: dict[str, Any]) -> None:
    """With the later time; a key that is in neither table is in no join of them."""
    view = JoinView(StoreView("left"), StoreView("right"), pair, left_optional, right_optional)
    right = DictStore()
    right.entries = {"a": ("3", 60), "c": ("4", 60)}
    assert read(view, left=rows(a="1", b="2"), right=right) == expected
    assert read(view, left=DictStore(), right=DictStore()) == dict.fromkeys("abc")
    assert view.stores == ("left", "right")


def test_a_view_of_a_join_has_no_row_where_the_joiner_gives_none() -> None:
    """As the join itself deletes it."""
    view = JoinView(StoreView("s"), StoreView("s"), lambda _, __: None, left_optional=False, right_optional=False)
    assert read(view, s=rows(a="1")) == dict.fromkeys("abc")
    assert view.stores == ("s",)


def test_a_view_of_windows_is_read_by_windowed_keys() -> None:
    """Key and start find the row."""
    store = DictWindowStore()
    store.put_entry("k", 10, ("v", 12))
    view = WindowView("s")
    get = view.bind(Node({"s": store})).get
    assert get(Windowed("k", Window(10, 20))) == ("v", 12)
    assert get(Windowed("k", Window(20, 30))) is None
    assert view.stores == ("s",)
