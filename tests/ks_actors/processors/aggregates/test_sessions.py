"""Aggregations per session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.processors.aggregates._final_sessions import FinalSessionAggregate
from ks_actors.processors.aggregates._sessions import SessionAggregate, SessionAggregation
from ks_actors.processors.api._operator import Operator
from ks_actors.processors.tables._views import SessionView
from ks_actors.records._batch import Batch
from ks_actors.records._windowed import Window, Windowed
from ks_actors.serdes import STRING, json
from ks_actors.state import SessionStore, TaskStores
from ks_actors.topology import stores
from tests.ks_actors.processors.helpers import Node, Row, one_by_one
from tests.ks_actors.processors.records import HEADERS, batches, folded, folded_by_key, grown_by_key

KEYS = st.sampled_from(["a", "b", None])
LATEST = 2**63 - 1


def joined(_: str, one: str, other: str) -> str:
    return f"{one}&{other}"


def chained(_: str, one: list[Any], other: list[Any]) -> list[Any]:
    """Change the first in place."""
    one.extend(other)
    return one


Functions = tuple["Callable[..., Any] | None", "Callable[[], Any] | None", "Callable[..., Any] | None"]
FOLDS: list[Functions] = [(None, None, None), (folded, None, None), (folded_by_key, str, joined), (grown_by_key, list, chained)]


def new_store(retention_ms: int = 1 << 40) -> SessionStore[str, Any]:
    spec = stores.session("s", STRING, json(), retention_ms=retention_ms, type="in_memory")
    task = TaskStores("0_0", [spec], directory=None, shared=None, record_time=lambda: 0, expired=lambda _: None)
    task.open()
    store: SessionStore[str, Any] = task.store("s")
    return store


def sessions(gap: int = 10, grace: int = 0, fold: Functions = FOLDS[0], **options: Any) -> SessionAggregation:
    aggregator, initializer, merger = fold
    return SessionAggregation(store="s", gap_ms=gap, grace_ms=grace, aggregator=aggregator, initializer=initializer, merger=merger, **options)


def at(key: str, start: int, end: int) -> Windowed[str]:
    return Windowed(key, Window(start, end))


def drive(operator: Operator, records: Sequence[Batch], *, in_batches: bool) -> tuple[Any, ...]:
    """Return the results of an operator for records: rows, drops, failures, and the content of the store."""
    store = new_store()
    node = Node({"s": store})
    node.snapshot = repr
    bound = operator.bind(node)
    for batch in records:
        if in_batches and bound.batch is not None:
            bound.batch(batch)
        else:
            one_by_one(bound, node, batch)
    return node.rows, node.dropped_count, node.failures, list(store.fetch_range(None, None))


@given(batches(KEYS), st.sampled_from([0, 1, 5, 10]), st.integers(0, 12), st.sampled_from(FOLDS), st.booleans())
def test_sessions_in_batches_are_sessions_one_by_one(records: list[Batch], gap: int, grace: int, fold: Functions, send_old: bool) -> None:
    """Counts, reduces and aggregates; late, failing and keyless records: same rows, drops, failures and store."""
    operator = SessionAggregate(sessions(gap, grace, fold, send_old=send_old))
    by_batch = drive(operator, records, in_batches=True)
    assert by_batch == drive(operator, records, in_batches=False)


@given(batches(KEYS), st.sampled_from([0, 1, 5, 10]), st.integers(0, 12))
def test_final_results_are_the_last_updates(records: list[Batch], gap: int, grace: int) -> None:
    """For each closed session the one result is the last update, unless it has grown into another since."""
    final_rows = drive(FinalSessionAggregate(sessions(gap, grace)), records, in_batches=False)[0]
    update_rows, _, _, left = drive(SessionAggregate(sessions(gap, grace)), records, in_batches=False)
    updates = [(row.key, row.value) for row in update_rows]
    finals = [row for row in final_rows if (row.key, row.value) in updates]
    assert len(finals) == len(final_rows)
    latest = max((time for batch in records for key, time in zip(batch.keys, batch.timestamps, strict=True) if key is not None), default=0)
    closed = {window for window, _ in left if window.window.end < latest - gap - grace}
    assert closed <= {row.key for row in final_rows}
    assert all(row.timestamp == row.key.window.end for row in final_rows)


def test_sessions_become_one() -> None:
    """Those that a record touches, on either side, are deleted, the earliest first; the one that they become has no old value. None has headers."""
    store = new_store()
    node = Node({"s": store})
    process = SessionAggregate(sessions(fold=FOLDS[2], send_old=True)).bind(node).process
    for value, timestamp in (("x", 0), ("y", 20), ("z", 100), ("w", 10)):
        process("a", value, timestamp, HEADERS)
    # "z" deletes
    assert node.rows == [
        Row(at("a", 0, 0), ("x", None), 0, (), None),
        Row(at("a", 20, 20), ("y", None), 20, (), None),
        Row(at("a", 100, 100), (None, None), 100, (), None),
    ]
    assert node.dropped_count == 1
    node = Node({"s": store})
    process = SessionAggregate(sessions(fold=FOLDS[2], grace=1000, send_old=True)).bind(node).process
    process("a", "w", 10, HEADERS)
    assert node.rows == [
        Row(at("a", 0, 0), (None, "x"), 0, (), None),
        Row(at("a", 20, 20), (None, "y"), 20, (), None),
        Row(at("a", 0, 20), ("&x&yw", None), 20, (), None),
    ]
    assert list(store.fetch("a")) == [(at("a", 0, 20), "&x&yw")]
    assert store.get_entry("a", 0, 20) == ("&x&yw", 10)  # the time of its changelog's record


def test_a_record_at_the_time_of_a_session_of_one_record_deletes_nothing() -> None:
    """The session is the same one: its new result comes with the old one, which Kafka Streams leaves out."""
    for faults, old in ((False, 1), (True, None)):
        node = Node({"s": new_store()})
        node.kafka_streams_faults = faults
        process = SessionAggregate(sessions(gap=0, send_old=True)).bind(node).process
        process("a", "x", 5, ())
        process("a", "x", 5, ())
        assert [(row.key, row.value) for row in node.rows] == [(at("a", 5, 5), (1, None)), (at("a", 5, 5), (2, old))]


def test_a_session_takes_records_up_to_gap_and_grace_behind_stream_time() -> None:
    """Its own end counts, as long as the record makes it: a record is late when its session would end before stream time minus both."""
    node = Node({"s": new_store()})
    process = SessionAggregate(sessions(gap=5, grace=3)).bind(node).process
    for key, timestamp in (("a", 10), ("b", 20), ("c", 12), ("d", 11), ("a", 7), ("a", 15)):
        process(key, "x", timestamp, ())
    assert node.dropped_count == 2  # d at 11, and a at 7, which together with that at 10 ends at 10
    assert [row.key for row in node.rows if row.value[0]] == [at("a", 10, 10), at("b", 20, 20), at("c", 12, 12), at("a", 10, 15)]


def test_final_results_come_once_and_in_the_order_of_their_ends() -> None:
    """When stream time has passed the end by more than gap and grace; with the headers of the record that moved it."""
    node = Node({"s": new_store()})
    process = FinalSessionAggregate(sessions(gap=2)).bind(node).process
    for key, timestamp in (("b", 1), ("a", 1), ("a", 2), ("c", 1), ("a", 4), ("b", 6)):
        process(key, "x", timestamp, HEADERS)
    assert [(str(row.key), row.value[0], row.timestamp) for row in node.rows] == [("[b@1/1]", 1, 1), ("[c@1/1]", 1, 1)]
    process("z", "x", 7, ())
    process("z", "x", 100, HEADERS)
    assert [(str(row.key), row.value[0], row.headers) for row in node.rows[2:]] == [
        ("[a@1/4]", 3, ()),
        ("[b@6/6]", 1, HEADERS),
        ("[z@7/7]", 1, HEADERS),
    ]
    assert node.progress == {"s": 98}


def test_emitted_results_are_remembered() -> None:
    """The next owner forwards nothing again, drops its late records, and forwards sessions that had not closed yet."""
    store = new_store()
    node = Node({"s": store})
    process = FinalSessionAggregate(sessions(gap=2)).bind(node).process
    for key, timestamp in (("a", 1), ("b", 9), ("a", 10)):
        process(key, "x", timestamp, ())
    assert [str(row.key) for row in node.rows] == ["[a@1/1]"]
    after = Node({"s": store})
    after.progress = dict(node.progress)
    process = FinalSessionAggregate(sessions(gap=2)).bind(after).process
    process("late", "x", 7, ())
    assert after.dropped_count == 1
    process("c", "x", 13, ())
    process("c", "x", 14, ())
    assert [str(row.key) for row in after.rows] == ["[b@9/9]", "[a@10/10]"]


def test_a_session_that_has_come_out_may_grow() -> None:
    """A late record that joins it to one that is still open: the longer one comes out in its turn."""
    node = Node({"s": new_store()})
    process = FinalSessionAggregate(sessions(gap=5)).bind(node).process
    for timestamp in (0, 8, 5, 100):
        process("a", "x", timestamp, ())
    assert [(str(row.key), row.value[0]) for row in node.rows] == [("[a@0/0]", 1), ("[a@0/8]", 3)]


def test_a_view_reads_sessions() -> None:
    """By the windowed key, at the session's end."""
    store = new_store()
    store.put(at("a", 3, 9), 5)
    get = SessionView("s").bind(Node({"s": store})).get
    assert (get(at("a", 3, 9)), get(at("a", 3, 8))) == ((5, 9), None)
    assert SessionView("s").stores == ("s",)


@pytest.mark.parametrize("fold", FOLDS)
def test_a_failing_function_leaves_the_sessions_that_there_are(fold: Functions) -> None:
    """When the aggregator fails, the sessions that were to become one stay as they were; other records are not touched."""
    if fold[0] is None:
        return
    operator = SessionAggregate(sessions(fold=fold))
    records = [Batch(["a", "a", "a", "b"], ["x", "y", "!", "x"], [0, 5, 7, 7], None, range(4))]
    rows, _, failures, left = drive(operator, records, in_batches=True)
    assert [failure.offset for failure in failures] == [2]
    assert [row.key for row in rows] == [at("a", 0, 0), at("a", 0, 0), at("a", 0, 5), at("b", 7, 7)]
    assert sorted(window for window, _ in left) == [at("a", 0, 5), at("b", 7, 7)]
