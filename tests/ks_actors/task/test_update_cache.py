"""The output of cached updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ks_actors import FailedRecord, HandlerResponse, Window, Windowed
from ks_actors.dsl import BufferConfig, Consumed, Materialized, Produced, StreamsBuilder, Suppressed, Table, TimeWindows
from ks_actors.processors import Processor, Record, RecordMetadata
from ks_actors.serdes import LONG, STRING, Serde, json, session_windowed, windowed
from ks_actors.task._update_cache import CacheBudget
from ks_actors.testing import TopologyTestDriver
from tests.examples_of import examples
from tests.ks_actors.task.cached_tables import TABLES, WORDS, Piped, driver

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
@settings(max_examples=examples(40))
@given(limit=LIMITS, steps=STEPS)
@example(limit=400, steps=[("other", [("b", "x", 0)], False), ("in", [("b", "x", 0)], False), ("flush", 1, 1), ("other", [("b", None, 0)], False)])
@example(limit=400, steps=[("in", [("b", "x", 0)], False), ("other", [("b", "x", 0)], False), ("flush", 1, 1), ("in", [("b", None, 0)], False)])
@example(
    limit=1 << 20,
    steps=[("other", [("d", None, 57), ("d", None, 58)], False), ("in", [("d", "w", 33)], False), ("flush", 0, 3), ("in", [("d", None, 60)], False)],
)
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


def test_rows_go_by_their_first_update() -> None:
    """The first of all that were updated since they were last sent goes first; each with its last value, time and headers."""
    with driver("count", 1 << 20) as made:
        piped = Piped(made)
        piped.feed("in", [("b", "x", 1), ("a", "x", 9), ("b", "x", 5)], [(("h", b"1"),), (), (("h", b"2"),)])
        assert (piped.out, piped.task.cached_updates) == ([], 2)
        piped.feed("in", [("c", "x", 2), ("b", "x", 3)], [(), ()])
        piped.flush(0, 2)
        assert piped.out == [(b"b", b"3", 5, ()), (b"a", b"1", 9, ())]
        piped.feed("in", [("b", "x", 4)], [(("h", b"3"),)])
        piped.flush()
        assert piped.out[2:] == [(b"c", b"1", 2, ()), (b"b", b"4", 5, (("h", b"3"),))]
        assert piped.task.cached_updates == 0


def test_from_nothing_to_nothing_nothing_is_sent() -> None:
    """A row that came and went while it was held has never been there; one that was sent is deleted, at the time of the delete."""
    with driver("table", 1 << 20) as made:
        piped = Piped(made)
        piped.feed("in", [("a", "x", 1), ("a", None, 2), ("b", "x", 3)])
        piped.flush()
        piped.feed("in", [("b", "y", 4), ("b", None, 5), ("c", None, 6)])
        piped.flush()
        assert piped.out == [(b"b", b'"x"', 3, ()), (b"b", None, 5, ())]


def test_a_session_that_grows_holds_one_row() -> None:
    """A row that was never sent leaves nothing behind, and nothing is sent. A sent one is deleted, at its end."""
    with driver("session count", 1 << 20) as made:
        piped = Piped(made)
        piped.feed("in", [("a", "x", time) for time in range(100)])
        assert piped.task.cached_updates == 1
        piped.flush()
        key = session_windowed(STRING).serializer("out", is_key=True)
        assert piped.out == [(key(Windowed("a", Window(0, 99))), b"100", 99, ())]
        piped.feed("in", [("a", "x", 101), ("a", "x", 103)])
        assert piped.task.cached_updates == 2
        piped.flush()
        assert [(row.value, row.timestamp) for row in piped.out[1:]] == [(None, 99), (b"102", 103)]


@pytest.mark.parametrize("kind", ["count", "table", "aggregate", "tumbling count", "hopping reduce", "count, keys of JSON", "session count"])
def test_memory_has_its_limit(kind: str) -> None:
    """A cache holds at most its limit and a batch; without room the oldest updates go."""
    with driver(kind, 4_000) as made:
        piped = Piped(made)
        for start in range(0, 600, 20):
            piped.feed("in", [(f"k{number}", "x", number) for number in range(start, start + 20)])
            assert piped.budget.used <= 4_000
            assert piped.task.cached_updates <= 60
        keys = [row.key for row in piped.out]
        assert len(keys) > 500
        if kind in {"count", "table", "aggregate"}:
            assert keys == [b"k%d" % number for number in range(len(keys))]
        piped.flush()
        assert len(piped.table()) >= 600


def test_tasks_share_the_limit() -> None:
    """Bytes held by one cache are not available to the others."""
    budget = CacheBudget(1_000)
    assert budget.add(600) == -400
    assert budget.add(600) == 200
    assert budget.add(-300) == -100


def test_a_flush_is_done_in_turns() -> None:
    """Each sends a thousand rows at least, and ends as soon as its time is over."""
    with driver("count", 1 << 24) as made:
        piped = Piped(made)
        piped.feed("in", [(f"k{number}", "x", number) for number in range(3_500)])
        held = []
        while not piped.task.drained:
            piped.task.drain(0.0)
            held.append(piped.task.cached_updates)
        assert held == [2_500, 1_500, 500, 0]


def test_readers_of_the_record_see_the_last_one() -> None:
    """Behind a cache, a user's processor finds offset, timestamp and headers of the record that made the update."""
    seen: list[Any] = []

    class Look(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            seen.append((record.key, record.value, record.timestamp, record.headers, self.context.record_metadata()))

    builder = StreamsBuilder()
    builder.stream("in", WORDS).group_by_key().count().to_stream().process(Look)
    with TopologyTestDriver(builder.build(), {"statestore_cache_max_bytes": 1 << 20}) as made:
        piped = Piped(made)
        piped.feed("in", [("a", "x", 1), ("b", "x", 7), ("a", "x", 3)], [(), (("h", b"1"),), (("h", b"2"),)])
        assert not seen
        piped.flush()
    assert seen == [
        ("a", 2, 3, (("h", b"2"),), RecordMetadata("in", 0, 2)),
        ("b", 1, 7, (("h", b"1"),), RecordMetadata("in", 0, 1)),
    ]


def _picky(_: str, value: str, aggregate: str) -> str:
    if value == "bad":
        raise ValueError(value)
    return aggregate + value


@pytest.mark.parametrize("grace", [None, 0, 1_000])
@pytest.mark.parametrize("apart", [False, True])
def test_a_record_that_changes_no_row_leaves_its_headers(grace: int | None, apart: bool) -> None:
    """A row goes with the headers of the last record that has changed it: none that was dropped, late, or failed, in batches or alone."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", WORDS).group_by_key()
    stored = Materialized(key=STRING, value=STRING)
    if grace is None:
        grouped.aggregate(str, _picky, stored).to_stream().to("out", Produced(STRING, STRING))
    else:
        windows = grouped.windowed_by(TimeWindows.of_size_and_grace(10, grace))
        windows.aggregate(str, _picky, stored).to_stream(lambda windowed, _: windowed.key).to("out", Produced(STRING, STRING))
    config = {"statestore_cache_max_bytes": 1 << 20, "processing_exception_handler": lambda *_: HandlerResponse.RESUME}
    # Too late without grace; and a failure, and a record without key.
    rows = [("a", "x", 1), ("b", "y", 30), ("a", "bad" if grace != 0 else "z", 2), (None, "z", 2), ("b", "bad", 30)]
    headers: list[Any] = [((f"h{at}", b"1"),) for at in range(len(rows))]
    with TopologyTestDriver(builder.build(), config) as made:
        piped = Piped(made)
        for places in [[at] for at in range(len(rows))] if apart else [list(range(len(rows)))]:
            piped.feed("in", [rows[place] for place in places], [headers[place] for place in places])
        piped.flush()
    assert [(row.key, row.value, row.headers) for row in piped.out] == [(b"a", b"x", headers[0]), (b"b", b"y", headers[1])]


def test_a_store_may_be_left_out() -> None:
    """With `Materialized(caching=False)` each update goes downstream at once."""
    builder = StreamsBuilder()
    stream = builder.stream("in", WORDS).group_by_key()
    stream.count(Materialized(caching=False)).to_stream().to("out", Produced(STRING, LONG))
    with TopologyTestDriver(builder.build(), {"statestore_cache_max_bytes": 1 << 20}) as made:
        piped = Piped(made)
        assert piped.caches == ()
        piped.feed("in", [("a", "x", 1), ("a", "x", 2)])
        assert len(piped.out) == 2


def test_the_driver_sends_after_each_record() -> None:
    """As in Kafka Streams' driver, which commits after each: tests see every update, with any size of the cache."""
    with driver("count", 1 << 20) as made:
        words = made.create_input_topic("in", STRING, STRING)
        out = made.create_output_topic("out", STRING, STRING)
        for number in range(3):
            words.pipe_input("a", "x", timestamp_ms=number)
            assert out.read_key_values_to_list() == [("a", str(number + 1))]


def test_suppressed_updates_behind_a_cache_come_once() -> None:
    """Stream time advances there with the updates that are sent on, so a window closes at the next flush."""
    builder = StreamsBuilder()
    table = builder.stream("in", WORDS).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    table.suppress(Suppressed.until_window_closes(BufferConfig())).to_stream().to("out", Produced(windowed(STRING, 10), LONG))
    with TopologyTestDriver(builder.build(), {"statestore_cache_max_bytes": 1 << 20}) as made:
        piped = Piped(made)
        piped.feed("in", [("a", "x", 1), ("a", "x", 2), ("a", "x", 30)])
        assert piped.out == []
        piped.flush()
        assert [(row.value, row.timestamp) for row in piped.out] == [((2).to_bytes(8), 2)]


@pytest.mark.parametrize("kind", ["count", "aggregate", "table", "windows"])
def test_a_record_that_cannot_be_a_row_is_left_out(kind: str) -> None:
    """Of a batch that is taken together the handler is asked about the one record, and the others count."""
    asked: list[Any] = []

    def leave_out(_: Any, record: FailedRecord, __: Exception) -> HandlerResponse:
        asked.append((record.key, record.timestamp))
        return HandlerResponse.RESUME

    odd: Serde[Any] = Serde.of(str.encode, lambda key: [] if key == b"bad" else key.decode(), faithful=True)
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(odd, STRING))
    grouped = stream.group_by_key()
    table: Table[Any, Any]
    if kind == "table":
        table = stream.to_table(Materialized("rows"))
    elif kind == "windows":
        table = grouped.windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    else:
        table = grouped.count() if kind == "count" else grouped.reduce(lambda one, two: one + two)
    table.to_stream(lambda key, _: str(key)).to("out", Produced(STRING, json()))
    config = {"statestore_cache_max_bytes": 1 << 20, "processing_exception_handler": leave_out}
    with TopologyTestDriver(builder.build(), config) as made:
        piped = Piped(made)
        piped.feed("in", [("a", "x", 1), ("bad", "x", 2), ("a", "x", 3), ("b", "x", 3)])
        piped.flush()
        assert asked == [([], 2)]
        assert len(piped.table()) == 2
        assert {value for value, _ in piped.table().values()} in ({b"2", b"1"}, {b'"xx"', b'"x"'}, {b'"x"'})
