"""Keys with a time to live, record by record."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import PunctuationType, TopologyError, serdes
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.testing import TopologyTestDriver
from tests.examples_of import examples

TEXT = Consumed(serdes.STRING, serdes.STRING)
TTL = 100
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["v", None]), st.integers(0, 600)), max_size=20)
Row = tuple[str, str | None, int]


def _expired(driver: TopologyTestDriver, rows: list[Row]) -> list[Row]:
    topic: Any = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
    for key, value, time in rows:
        topic.pipe_input(key, value, time)
    found = driver.create_output_topic("out", serdes.STRING, serdes.STRING).read_records_to_list()
    return [(str(one.key), one.value, one.timestamp) for one in found]


def _topology(clock: PunctuationType = PunctuationType.STREAM_TIME) -> Any:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).expire(TTL, clock=clock, name="ttl", store_type="in_memory").to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


@settings(max_examples=examples(60))
@given(rows=ROWS)
def test_a_key_is_deleted_when_stream_time_has_passed_its_last_record(rows: list[Row]) -> None:
    """By its latest timestamp, in the order of times and keys, and before the record that moves stream time."""
    last: dict[str, int] = {}
    wanted: list[Row] = []
    now = -1
    for key, value, time in rows:
        now = max(now, time)
        for due, of in sorted((at + TTL, of) for of, at in last.items() if at + TTL <= now):
            wanted.append((of, None, due))
            del last[of]
        if value is not None and time + TTL <= now and key not in last:
            continue
        if value is None:
            last.pop(key, None)
        else:
            last[key] = max(time, last.get(key, 0))
        wanted.append((key, value, time))
    with TopologyTestDriver(_topology()) as driver:
        assert _expired(driver, rows) == wanted


def test_a_key_that_comes_and_goes_takes_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is deleted and comes again before its time is over."""
    longest: list[int] = []
    push = heapq.heappush

    def noted(queue: list[Any], entry: Any) -> None:
        push(queue, entry)
        longest.append(len(queue))

    monkeypatch.setattr(heapq, "heappush", noted)
    with TopologyTestDriver(_topology()) as driver:
        _expired(driver, [("a", value, time) for time in range(500) for value in ("v", None)])
    assert max(longest) == 1


def test_a_table_of_it_has_rows_with_a_time_to_live() -> None:
    """They are deleted in the store, in its changelog and downstream, and a record that is too old adds none."""
    builder = StreamsBuilder()
    table = builder.stream("in", TEXT).expire(TTL).to_table(Materialized("rows", serdes.STRING, serdes.STRING))
    table.group_by(lambda key, value: (value, key)).count(Materialized("counts", serdes.STRING, serdes.LONG)).to_stream().to(
        "out", Produced(serdes.STRING, serdes.LONG)
    )
    with TopologyTestDriver(builder.build(), {"default_key_serde": serdes.STRING, "default_value_serde": serdes.STRING}) as driver:
        topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        for key, time in (("a", 0), ("b", 50), ("c", 120), ("old", 10)):
            topic.pipe_input(key, "v", time)
        store = driver.get_state_store("rows")
        assert [key for key, _ in store.all()] == ["b", "c"]
        changelog = driver.create_output_topic("test-rows-changelog", serdes.STRING, serdes.BYTES).read_records_to_list()
        assert [(one.key, one.value is None) for one in changelog] == [("a", False), ("b", False), ("a", True), ("c", False)]
        out = driver.create_output_topic("out", serdes.STRING, serdes.LONG)
        assert [value for _, value in out.read_key_values_to_list()] == [1, 2, 1, 2]
        assert driver.metrics()["dropped-records-total"] == 1


def test_by_the_wall_clock_a_key_expires_without_a_record() -> None:
    """That long after its last one was processed, up to a tenth later; the delete has stream time."""
    with TopologyTestDriver(_topology(PunctuationType.WALL_CLOCK_TIME)) as driver:
        assert _expired(driver, [("a", "1", 5_000), ("b", "1", 4_000)]) == [("a", "1", 5_000), ("b", "1", 4_000)]
        driver.advance_wall_clock_time(TTL - 1)
        assert _expired(driver, [("b", "2", 0)]) == [("b", "2", 0)]
        driver.advance_wall_clock_time(TTL // 2)
        assert _expired(driver, []) == [("a", None, 5_000)]
        driver.advance_wall_clock_time(TTL)
        assert _expired(driver, []) == [("b", None, 5_000)]
        driver.advance_wall_clock_time(10 * TTL)
        assert _expired(driver, []) == []


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"after_ms": 0}, "after_ms of expire"),
        ({"after_ms": "5"}, "after_ms of expire"),
        ({"after_ms": 5, "clock": "wall"}, "PunctuationType.WALL_CLOCK_TIME"),
        ({"after_ms": 5, "store_type": "disk"}, "store_type"),
        ({"after_ms": 5, "key": "text"}, "key"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(wrong: dict[str, Any], text: str) -> None:
    """The error names the argument."""
    with pytest.raises(TopologyError, match=text):
        StreamsBuilder().stream("in", TEXT).expire(**wrong)
