"""Functions without a `return`, where a result is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from ks_actors import TopologyError
from ks_actors.dsl import StreamsBuilder
from ks_actors.processors.api._plain_results import always_none
from tests.ks_actors.runtime.helpers import STRINGS

VALUES = ("None", "a", "a or None", "None if a else b", "a if b else None", "a.pop(0, None)", "a and b", "not a", "1", "(yes := a)")


def body(random: Random, depth: int = 0) -> tuple[list[str], bool, bool]:
    """Return statements, whether one of them returns a value, and whether what follows them is reached."""
    lines: list[str] = []
    gives = False
    for _ in range(random.randrange(1, 4)):
        kind = random.randrange(7 if depth < 2 else 3)
        if kind == 0:
            lines.append("b = a")
        elif kind == 1:
            value = random.choice(VALUES)
            lines.append(f"return {value}")
            return lines, gives or value != "None", False
        elif kind == 2:
            lines.append("print(a)")
        else:
            inner, inner_gives, _ = body(random, depth + 1)
            head = ("if a:", "for b in a:", "while b:", "with a:")[kind - 3]
            lines += [head, *(f"    {line}" for line in inner)]
            gives |= inner_gives
    return lines, gives, True


@pytest.mark.parametrize("seed", range(40))
def test_only_functions_that_never_return_a_value_are_found(seed: int) -> None:
    """A function whose text has a `return` of anything but None is not found; any other is, through partials and calls too."""
    random = Random(seed)
    for _ in range(25):
        lines, gives, _ = body(random)
        scope: dict[str, Any] = {}
        exec("def function(a, b):\n" + "\n".join(f"    {line}" for line in lines), scope)  # noqa: S102 - the test made it
        function = scope["function"]
        called = type("Called", (), {"__call__": function})()
        assert [always_none(some) for some in (function, partial(function, 1), called)] == [not gives] * 3, lines


def test_functions_without_code_and_those_that_only_raise_are_not_found() -> None:
    """A builtin's results are unknown; a function that only raises returns nothing at all."""

    def raises(key: object, value: object) -> bool:
        raise NotImplementedError

    assert [always_none(function) for function in (len, str.upper, dict, raises, lambda: None)] == [False] * 4 + [True]


def test_predicates_and_aggregators_without_return_are_refused() -> None:
    """They would keep nothing, or delete each row; the error names the operation and the remedy."""

    def nothing(*_: object) -> Any:
        """Forget the result."""

    stream = StreamsBuilder().stream("in", STRINGS)
    table, grouped = stream.to_table(), stream.group_by_key()
    rows = table.group_by(lambda key, value: (key, value))
    gives: dict[str, Callable[[], object]] = {
        "filter": lambda: stream.filter(nothing),
        "filter_not": lambda: stream.filter_not(nothing),
        "split": lambda: stream.split().branch(nothing),
        "filter behind": lambda: table.filter(nothing),
        "filter_not behind": lambda: table.filter_not(nothing),
        "reduce": lambda: grouped.reduce(nothing),
        "aggregate": lambda: grouped.aggregate(int, nothing),
        "cogroup": lambda: grouped.cogroup(nothing),
        "reduce behind": lambda: rows.reduce(nothing, min),
        "aggregate behind": lambda: rows.aggregate(int, nothing, lambda key, value, some: some),
    }
    for operation, give in gives.items():
        with pytest.raises(TopologyError, match=rf"of {operation.split()[0]} .*returns None in all cases: add the 'return' of its result"):
            give()
    stream.map_values(nothing).peek(nothing).foreach(nothing)
