"""Aggregations per window of windows that users compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.processors.aggregates._final_windows import FinalWindowedAggregate
from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
from ks_actors.processors.aggregates._windowed import WindowedAggregate
from ks_actors.processors.api import Operator
from ks_actors.records._batch import Batch
from ks_actors.records._windowed import Window, Windowed
from tests.ks_actors.dsl.windows.uneven import Uneven
from tests.ks_actors.processors.helpers import DictWindowStore, Node, Outcome, one_by_one, run
from tests.ks_actors.processors.records import batches, folded, folded_by_key, grown_by_key

FOLDS: list[tuple[Callable[..., Any] | None, Callable[[], Any] | None]] = [(None, None), (folded, None), (folded_by_key, str), (grown_by_key, list)]
SIZES = st.sampled_from([(10, 10), (10, 5), (10, 3), (7, 7), (5, 1)])
UNEVEN = Uneven(12, 0)


@dataclass(frozen=True)
class Regular:
    """Kafka Streams' hopping windows, as a user would compute them."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    def windows_for(self, timestamp: int) -> list[Window]:
        return [
            Window(start, start + self.size_ms)
            for start in range(timestamp - timestamp % self.advance_ms, timestamp - self.size_ms, -self.advance_ms)
            if start >= 0
        ]


def aggregation(size: int, advance: int, grace: int, fold: tuple[Any, Any], *, send_old: bool = False) -> WindowAggregation:
    return WindowAggregation(store="s", size_ms=size, advance_ms=advance, grace_ms=grace, aggregator=fold[0], initializer=fold[1], send_old=send_old)


def outcome(operator: Operator, records: list[Batch], *, in_batches: bool = False) -> Outcome:
    store = DictWindowStore()
    store.broken = {"broken"}
    return run(operator, {"s": store}, records, in_batches=in_batches, snapshot=repr)


@given(batches(), SIZES, st.integers(0, 12), st.sampled_from(FOLDS), st.booleans())
def test_windows_that_a_user_computes_are_windows(
    records: list[Batch], size: tuple[int, int], grace: int, fold: tuple[Any, Any], send_old: bool
) -> None:
    """Those of TimeWindows, computed by a function: the same rows, drops, failures and store, record by record and in batches."""
    made = aggregation(*size, grace, fold, send_old=send_old)
    own = WindowedAggregate(made, Regular(*size))
    known = outcome(WindowedAggregate(made), records)
    assert outcome(own, records) == known
    assert outcome(own, records, in_batches=True) == known


@given(batches(), SIZES, st.integers(0, 12), st.sampled_from(FOLDS), st.booleans())
def test_final_results_are_those_of_known_windows(
    records: list[Batch], size: tuple[int, int], grace: int, fold: tuple[Any, Any], tumbling: bool
) -> None:
    """The same ones at the same records; with windows that are known to be side by side, and without."""
    made = aggregation(*size, grace, fold)
    side_by_side = tumbling and size[0] == size[1]
    own = FinalWindowedAggregate(made, Regular(*size), tumbling=side_by_side)
    assert outcome(own, records) == outcome(FinalWindowedAggregate(made), records)


def model(records: list[Batch], windows: Uneven, grace: int) -> tuple[dict[tuple[str, int], int], int]:
    """Return the counts of all windows, and the number of drops."""
    counts: dict[tuple[str, int], int] = {}
    dropped, now = 0, -1
    for batch in records:
        for key, timestamp in zip(batch.keys, batch.timestamps, strict=True):
            if key is None:
                dropped += 1
                continue
            now = max(now, timestamp)
            for start, end in windows.windows_for(timestamp):
                if end + grace <= now:
                    dropped += 1
                else:
                    counts[key, start] = counts.get((key, start), 0) + 1
    return counts, dropped


KEYS = st.sampled_from(["a", "b", None])


@given(batches(keys=KEYS), st.integers(0, 12))
def test_uneven_windows_count_as_a_model_does(records: list[Batch], grace: int) -> None:
    """Windows of several lengths that overlap: every count is the model's, and so is the number of drops."""
    counted = outcome(WindowedAggregate(aggregation(8, 8, grace, (None, None)), UNEVEN), records)
    counts, dropped = model(records, UNEVEN, grace)
    assert {handle: entry[0] for handle, entry in counted.stores["s"].items()} == counts
    assert counted.dropped == dropped


@given(batches(keys=KEYS), st.integers(0, 12), st.integers(0, 25))
def test_uneven_windows_close_once_each_with_all_their_records(records: list[Batch], grace: int, cut: int) -> None:
    """When stream time has passed their end by the grace period; a task that takes over goes on with what the store has."""
    end = Batch(["end"], ["x"], [10_000])
    store = DictWindowStore()
    operator = FinalWindowedAggregate(aggregation(8, 8, grace, (None, None)), UNEVEN)
    node = Node({"s": store})
    rows: list[Any] = []
    bound, pieces = operator.bind(node), [*records, end]
    for number, batch in enumerate(pieces):
        if number == cut % len(pieces):
            # What a commit keeps: numbers, and a clock as its time.
            after = Node({"s": store})
            after.progress = {name: int(value) for name, value in node.progress.items()}
            rows += node.rows
            node, bound = after, operator.bind(after)
        one_by_one(bound, node, batch)
    rows += node.rows
    found = {(row.key.key, row.key.window.start): row.value[0] for row in rows}
    assert len(found) == len(rows)
    counts, _ = model(records, UNEVEN, grace)
    assert found == counts
    for row in rows:
        assert row.key.window in list(UNEVEN.windows_for(row.key.window.start))


def test_windows_that_close_together_come_out_by_start_then_key() -> None:
    """The order holds also for windows that end before others that begin earlier."""
    node = Node({"s": DictWindowStore()})
    operator = FinalWindowedAggregate(aggregation(8, 8, 0, (None, None)), UNEVEN)
    one_by_one(operator.bind(node), node, Batch(["b", "a", "z"], ["x"] * 3, [4, 4, 100]))
    windows = [Window(0, 8), Window(2, 10), Window(4, 5)]
    assert [row.key for row in node.rows] == [Windowed(key, window) for window in windows for key in "ab"]


@dataclass(frozen=True)
class Wrong:
    """Windows that are not as they should be."""

    found: Iterable[Any]
    size_ms: int = 10
    grace_ms: int = 0

    def windows_for(self, _: int) -> Iterable[Window]:
        return self.found


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([(0, 10)], "return Window(start, end) objects"),
        ([Window(-1, 9)], "return windows from 0 on that contain the timestamp"),
        ([Window(6, 10)], "return windows from 0 on that contain the timestamp"),
        ([Window(0, 5)], "return windows from 0 on that contain the timestamp"),
        ([Window(0, 11)], "return windows of at most size_ms, 10"),
        ([Window(0, 10), Window(0, 9)], "return windows with different starts"),
    ],
)
@pytest.mark.parametrize("final", [False, True])
def test_wrong_windows_are_an_error_of_the_record(found: list[Any], text: str, final: bool) -> None:
    """The handler is asked about it, and the error says what the function returned."""
    kind = FinalWindowedAggregate if final else WindowedAggregate
    operator = kind(aggregation(10, 10, 0, (None, None)), Wrong(found))
    for in_batches in (False, *([] if final else [True])):
        result = outcome(operator, [Batch(["a"], ["x"], [5], None, [7])], in_batches=in_batches)
        (failure,) = result.failures
        assert text in failure.error
        assert failure.error.startswith("windows_for(5) of Wrong(")
        assert failure.offset == 7
        assert not result.stores["s"]


def test_a_timestamp_may_be_in_no_window() -> None:
    """Such a record changes nothing, and does not count as dropped."""
    result = outcome(WindowedAggregate(aggregation(10, 10, 0, (None, None)), Wrong([])), [Batch(["a"], ["x"], [5])])
    assert not result.rows
    assert result.dropped == 0
