"""Aggregations per window of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import ProcessingFailed
from ks_actors.processors.aggregates._final_windows import FinalWindowedAggregate
from ks_actors.processors.aggregates._tumbling_batches import _window
from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
from ks_actors.processors.aggregates._windowed import UnlimitedAggregate, WindowedAggregate
from ks_actors.processors.aggregates._windows_for import regular_windows
from ks_actors.processors.api import LATEST_MS
from ks_actors.records._batch import Batch
from ks_actors.records._windowed import Window, Windowed
from tests.ks_actors.processors.helpers import DictWindowStore, Node, Row, one_by_one, run
from tests.ks_actors.processors.records import batches, folded, folded_by_key, grown_by_key

SIZES = st.sampled_from([(10, 10), (10, 5), (10, 3), (7, 7), (5, 1)])
FOLDS: list[tuple[Callable[..., Any] | None, Callable[[], Any] | None]] = [(None, None), (folded, None), (folded_by_key, str), (grown_by_key, list)]


def new_store() -> DictWindowStore:
    store = DictWindowStore()
    store.broken = {"broken"}
    return store


@given(batches(), SIZES, st.integers(0, 12), st.sampled_from(FOLDS), st.booleans())
def test_windows_in_batches_are_windows_one_by_one(
    records: list[Batch], size: tuple[int, int], grace: int, fold: tuple[Any, Any], send_old: bool
) -> None:
    """Tumbling and hopping; counts, reduces and aggregates; late, failing and keyless records: same rows, drops, failures and store."""
    aggregation = WindowAggregation(
        store="s",
        size_ms=size[0],
        advance_ms=size[1],
        grace_ms=grace,
        aggregator=fold[0],
        initializer=fold[1],
        send_old=send_old,
    )
    operator = WindowedAggregate(aggregation)
    by_record = run(operator, {"s": new_store()}, records, in_batches=False, snapshot=repr)
    by_batch = run(operator, {"s": new_store()}, records, in_batches=True, snapshot=repr)
    assert by_batch == by_record


def tumbling(grace: int = 0, **options: Any) -> WindowAggregation:
    return WindowAggregation(store="s", size_ms=10, advance_ms=10, grace_ms=grace, **options)


@pytest.mark.parametrize(("aggregator", "initializer"), FOLDS)
@pytest.mark.parametrize("advance", [10, 5])
def test_a_batch_with_everything_in_it_is_as_its_records(aggregator: Any, initializer: Any, advance: int) -> None:
    """Keyless, failing and late records, several windows, keys that come again, times that go back: for every kind of aggregation."""
    aggregation = WindowAggregation(
        store="s", size_ms=10, advance_ms=advance, grace_ms=5, aggregator=aggregator, initializer=initializer, send_old=advance == 10
    )
    keys = ["a", "a", None, "a", "broken", "b", "a", "a", "a", "b"]
    values = ["x", "y", "x", "!", "x", "x", "y", "x", "x", "x"]
    records = Batch(keys, values, [3, 2, 50, 4, 5, 12, 8, 30, 1, 31], None, range(10))
    outcomes = [run(WindowedAggregate(aggregation), {"s": new_store()}, [records, records], in_batches=way, snapshot=repr) for way in (False, True)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].dropped > 2
    assert {failure.offset for failure in outcomes[1].failures} >= {4}


def test_a_record_counts_in_the_window_that_it_falls_into() -> None:
    """The window's start belongs to it, its end does not; records without value count, those without key are dropped."""
    records = Batch(["a", "a", "a", None], ["x", None, "x", "x"], [0, 9, 10, 11], None, range(4))
    outcome = run(WindowedAggregate(tumbling()), {"s": DictWindowStore()}, [records], in_batches=True)
    first, second = Windowed("a", Window(0, 10)), Windowed("a", Window(10, 20))
    assert outcome.rows == [Row(first, (1, None), 0, (), 0), Row(first, (2, None), 9, (), 1), Row(second, (1, None), 10, (), 2)]
    assert outcome.dropped == 1


def test_a_window_takes_late_records_until_its_grace_is_over() -> None:
    """Stream time one before end plus grace: taken. At it: dropped."""
    for grace, taken in ((5, 1), (4, 0)):
        records = Batch(["b", "a"], ["x", "x"], [14, 9])
        outcome = run(WindowedAggregate(tumbling(grace)), {"s": DictWindowStore()}, [records], in_batches=False)
        assert len(outcome.rows) == 1 + taken
        assert outcome.dropped == 1 - taken


def test_a_late_record_is_dropped_window_by_window() -> None:
    """A record of hopping windows counts in those that are open, and once as dropped for each one that is not."""
    aggregation = WindowAggregation(store="s", size_ms=10, advance_ms=5, grace_ms=0)
    records = Batch(["b", "a"], ["x", "x"], [12, 7])
    for in_batches in (False, True):
        outcome = run(WindowedAggregate(aggregation), {"s": DictWindowStore()}, [records], in_batches=in_batches)
        assert [row.key.window for row in outcome.rows if row.key.key == "a"] == [(5, 15)]
        assert outcome.dropped == 1


def test_windows_begin_no_earlier_than_the_epoch() -> None:
    """The first hopping window is whole."""
    aggregation = WindowAggregation(store="s", size_ms=10, advance_ms=5, grace_ms=0)
    outcome = run(WindowedAggregate(aggregation), {"s": DictWindowStore()}, [Batch(["a"], ["x"], [3])], in_batches=True)
    assert [row.key.window for row in outcome.rows] == [(0, 10)]


def test_window_objects_are_shared_and_not_kept_for_ever() -> None:
    """A thousand at most are remembered."""
    windows: dict[int, Window] = {}
    for start in range(0, 25_000, 10):
        assert _window(windows, start, 10) == Window(start, start + 10)
        assert len(windows) <= 1_000


@given(st.integers(1, 60), st.data())
def test_records_share_the_windows_of_their_time(size: int, data: st.DataObject) -> None:
    """The windows are those that contain the timestamp, by start, whichever timestamps came before."""
    advance = data.draw(st.integers(1, size))
    windows_for = regular_windows(size, advance)
    for timestamp in data.draw(st.lists(st.integers(0, 300) | st.integers(LATEST_MS - 300, LATEST_MS), min_size=1, max_size=30)):
        first = max(0, timestamp - size) // advance * advance
        expected = [Window(start, start + size) for start in range(first, timestamp + 1, advance) if start + size > timestamp]
        assert [window for _, _, window in windows_for(timestamp)] == expected
        assert [(start, end) for start, end, _ in windows_for(timestamp)] == expected
        assert windows_for(timestamp) is windows_for(timestamp)


@pytest.mark.parametrize("size", [10, 1_000])
def test_shared_windows_are_forgotten(size: int) -> None:
    """A thousand are remembered, or the windows of one timestamp if they are more."""
    windows_for = regular_windows(size, 10)
    first = windows_for(0)
    for timestamp in range(10, 25_000, 10):
        windows_for(timestamp)
    assert windows_for(0) is not first


def test_results_of_a_batch_that_ends_with_an_error_are_not_sent() -> None:
    """They do not come out with the next batch either."""
    node = Node({"s": new_store()}, go_on=False)
    aggregation = WindowAggregation(store="s", size_ms=10, advance_ms=5, grace_ms=0)
    batch = WindowedAggregate(aggregation).bind(node).batch
    assert batch is not None
    with pytest.raises(ProcessingFailed):
        batch(Batch(["a", "broken"], ["x", "x"], [1, 2]))
    batch(Batch(["b"], ["x"], [3]))
    assert [row.key.key for row in node.rows] == ["b"]


def test_a_windowed_key_is_written_as_kafka_streams_does() -> None:
    """Key, at sign, start, slash, end."""
    assert str(Windowed("k", Window(5, 15))) == "[k@5/15]"


def final(node: Node, records: Batch, grace: int = 0, **options: Any) -> list[Row]:
    one_by_one(FinalWindowedAggregate(tumbling(grace, **options)).bind(node), node, records)
    return node.rows


def test_a_window_comes_out_once_when_it_closes_by_start_then_key() -> None:
    """With the time of its result and the headers of the record that closed it; open windows do not come out."""
    node = Node({"s": DictWindowStore()})
    headers = (("h", b"1"),)
    rows = final(node, Batch(["b", "a", "b", "a", "c"], ["x"] * 5, [3, 5, 12, 4, 25], [(), (), (), (), headers], range(5)))
    closed = [(row.key, row.value, row.timestamp, row.headers) for row in rows]
    assert closed == [
        (Windowed("a", Window(0, 10)), (1, None), 5, ()),
        (Windowed("b", Window(0, 10)), (1, None), 3, ()),
        (Windowed("b", Window(10, 20)), (1, None), 12, headers),
    ]
    assert node.dropped_count == 1


def test_no_result_is_lost_to_a_store_that_keeps_no_more_than_size_and_grace() -> None:
    """A jump of stream time closes windows that the store would forget at the same record's put."""
    node = Node({"s": DictWindowStore(retention_ms=10)})
    rows = final(node, Batch(["a", "b", "c"], ["x"] * 3, [3, 13, 1_000]))
    assert [row.key for row in rows] == [Windowed("a", Window(0, 10)), Windowed("b", Window(10, 20))]


def test_results_come_out_once_also_across_a_restart() -> None:
    """The time up to which they came out is committed with the task's offsets: the next owner goes on from there."""
    store = DictWindowStore()
    first = Node({"s": store})
    assert len(final(first, Batch(["a", "b"], ["x"] * 2, [3, 13]))) == 1
    second = Node({"s": store})
    second.progress.update(first.progress)
    rows = final(second, Batch(["a", "c"], ["x"] * 2, [4, 23]))
    assert [row.key for row in rows] == [Windowed("b", Window(10, 20))]
    assert second.dropped_count == 1, "the window of 4 has come out"


def test_a_window_whose_result_was_deleted_does_not_come_out() -> None:
    """There is nothing to tell."""
    node = Node({"s": DictWindowStore()})
    assert final(node, Batch(["a", "a", "b"], ["x", "z", "x"], [1, 2, 30]), aggregator=folded) == []


def test_keyless_records_close_nothing() -> None:
    """They are dropped before their time is looked at."""
    node = Node({"s": DictWindowStore()})
    assert final(node, Batch(["a", None], ["x", "x"], [1, 50])) == []
    assert node.dropped_count == 1


def test_an_unlimited_window_takes_all_from_its_start_on() -> None:
    """Earlier records are left out and not counted as dropped, keyless ones are dropped."""
    node = Node({"s": DictWindowStore()})
    aggregation = WindowAggregation(store="s", size_ms=LATEST_MS, advance_ms=LATEST_MS, grace_ms=0, send_old=True)
    bound = UnlimitedAggregate(aggregation, start_ms=10).bind(node)
    one_by_one(bound, node, Batch(["a", "a", None, "a"], ["x"] * 4, [9, 30, 30, 20]))
    key = Windowed("a", Window(10, LATEST_MS))
    assert [(row.key, row.value, row.timestamp) for row in node.rows] == [(key, (1, None), 30), (key, (2, 1), 30)]
    assert node.dropped_count == 1


def test_an_unlimited_window_forgets_a_deleted_result() -> None:
    """The next record begins anew."""
    node = Node({"s": DictWindowStore()})
    aggregation = WindowAggregation(store="s", size_ms=LATEST_MS, advance_ms=LATEST_MS, grace_ms=0, aggregator=folded)
    one_by_one(UnlimitedAggregate(aggregation, start_ms=0).bind(node), node, Batch(["a"] * 3, ["x", "z", "y"], [3, 2, 1]))
    assert [(row.value, row.timestamp) for row in node.rows] == [(("x", None), 3), ((None, None), 3), (("y", None), 1)]
