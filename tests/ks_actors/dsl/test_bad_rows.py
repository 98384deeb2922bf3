"""Rows of tables for which a user's function fails, and the handler continues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ks_actors import log_and_continue
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Table, TableJoined
from ks_actors.serdes import LONG, STRING, json
from ks_actors.testing import TopologyTestDriver
from tests.examples_of import examples

TEXT = Consumed(STRING, STRING)
Check = Callable[[str], str]
Rows = dict[str, str]


def grouped(table: Table[str, str], group: Callable[[str], str]) -> Table[str, str]:
    """Return how many rows each group has, as text."""
    counts = table.group_by(lambda key, value: (group(value), key), Grouped(STRING, STRING)).count(Materialized("counts", STRING, LONG))
    return counts.map_values(str)


def good(check: Check, rows: Rows) -> Rows:
    """Return the rows that the function does not fail for."""
    found = {}
    for key, value in rows.items():
        try:
            found[key] = check(value)
        except ValueError:
            continue
    return found


def counted(rows: Rows) -> Rows:
    return {group: str(count) for group, count in Counter(value[0] for value in rows.values()).items()}


def with_right(rows: Rows, right: Rows) -> Rows:
    return {key: value + right[value[0]] for key, value in rows.items() if value[0] in right}


def first(value: str) -> str:
    return value[0]


def by_key(table: Table[str, str], right: Table[str, str], check: Check) -> Table[str, str]:
    """Join by the key; the joiner fails."""
    return table.left_join(table.filter(lambda _, __: False), lambda one, _: check(one), Materialized("joined", STRING, STRING))


def added(table: Table[str, str], check: Check, subtract: Check) -> Table[str, str]:
    """Count the rows of groups; the adder fails, and the subtractor if it is told to."""

    def add(_: str, value: str, count: int) -> int:
        check(value)
        return count + 1

    def take(_: str, value: str, count: int) -> int:
        subtract(value)
        return count - 1

    groups = table.group_by(lambda _, value: (value[0], value), Grouped(STRING, STRING))
    return groups.aggregate(lambda: 0, add, take, Materialized("counts", STRING, LONG)).map_values(str)


def added_in_place(table: Table[str, str], check: Check) -> Table[str, str]:
    """Count the rows of groups by a list, which the adder changes before it fails."""

    def add(_: str, value: str, rows: list[str]) -> list[str]:
        rows.append(value)
        check(value)
        return rows

    def take(_: str, value: str, rows: list[str]) -> list[str]:
        rows.remove(value)
        return rows

    groups = table.group_by(lambda _, value: (value[0], value), Grouped(STRING, STRING))
    rows: Table[str, list[str]] = groups.aggregate(list, add, take, Materialized("rows", STRING, json(list[str])))
    return rows.map_values(lambda found: str(len(found)))


def reduced(table: Table[str, str], check: Check) -> Table[str, str]:
    """Count the rows of groups by the letters of their sum, behind a first row that is never bad; both functions fail."""

    def add(total: str, value: str) -> str:
        check(value)
        return total + "."

    def take(total: str, value: str) -> str:
        check(value)
        return total[:-1]

    groups = table.group_by(lambda _, value: (value[0], value), Grouped(STRING, STRING))
    return groups.reduce(add, take, Materialized("sums", STRING, STRING)).map_values(lambda total: str(total.count(".")))


SHAPES: dict[str, tuple[Callable[[Table[str, str], Table[str, str], Check], Table[str, str]], Callable[[Rows, Rows], Rows]]] = {
    "filter": (lambda table, _, check: grouped(table.filter(lambda _, value: check(value) != "-"), first), lambda rows, _: counted(rows)),
    "map_values": (lambda table, _, check: grouped(table.map_values(check), first), lambda rows, _: counted(rows)),
    "stored map_values": (
        lambda table, _, check: grouped(table.map_values(lambda value: value, Materialized("m", STRING, STRING)), lambda value: check(value)[0]),
        lambda rows, _: counted(rows),
    ),
    "group_by": (lambda table, _, check: grouped(table, lambda value: check(value)[0]), lambda rows, _: counted(rows)),
    "adder": (lambda table, _, check: added(table, check, first), lambda rows, _: counted(rows)),
    "adder, subtractor": (lambda table, _, check: added(table, check, check), lambda rows, _: counted(rows)),
    "adder in place": (lambda table, _, check: added_in_place(table, check), lambda rows, _: counted(rows)),
    "map_values, filter": (
        lambda table, _, check: grouped(table.map_values(check).filter(lambda _, value: value[0] != "b"), first),
        lambda rows, _: counted({key: value for key, value in rows.items() if value[0] != "b"}),
    ),
    "join": (by_key, lambda rows, _: rows),
    "join, group_by": (lambda table, right, check: grouped(by_key(table, right, check), first), lambda rows, _: counted(rows)),
    "foreign key": (
        lambda table, right, check: table.join(
            right,
            lambda one, other: one + other,
            Materialized("joined", STRING, STRING),
            foreign_key=lambda value: check(value)[0],
            joined=TableJoined("j"),
        ),
        with_right,
    ),
    "foreign key, map_values": (
        lambda table, right, check: table.map_values(check).join(
            right, lambda one, other: one + other, Materialized("joined", STRING, STRING), foreign_key=first, joined=TableJoined("j")
        ),
        with_right,
    ),
}


# Not all of their rows can be right.
OTHERS: dict[str, Callable[[Table[str, str], Check], Table[str, str]]] = {
    "reduce": reduced,
    "subtractor": lambda table, check: added(table, first, check),
}


def last_rows(shape: str, records: list[tuple[str, str, str | None]], check: Check, *, cache: int = 0, faults: bool = False) -> Rows:
    """Return the result of a table's operation when the records of both tables have come."""
    builder = StreamsBuilder()
    table, right = builder.table("left", TEXT), builder.table("right", TEXT)
    result = OTHERS[shape](table, check) if shape in OTHERS else SHAPES[shape][0](table, right, check)
    result.to_stream().to("out", Produced(STRING, STRING))
    config: dict[str, Any] = {
        "processing_exception_handler": log_and_continue,
        "kafka_streams_faults": faults,
        "statestore_cache_max_bytes": cache,
        "default_dsl_store": "in_memory",
        "default_key_serde": STRING,
        "default_value_serde": STRING,
    }
    with TopologyTestDriver(builder.build(), config) as driver:
        topics = {name: driver.create_input_topic(name, STRING, STRING) for name in ("left", "right")}
        for topic, key, value in records:
            topics[topic].pipe_input(key, value)
        found: dict[Any, Any] = dict(driver.create_output_topic("out", STRING, STRING).read_key_values_to_list())
    return {key: value for key, value in found.items() if value is not None and value != "0"}


def failing(bad: set[str]) -> Check:
    def check(value: str) -> str:
        if value in bad:
            raise ValueError(value)
        return value

    return check


def compare(shape: str, seed: int) -> None:
    """Compare the result of random records, with a random function that raises, with that of the last rows."""
    random = Random(seed)
    values = [group + number for group in "abc" for number in "1234"]
    check = failing({value for value in values if random.random() < 0.3})
    records: list[tuple[str, str, str | None]] = [("right", group, f"+{group}") for group in "abc"]
    left: Rows = {}
    right = {group: f"+{group}" for group in "abc"}
    for _ in range(random.randrange(3, 25)):
        key, value = random.choice("xyz"), random.choice([*values, None])
        left.pop(key, None) if value is None else left.update({key: value})
        records.append(("left", key, value))
        if random.random() < 0.3:
            group = random.choice("abc")
            right[group] = f"+{group}{len(records)}"
            records.append(("right", group, right[group]))
    assert last_rows(shape, records, check, cache=random.choice([0, 100_000])) == SHAPES[shape][1](good(check, left), right)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(examples(5)))
def test_only_bad_rows_are_left_out(shape: str, seed: int) -> None:
    """The result has all rows that it does not fail for, as they are last, and no former ones of others."""
    compare(shape, seed)


@pytest.mark.parametrize("cache", [0, 100_000])
def test_only_bad_rows_are_left_out_of_sums(cache: int) -> None:
    """A former value that both functions fail for is in no sum; the row before a bad one is taken back."""
    records: list[tuple[str, str, str | None]] = [("left", "first", "a0")]
    records += [("left", "x", value) for value in ("a1", "a2", "a3")] + [("left", "y", "a4")]
    assert last_rows("reduce", records, failing({"a2"}), cache=cache) == {"a": "2"}
    assert last_rows("reduce", [*records, ("left", "x", "a2")], failing({"a2"}), cache=cache) == {"a": "1"}


def test_a_former_value_that_cannot_be_taken_back_costs_no_later_row() -> None:
    """The handler is asked; the new value is added, as the next change takes it back."""
    records: list[tuple[str, str, str | None]] = [("left", "x", value) for value in ("a1", "a2", "a3", "a4", None)]
    assert last_rows("subtractor", records, failing({"a2"})) == {"a": "1"}


def test_kafka_streams_leaves_out_the_next_good_row_too() -> None:
    """By the setting `kafka_streams_faults` the function fails again for the old value."""
    records: list[tuple[str, str, str | None]] = [("left", "x", value) for value in ("a1", "b2", "c3", "c4", None)]
    counts = {faults: last_rows("group_by", records, failing({"b2"}), faults=faults) for faults in (False, True)}
    assert counts == {False: {}, True: {"a": "1"}}
