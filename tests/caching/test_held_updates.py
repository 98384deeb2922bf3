"""What comes of updates that are held back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .helpers import TABLES, Piped, driver

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.sampled_from(["x", "y", "z", "w", None]), st.integers(0, 60)), min_size=1, max_size=12
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["in", "other"]), ROWS, st.booleans()),
        st.tuples(st.just("in"), ROWS.map(lambda rows: sorted(rows, key=lambda row: row[2])), st.booleans()),
        st.tuples(st.just("flush"), st.one_of(st.none(), st.integers(0, 5)), st.integers(1, 4)),
    ),
    max_size=10,
)
LIMITS = st.sampled_from([1, 400, 1_000, 1 << 20])


def run(kind: str, limit: int, steps: list[Any]) -> Piped:
    """Give a task batches; return it when all has come out."""
    with driver(kind, limit) as made:
        piped = Piped(made)
        topics = {partition.topic for partition in piped.task.group.queues}
        for what, rows, more in steps:
            if what == "flush":
                piped.flush(rows, more)
            elif what in topics:
                piped.feed(what, rows, [((f"h{at}", b"1"),) if at % 2 else () for at in range(len(rows))] if more else None)
        piped.flush()
        assert piped.budget.used == 0
        return piped


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=40, deadline=None)
@given(limit=LIMITS, steps=STEPS)
def test_the_table_downstream_comes_to_the_same(kind: str, limit: int, steps: list[Any]) -> None:
    """Whenever a cache is flushed and however small it is, the last update of each row is that without a cache, with its timestamp.

    Each update says as the old value what was sent before: the topology has an aggregate of all rows that fails on others.
    """
    with_cache, without = run(kind, limit, steps).table(), run(kind, 0, steps).table()
    if kind == "count of what was counted":
        assert with_cache.keys() == without.keys()  # what counts updates sees fewer
    elif kind == "join" or kind.endswith("of a table") or "of a table," in kind:
        # Updates that were never sent leave no time, and no group that was left empty.
        assert values(with_cache) == values(without)
    else:
        assert with_cache == without


def values(table: Mapping[Any, tuple[bytes, int]]) -> dict[Any, bytes]:
    """Return the rows that are not empty, without their times."""
    return {key: value for key, (value, _) in table.items() if value not in {b"0", b"[]"}}
