"""Operators without state: the record form, the batch form, and the form for async functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ks_actors._errors import ProcessingFailed
from ks_actors.processors import AsyncOptions
from ks_actors.processors.api._operator import Operator
from ks_actors.processors.stateless._branch import Branch
from ks_actors.processors.stateless._flat import FlatMap, FlatMapValues
from ks_actors.processors.stateless._stateless import DropNullKeys, Filter, ForEach, Map, MapValues, PassThrough, Peek, SelectKey, Stateless
from ks_actors.records._batch import Batch, Headers
from tests.ks_actors.processors.helpers import Node, Row, one_by_one, run

KEYS = ["a", None, "b", "a", "c", "b"]
VALUES = [1, 2, -1, 4, None, 3]
TIMES = [10, 11, 12, 13, 14, 15]
TAG: Headers = (("tag", b"x"),)
HEADERS: list[Headers] = [(), TAG, (), TAG, (), ()]


def batches() -> list[Batch]:
    return [
        Batch(KEYS, VALUES, TIMES, HEADERS, range(100, 106)),
        Batch(KEYS[:3], VALUES[:3], TIMES[:3], None, [7, 9, 20]),
        Batch(["z"], [-1], [1]),
    ]


class Rude:
    """Neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("neither")


def fussy(key: Any, value: Any) -> Any:
    """Raise for negative values, as a function of the user may."""
    if value is None:
        return Rude()
    if value < 0:
        raise ValueError(f"negative for {key}")
    if value == 4:
        raise StopIteration
    return value % 2


def pair(key: Any, value: Any) -> Any:
    if value is None:
        return None
    if value < 0:
        raise ValueError("negative")
    return value, key


def spread(key: Any, value: Any) -> Iterator[Any]:
    yield key, "first"
    if value < 0:
        raise ValueError("negative")
    for number in range(value):
        yield number, key


def numbers(value: Any) -> Iterator[Any]:
    yield value
    if value < 0:
        raise ValueError("negative")
    yield from range(value)


def not_iterable(key: Any, value: Any) -> Any:
    return [value] * value if value != 2 else value


OPERATORS: dict[str, Callable[[], Operator]] = {
    "filter": lambda: Filter(lambda key, value: value == 1),
    "filter nothing": lambda: Filter(lambda key, value: False),
    "filter fussy": lambda: Filter(fussy),
    "filter not": lambda: Filter(fussy, negate=True),
    "map values": lambda: MapValues(lambda value: value is None),
    "map values fussy": lambda: MapValues(lambda value: 10 // (value - 2)),
    "map values all bad": lambda: MapValues(lambda value: 1 // 0),
    "map values with key": lambda: MapValues(lambda key, value: (key or "_") + str(value), with_key=True),
    "select key": lambda: SelectKey(lambda key, value: value),
    "select key fussy": lambda: SelectKey(lambda key, value: 10 // (value - 2)),
    "select key all bad": lambda: SelectKey(lambda key, value: 1 // 0),
    "map": lambda: Map(lambda key, value: (value, key)),
    "map fussy": lambda: Map(pair),
    "map all bad": lambda: Map(lambda key, value: 1 // 0),
    "flat map": lambda: FlatMap(spread),
    "flat map nothing": lambda: FlatMap(lambda key, value: ()),
    "flat map no pairs": lambda: FlatMap(not_iterable),
    "flat map values": lambda: FlatMapValues(numbers),
    "flat map values nothing": lambda: FlatMapValues(lambda value: ()),
    "flat map values with key": lambda: FlatMapValues(not_iterable, with_key=True),
    "peek": lambda: Peek(lambda key, value: None),
    "peek fussy": lambda: Peek(fussy),
    "peek all bad": lambda: Peek(lambda key, value: 1 // 0),
    "for each": lambda: ForEach(fussy),
    "pass through": PassThrough,
    "drop null keys": DropNullKeys,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_batches_give_the_results_of_single_records(name: str) -> None:
    """The same records with the same times, headers and offsets, and the handler is asked about the same ones."""
    single = run(OPERATORS[name](), {}, batches(), in_batches=False)
    assert run(OPERATORS[name](), {}, batches(), in_batches=True) == single


def rows(operator: Operator) -> list[tuple[Any, Any, int, Headers]]:
    return [row[:4] for row in run(operator, {}, batches()[:1], in_batches=False).rows]


def test_filter_keeps_matching_records() -> None:
    """The filter leaves headers and times as they are, and filter_not keeps the others."""
    assert rows(Filter(lambda key, value: key == "a")) == [("a", 1, 10, ()), ("a", 4, 13, TAG)]
    assert [row[0] for row in rows(Filter(lambda key, value: key == "a", negate=True))] == [None, "b", "c", "b"]


def test_map_values_and_select_key_replace_one_side() -> None:
    """With and without the key."""
    assert [row[:2] for row in rows(MapValues(str))][:2] == [("a", "1"), (None, "2")]
    assert rows(MapValues(lambda key, value: key, with_key=True))[1] == (None, None, 11, TAG)
    assert [row[:2] for row in rows(SelectKey(lambda key, value: value))][:2] == [(1, 1), (2, 2)]


def test_map_and_flat_map_replace_both() -> None:
    """One pair, or any number of them, with the record's time and headers."""
    assert rows(Map(lambda key, value: (value, key)))[1] == (2, None, 11, TAG)
    two = FlatMap(lambda key, value: [(key, value), (value, key)] if value == 2 else [])
    assert rows(two) == [(None, 2, 11, TAG), (2, None, 11, TAG)]
    assert [row[1] for row in rows(FlatMapValues(lambda value: [value, value] if value == 4 else ()))] == [4, 4]


def test_peek_sees_and_hands_on_for_each_ends() -> None:
    """Both methods call the action for every record in order."""
    seen: list[Any] = []
    assert len(rows(Peek(lambda key, value: seen.append(value)))) == 6
    assert seen == VALUES
    assert rows(ForEach(lambda key, value: seen.append(key))) == []
    assert seen[6:] == KEYS


def test_drop_null_keys_leaves_the_others_alone() -> None:
    """A batch in which nothing is left out is handed on as it is."""
    node = Node({})
    bound = DropNullKeys().bind(node)
    assert bound.batch is not None
    handed: list[Batch] = []
    node.forward_batch = handed.append  # type: ignore[assignment]
    bound = DropNullKeys().bind(node)
    assert bound.batch is not None
    whole = Batch(["a", "b"], [1, 2], [3, 4])
    for batch in (whole, Batch([None], [1], [2])):
        bound.batch(batch)
    assert handed == [whole]


def test_a_handler_that_says_no_ends_it() -> None:
    """With the record in its hands, and nothing handed on."""
    node = Node({}, go_on=False)
    bound = MapValues(lambda value: 10 // (value - 2)).bind(node)
    assert bound.batch is not None
    with pytest.raises(ProcessingFailed):
        bound.batch(batches()[0])
    assert [(failure.key, failure.value, failure.timestamp, failure.headers, failure.offset) for failure in node.failures] == [
        (None, 2, 11, TAG, 101)
    ]
    assert node.rows == []


class Split:
    """A node with children by name, each of which keeps its rows."""

    def __init__(self, *names: str) -> None:
        self.node = Node({})
        self.by_child: dict[str, list[Row]] = {name: [] for name in names}
        children = {name: Node({}) for name in names}
        for name, child in children.items():
            child.rows = self.by_child[name]
        self.node.children = {name: child.forward for name, child in children.items()}
        self.node.children_batch = {name: child.forward_batch for name, child in children.items()}


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("in_batches", [True, False])
def test_the_first_branch_that_holds_takes_the_record(default: bool, in_batches: bool) -> None:
    """The first predicate that holds, else the default if there is one; errors go to the handler."""
    branch = Branch()
    branch.branches += [(lambda key, value: value < 2, "low"), (lambda key, value: key == "a", "a"), (lambda key, value: False, "never")]
    branch.default = "rest" if default else None
    split = Split("low", "a", "never", *(["rest"] if default else []))
    bound = branch.bind(split.node)
    assert bound.batch is not None
    for batch in [Batch(KEYS, VALUES, TIMES, HEADERS), Batch(["x", "y"], [0, 1], [1, 2])]:
        bound.batch(batch) if in_batches else one_by_one(bound, split.node, batch)
    found = {name: [(row.key, row.value) for row in kept] for name, kept in split.by_child.items()}
    assert found["low"] == [("a", 1), ("b", -1), ("x", 0), ("y", 1)]
    assert found["a"] == [("a", 4)]
    assert found["never"] == []
    assert found.get("rest") == ([(None, 2), ("b", 3)] if default else None)
    assert [(failure.key, failure.value, failure.timestamp) for failure in split.node.failures] == [("c", None, 14)]


async def later(key: Any, value: Any) -> Any:
    return value % 2


async def later_value(value: Any) -> Any:
    return [value, value]


async def later_pair(key: Any, value: Any) -> Any:
    return value, key


async def later_pairs(key: Any, value: Any) -> Any:
    return [(value, key), (key, value)]


ASYNC: dict[str, tuple[Stateless, list[tuple[Any, Any]]]] = {
    "filter": (Filter(later, AsyncOptions()), [("a", 1), ("b", 3)]),
    "filter not": (Filter(later, AsyncOptions(), negate=True), [("a", 4)]),
    "map values": (MapValues(later_value, AsyncOptions()), [("a", [1, 1]), ("a", [4, 4]), ("b", [3, 3])]),
    "map values with key": (MapValues(later, AsyncOptions(), with_key=True), [("a", 1), ("a", 0), ("b", 1)]),
    "select key": (SelectKey(later, AsyncOptions()), [(1, 1), (0, 4), (1, 3)]),
    "map": (Map(later_pair, AsyncOptions()), [(1, "a"), (4, "a"), (3, "b")]),
    "flat map": (FlatMap(later_pairs, AsyncOptions()), [(1, "a"), ("a", 1), (4, "a"), ("a", 4), (3, "b"), ("b", 3)]),
    "flat map values": (FlatMapValues(later_value, AsyncOptions()), [("a", 1), ("a", 1), ("a", 4), ("a", 4), ("b", 3), ("b", 3)]),
    "peek": (Peek(later, AsyncOptions()), [("a", 1), ("a", 4), ("b", 3)]),
    "for each": (ForEach(later, AsyncOptions()), []),
}


@pytest.mark.parametrize("name", ASYNC)
async def test_an_async_function_is_called_and_its_result_emitted(name: str) -> None:
    """The results are those of the plain operator, with the record's time and headers."""
    operator, expected = ASYNC[name]
    node = Node({})
    bound = operator.bind_async(node)
    for key, value in [("a", 1), ("a", 4), ("b", 3)]:
        bound.emit(await bound.call(key, value, 5, TAG), key, value, 5, TAG)
    bound.close()
    assert [row[:2] for row in node.rows] == expected
    assert {row[2:4] for row in node.rows} <= {(5, TAG)}


def test_an_async_operator_does_not_process_by_itself() -> None:
    """Forgetting to run it as one is a bug that shows."""
    bound = Filter(later, AsyncOptions()).bind(Node({}))
    with pytest.raises(RuntimeError, match="use bind_async"):
        bound.process("a", 1, 2, ())
