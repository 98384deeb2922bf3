"""ksql's aggregate functions: a beginning, a step, the merge of two sessions, a result, and the step back for tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cmp_to_key
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tests.judges.ksql import values
from tests.judges.ksql.expressions import expression
from tests.judges.ksql.reasons import LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LIMIT: Final = 1000
_ARRIVALS: Final = count()


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of the values of its arguments. The state is a value that no step changes in place."""

    begin: Callable[[], Any]
    step: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any] = lambda state: state
    undo: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True)
class Call:
    """An aggregate with the expressions of its arguments."""

    aggregate: Aggregate
    arguments: tuple[Callable[[Mapping[str, Any]], Any], ...]

    def given(self, row: Mapping[str, Any]) -> Any:
        found = tuple(each(row) for each in self.arguments)
        return found[0] if len(found) == 1 else found


def call(text: str) -> Call:
    match = re.match(r"(\w+)\((.*)\)$", text, re.DOTALL)
    if match is None:
        raise LeftOut(f"aggregate {text}")
    name = match.group(1).upper()
    arguments, constants = [], []
    for each in values.parts(match.group(2)):
        evaluate = expression(each)[0]
        try:
            constants.append(evaluate({}))
        except KeyError:
            arguments.append(evaluate)
    make = AGGREGATES.get(name)
    if make is None:
        raise LeftOut(f"aggregate {name}")
    if not arguments:
        fixed = constants.pop(0)
        arguments.append(lambda row: fixed)
    return Call(make(len(arguments), *constants), tuple(arguments))


def unless_null(step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda state, value: state if value is None else step(state, value)


def only(arguments: int, name: str) -> None:
    if arguments != 1:
        raise LeftOut(f"aggregate {name} of several columns")


def counted(arguments: int) -> Aggregate:
    only(arguments, "COUNT")
    return Aggregate(
        lambda: 0, unless_null(lambda state, value: state + 1), lambda one, other: one + other, undo=unless_null(lambda state, value: state - 1)
    )


def summed(arguments: int) -> Aggregate:
    only(arguments, "SUM")
    return Aggregate(lambda: 0, unless_null(values.add), values.add, undo=unless_null(values.subtract))


def summed_list(arguments: int) -> Aggregate:
    only(arguments, "SUM_LIST")

    def total(given: list[Any]) -> Any:
        return sum(each for each in given if each is not None)

    return Aggregate(
        lambda: 0,
        unless_null(lambda state, value: state + total(value)),
        values.add,
        undo=unless_null(lambda state, value: state - total(value)),
    )


def averaged(arguments: int) -> Aggregate:
    only(arguments, "AVG")
    return Aggregate(
        lambda: (0, 0),
        unless_null(lambda state, value: (state[0] + value, state[1] + 1)),
        lambda one, other: (one[0] + other[0], one[1] + other[1]),
        lambda state: float(state[0] / state[1]) if state[1] else 0.0,
        unless_null(lambda state, value: (state[0] - value, state[1] - 1)),
    )


def spread(arguments: int, power: float = 1) -> Aggregate:
    """Return the variance of a sample, of the count, the sum, and the sum of squares."""
    only(arguments, "STDDEV_SAMP")

    def deviation(state: tuple[Any, Any, Any]) -> float:
        seen, total, squares = state
        return float(((squares - total * total / seen) / (seen - 1)) ** power) if seen > 1 else 0.0

    def moved(state: tuple[Any, Any, Any], value: Any, sign: int) -> tuple[Any, Any, Any]:
        number = float(value)
        return state[0] + sign, state[1] + sign * number, state[2] + sign * number * number

    return Aggregate(
        lambda: (0, 0.0, 0.0),
        unless_null(lambda state, value: moved(state, value, 1)),
        lambda one, other: tuple(first + second for first, second in zip(one, other, strict=True)),
        deviation,
        unless_null(lambda state, value: moved(state, value, -1)),
    )


def correlated(arguments: int) -> Aggregate:
    if arguments != 2:
        raise LeftOut("aggregate CORRELATION of other than two columns")

    def moved(state: tuple[Any, ...], pair: Any, sign: int) -> tuple[Any, ...]:
        if None in pair:
            return state
        x, y = (float(each) for each in pair)
        return tuple(total + sign * each for total, each in zip(state, (1, x, y, x * x, y * y, x * y), strict=True))

    def result(state: tuple[Any, ...]) -> float:
        seen, x, y, xx, yy, xy = state
        below = (seen * xx - x * x) * (seen * yy - y * y)
        return float((seen * xy - x * y) / below**0.5) if below > 0 else float("nan")

    return Aggregate(
        lambda: (0, 0.0, 0.0, 0.0, 0.0, 0.0),
        lambda state, pair: moved(state, pair, 1),
        lambda one, other: tuple(first + second for first, second in zip(one, other, strict=True)),
        result,
        lambda state, pair: moved(state, pair, -1),
    )


def outermost(choose: Callable[[Any, Any], Any]) -> Callable[..., Aggregate]:
    def make(arguments: int, *constants: Any) -> Aggregate:
        if arguments != 1 or constants:
            raise LeftOut("aggregate MIN or MAX of several columns")

        def merge(one: Any, other: Any) -> Any:
            return one if other is None else other if one is None else choose(one, other)

        return Aggregate(lambda: None, merge, merge)

    return make


def collected(arguments: int) -> Aggregate:
    only(arguments, "COLLECT_LIST")

    def undo(state: list[Any], value: Any) -> list[Any]:
        at = len(state) - 1 - state[::-1].index(value) if value in state else len(state)
        return state[:at] + state[at + 1 :]

    return Aggregate(list, lambda state, value: [*state, value][:LIMIT], lambda one, other: (one + other)[:LIMIT], undo=undo)


def collected_set(arguments: int) -> Aggregate:
    only(arguments, "COLLECT_SET")
    return Aggregate(
        list,
        lambda state, value: state if value in state else [*state, value][:LIMIT],
        lambda one, other: (one + [each for each in other if each not in one])[:LIMIT],
    )


def counted_distinct(arguments: int) -> Aggregate:
    made = collected_set(arguments)
    return Aggregate(made.begin, unless_null(made.step), made.merge, len)


def histogram(arguments: int) -> Aggregate:
    only(arguments, "HISTOGRAM")

    def moved(state: dict[str, int], value: Any, by: int) -> dict[str, int]:
        key = values.text(value)
        made = {**state, key: state.get(key, 0) + by}
        return {each: seen for each, seen in made.items() if seen}

    return Aggregate(
        dict,
        unless_null(lambda state, value: moved(state, value, 1)),
        lambda one, other: {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}},
        undo=unless_null(lambda state, value: moved(state, value, -1)),
    )


def top(*, distinct: bool) -> Callable[..., Aggregate]:
    def make(arguments: int, size: int) -> Aggregate:
        def greatest(given: list[Any]) -> list[Any]:
            chosen = [each for at, each in enumerate(given) if not distinct or each not in given[:at]]
            return sorted(chosen, key=(lambda each: each[0]) if arguments > 1 else None, reverse=True)[:size]

        def step(state: list[Any], value: Any) -> list[Any]:
            if value is None or (arguments > 1 and value[0] is None):
                return state
            return greatest([*state, list(value) if arguments > 1 else value])

        def result(state: list[Any]) -> list[Any]:
            if arguments == 1:
                return state
            return [{"sort_col": each[0], **{f"col{at}": value for at, value in enumerate(each[1:])}} for each in state]

        return Aggregate(list, step, lambda one, other: greatest(one + other), result)

    return make


def by_offset(*, latest: bool) -> Callable[..., Aggregate]:
    """Return the first or last values to arrive: one, or a list of `size`."""

    def make(arguments: int, *constants: Any) -> Aggregate:
        only(arguments, "BY_OFFSET")
        sizes = [each for each in constants if not isinstance(each, bool)]
        skips_null = next((each for each in constants if isinstance(each, bool)), True)
        size = sizes[0] if sizes else 1

        def chosen(given: list[Any]) -> list[Any]:
            ordered = sorted(given, key=lambda pair: pair[0])
            return ordered[-size:] if latest else ordered[:size]

        def step(state: list[Any], value: Any) -> list[Any]:
            return state if value is None and skips_null else chosen([*state, [next(_ARRIVALS), value]])

        def result(state: list[Any]) -> Any:
            found = [pair[1] for pair in state]
            return found if sizes else found[0] if found else None

        return Aggregate(list, step, lambda one, other: chosen(one + other), result)

    return make


def attribute(arguments: int) -> Aggregate:
    """Return the value that all rows have; null if they have several."""
    only(arguments, "ATTR")

    def moved(state: list[Any], value: Any, by: int) -> list[Any]:
        kept = [pair if pair[0] != value else [value, pair[1] + by] for pair in state]
        kept = kept if any(pair[0] == value for pair in state) else [*kept, [value, by]]
        return [pair for pair in kept if pair[1]]

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        for value, seen in other:
            one = moved(one, value, seen)
        return one

    return Aggregate(
        list,
        lambda state, value: moved(state, value, 1),
        merge,
        lambda state: state[0][0] if len(state) == 1 else None,
        lambda state, value: moved(state, value, -1),
    )


def _least(one: Any, other: Any) -> Any:
    return min(one, other, key=cmp_to_key(_order))


def _most(one: Any, other: Any) -> Any:
    return max(one, other, key=cmp_to_key(_order))


def _order(one: Any, other: Any) -> int:
    left, right = (float(each) if isinstance(each, Decimal) and isinstance(other, float) else each for each in (one, other))
    return (left > right) - (left < right)


AGGREGATES: Final[dict[str, Callable[..., Aggregate]]] = {
    "ATTR": attribute,
    "AVG": averaged,
    "COLLECT_LIST": collected,
    "COLLECT_SET": collected_set,
    "CORRELATION": correlated,
    "COUNT": counted,
    "COUNT_DISTINCT": counted_distinct,
    "EARLIEST_BY_OFFSET": by_offset(latest=False),
    "HISTOGRAM": histogram,
    "LATEST_BY_OFFSET": by_offset(latest=True),
    "MAX": outermost(_most),
    "MIN": outermost(_least),
    # STDDEV_SAMP is the variance, whatever its name says; ksql added STDDEV_SAMPLE in its place.
    "STDDEV_SAMP": spread,
    "STDDEV_SAMPLE": lambda arguments: spread(arguments, 0.5),
    "SUM": summed,
    "SUM_LIST": summed_list,
    "TOPK": top(distinct=False),
    "TOPKDISTINCT": top(distinct=True),
}
