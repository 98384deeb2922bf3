"""Aggregations per sliding window."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ks_actors.processors.aggregates._sliding import SlidingAggregate
from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
from ks_actors.records._batch import Batch
from ks_actors.records._windowed import Window
from tests.ks_actors.processors.helpers import DictWindowStore, Node, one_by_one
from tests.ks_actors.processors.records import folded, folded_by_key, grown_by_key


def aggregation(length: int = 10, grace: int = 1_000, **options: Any) -> WindowAggregation:
    return WindowAggregation(store="s", size_ms=length, advance_ms=length, grace_ms=grace, **options)


def run(node: Node, records: list[tuple[Any, Any, int]], what: WindowAggregation, *, on_close: bool = False) -> list[tuple[Any, Any, int]]:
    batch = Batch([record[0] for record in records], [record[1] for record in records], [record[2] for record in records])
    one_by_one(SlidingAggregate(what, on_close=on_close).bind(node), node, batch)
    return [(row.key.window, row.value, row.timestamp) for row in node.rows]


TIMES = st.lists(st.integers(0, 60), min_size=1, max_size=12)


@given(TIMES, st.sampled_from([1, 5, 10]))
def test_every_window_that_a_record_begins_or_ends_has_just_its_records(times: list[int], length: int) -> None:
    """Compared with the definition, in any order of records: no window is missing, none has a wrong sum."""
    node = Node({"s": DictWindowStore()})
    run(node, [("k", index, time) for index, time in enumerate(times)], aggregation(length, aggregator=lambda _, v, a: {*a, v}, initializer=set))
    latest: dict[Window, Any] = {row.key.window: row.value[0] for row in node.rows}
    expected = defaultdict(set)
    starts = {max(0, time - length) for time in times} | {time + 1 for time in times}
    for start in starts:
        within = {index for index, time in enumerate(times) if start <= time <= start + length}
        if within:
            expected[Window(start, start + length)] = within
    assert latest == dict(expected)


def test_records_go_into_the_windows_around_them() -> None:
    """The second record makes the window that ends with it, and the one behind the first."""
    rows = run(Node({"s": DictWindowStore()}), [("k", "x", 20), ("k", "x", 25)], aggregation(send_old=True))
    assert rows == [((10, 20), (1, None), 20), ((21, 31), (1, None), 25), ((15, 25), (2, None), 25)]


def test_a_record_between_others_makes_a_window_of_those_behind_it() -> None:
    """It begins right behind the record, and is not yet counted as an update of anything."""
    rows = run(Node({"s": DictWindowStore()}), [("k", "x", 25), ("k", "x", 20)], aggregation(send_old=True))
    assert rows == [((15, 25), (1, None), 25), ((15, 25), (2, 1), 25), ((10, 20), (1, None), 20), ((21, 31), (1, None), 25)]


def test_early_records_share_a_window_from_the_epoch_on() -> None:
    """There is no time before it."""
    rows = run(Node({"s": DictWindowStore()}), [("k", "x", 3), ("k", "x", 7), ("k", "x", 1)], aggregation())
    assert rows == [
        ((0, 10), (1, None), 3),
        ((4, 14), (1, None), 7),
        ((0, 10), (2, None), 7),
        ((2, 12), (2, None), 7),
        ((0, 10), (3, None), 7),
    ]


def test_a_window_that_begins_right_behind_an_early_record_is_made_once() -> None:
    """The second record of a time finds it."""
    rows = run(Node({"s": DictWindowStore()}), [("k", "x", 5), ("k", "x", 3), ("k", "x", 3)], aggregation())
    assert [row for row in rows if row[0].start] == [((4, 14), (1, None), 5)]


def test_records_without_key_or_value_and_late_ones_are_dropped() -> None:
    """A record is late when the window that begins with it takes no more; each late window of one that is not late counts too."""
    node = Node({"s": DictWindowStore()})
    run(node, [("k", "x", 50), (None, "x", 50), ("k", None, 50), ("k", "x", 39), ("k", "x", 40)], aggregation(10, 0))
    # the record of 39 as a whole; that of 40 for the window that ends with it, though not for the one around 50
    assert node.dropped_count == 4


def test_a_time_has_one_window_that_ends_with_it() -> None:
    """A second record of the same time changes the present windows."""
    rows = run(Node({"s": DictWindowStore()}), [("k", "x", 20), ("k", "y", 20)], aggregation(aggregator=folded))
    assert rows == [((10, 20), ("x", None), 20), ((10, 20), ("xy", None), 20)]


def test_deleted_results_are_gone() -> None:
    """The next record of the window begins anew."""
    store = DictWindowStore()
    rows = run(Node({"s": store}), [("k", "x", 20), ("k", "z", 20), ("k", "y", 20)], aggregation(aggregator=folded_by_key, initializer=str))
    assert rows == [((10, 20), ("x", None), 20), ((10, 20), (None, None), 20), ((10, 20), ("y", None), 20)]
    assert store.entries == {("k", 10): ("y", 20)}


def test_aggregates_that_are_changed_in_place_do_not_get_into_two_windows() -> None:
    """A window that begins with records of another one has a copy of its own."""
    store = DictWindowStore()
    run(
        Node({"s": store}),
        [("k", 1, 25), ("k", 2, 20), ("k", 3, 22), ("k", 4, 3), ("k", 5, 1)],
        aggregation(aggregator=grown_by_key, initializer=list),
    )
    values = {start: sorted(value) for (_, start), (value, _) in store.entries.items()}
    assert values[15] == [1, 2, 3]
    assert values[12] == [2, 3]
    assert values[21] == [1, 3]
    assert values[23] == [1]
    assert values[0] == [4, 5]


def test_a_window_comes_out_once_when_it_closes() -> None:
    """By start and key, with the time of its result, when stream time has passed its end by more than the grace period."""
    node = Node({"s": DictWindowStore()})
    records = [("b", "x", 20), ("a", "x", 20), ("a", "x", 25), ("c", "x", 31), ("c", "x", 60)]
    rows = run(node, records, aggregation(10, 5), on_close=True)
    assert [(row.key.key, row.key.window) for row in node.rows] == [
        ("a", (10, 20)),
        ("b", (10, 20)),
        ("a", (15, 25)),
        ("a", (21, 31)),
        ("c", (21, 31)),
    ]
    assert rows[2] == ((15, 25), (2, None), 25)
    assert node.progress["s"] == 55


def test_results_come_out_once_across_a_restart() -> None:
    """The progress is committed with the offsets."""
    store = DictWindowStore()
    first = Node({"s": store})
    assert len(run(first, [("a", "x", 20), ("b", "x", 40)], aggregation(10, 0), on_close=True)) == 1
    second = Node({"s": store})
    second.progress.update(first.progress)
    late = ("a", "x", 20)
    assert [window for window, _, _ in run(second, [late, ("c", "x", 60), ("c", "x", 60)], aggregation(10, 0), on_close=True)] == [(30, 40)]
    assert second.dropped_count == 1
