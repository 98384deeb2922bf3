"""Results of another shape than the operation needs: Python would unpack and iterate them without a word."""

from __future__ import annotations

from collections import Counter, namedtuple
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import ErrorContext, HandlerResponse, serdes
from ks_actors.dsl import Grouped, StreamsBuilder
from ks_actors.processors.aggregates._table_aggregates import TableSelect
from ks_actors.processors.stateless._flat import FlatMap, FlatMapValues
from ks_actors.processors.stateless._stateless import Map
from ks_actors.records._batch import Batch
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.examples_of import examples
from tests.ks_actors.processors.helpers import Node, one_by_one
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed_all

Two = namedtuple("Two", "key value")  # noqa: PYI024 - of any kind
ATOMS = st.none() | st.integers(0, 9) | st.text(max_size=3) | st.binary(max_size=3)
PAIRS = st.tuples(ATOMS, ATOMS) | st.builds(Two, ATOMS, ATOMS) | st.lists(ATOMS, min_size=2, max_size=2)
ROWS = st.dictionaries(st.text(max_size=2), ATOMS, max_size=3)
NO_PAIRS: st.SearchStrategy[Any] = (
    ATOMS
    | ROWS
    | st.builds(Counter, st.text(max_size=3))
    | st.sets(st.integers(0, 9), max_size=3)
    | st.tuples(ATOMS)
    | st.tuples(ATOMS, ATOMS, ATOMS)
)
ONE_FOR_MANY: st.SearchStrategy[Any] = (
    st.none()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | ROWS
    | st.builds(Counter, st.text(max_size=3))
    | st.builds(bytearray, st.binary(max_size=3))
)


def outcome(operator: Any, way: str) -> tuple[list[tuple[Any, Any]], list[str]]:
    """Pass one record through an operator; return what it forwards, and the errors."""
    node = Node({})
    if way == "async":
        call, emit, _ = operator.bind_async(node)
        result = call("k", "v", 1, ())
        one_by_one(type("Emits", (), {"process": staticmethod(lambda *record: emit(result, *record))}), node, Batch(["k"], ["v"], [1]))  # type: ignore[arg-type]
    elif way == "batch":
        operator.bind(node).batch(Batch(["k"], ["v"], [1]))
    else:
        one_by_one(operator.bind(node), node, Batch(["k"], ["v"], [1]))
    return [row[:2] for row in node.rows], [failure.error for failure in node.failures]


@pytest.mark.parametrize("way", ["record", "batch", "async"])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_only_pairs_are_pairs(way: str, data: st.DataObject) -> None:
    """A mapper of records returns a tuple or a list of two; any other result is an error of its record that says so."""
    good, bad = data.draw(PAIRS), data.draw(NO_PAIRS)
    assert outcome(Map(lambda key, value: good), way) == ([tuple(good)], [])
    forwarded, (text,) = outcome(Map(lambda key, value: bad), way)
    assert forwarded == []
    assert "return (key, value), or use map_values for the value alone" in text
    assert outcome(FlatMap(lambda key, value: [good, good]), way) == ([tuple(good)] * 2, [])
    _, (text,) = outcome(FlatMap(lambda key, value: [good, bad]), way)
    assert "among its results: return a list of pairs (key, value), or use flat_map_values for values alone" in text


@pytest.mark.parametrize("way", ["record", "batch", "async"])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_one_result_is_not_many(way: str, data: st.DataObject) -> None:
    """A text, bytes, a dict or None in place of many results is an error of its record, not letters or keys."""
    many, bad = data.draw(st.lists(ATOMS, max_size=3)), data.draw(ONE_FOR_MANY)
    for made in (many, tuple(many), iter(many)):
        assert outcome(FlatMapValues(lambda value, made=made: made), way) == ([("k", value) for value in many], [])
    for operator in (FlatMapValues(lambda value: bad), FlatMapValues(lambda key, value: bad, with_key=True), FlatMap(lambda key, value: bad)):
        forwarded, (text,) = outcome(operator, way)
        assert forwarded == []
        assert "in place of its results: return a list" in text


@settings(max_examples=examples(40))
@given(good=PAIRS, bad=NO_PAIRS.filter(lambda value: value is not None))
def test_the_selector_of_a_grouped_table_returns_a_pair(good: Any, bad: Any) -> None:
    """None is no group; any other result but a pair is an error of its record."""
    for made, rows in ((good, [] if None in good else [(good[0], (good[1], None))]), (None, [])):
        node = Node({})
        TableSelect(selector=lambda key, value, made=made: made).bind(node).process("k", ("v", None), 1, ())  # type: ignore[misc]
        assert [row[:2] for row in node.rows] == rows
    with pytest.raises(TypeError, match=r"as a pair: return \(key, value\)"):
        TableSelect(selector=lambda key, value: bad).bind(Node({})).process("k", ("v", None), 1, ())


@pytest.mark.parametrize("place", ["map", "flat_map", "flat_map_values", "group_by"])
def test_the_handler_is_told_the_node_and_the_remedy(place: str) -> None:
    """Each record with such a result goes to the processing handler, with the node's name; nothing of it goes on."""
    asked: list[tuple[str, str]] = []

    def ask(context: ErrorContext, record: Any, error: Exception) -> HandlerResponse:
        asked.append((context.processor_node_id, str(error)))
        return HandlerResponse.RESUME

    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    node = "here"
    if place == "group_by":
        node = "KTABLE-SELECT-0000000003"
        stream.to_table().group_by(lambda key, value: value, Grouped(serdes.STRING, serdes.STRING)).count().to_stream().to("out")  # type: ignore[arg-type, return-value]  # the mistake
    else:
        getattr(stream, place)(lambda key, value: value, name="here").to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> list[Any]:
        await feed_all(harness, "in", [TestRecord("k", "hi", 1, ())] * 2)
        return await harness.read("out")

    assert (
        run_app(
            test,
            builder.build(),
            topics={"in": 1, "out": 1},
            processing_exception_handler=ask,
            default_key_serde=serdes.STRING,
            default_value_serde=serdes.STRING,
        )
        == []
    )
    assert [name for name, _ in asked][:1] == [node]
    assert all(" returned a str " in text and "return " in text for _, text in asked)
