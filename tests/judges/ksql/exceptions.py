"""Differences that are known, by kind, each with its reason and a weaker check that still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.judges.ksql.compare import has_all, has_none_else, same
from tests.judges.ksql.plan import step_name, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.judges.ksql.cases import Case
    from tests.judges.ksql.play import Play, Written

    Steps = Sequence[Mapping[str, Any]]
    Records = Sequence[Written]

LOST_RESULTS: Final = "Kafka Streams loses final results of windows that leave its store when stream time jumps; ks-actors emits them"
OLD_SUBTRACTOR: Final = "before KIP-904 a table's row that keeps its group was subtracted and added in two records"
OLD_OUTER_JOIN: Final = "before KIP-633 an outer join without grace told of rows without a partner at once"
LIMITS: Final = "limits of collected lists are in settings that a plan does not have"
DEFAULTS: Final = "defaults of a registered schema, which a plan does not have, stand for nulls"


def exception(case: Case, play: Play, expected: Mapping[str, Records]) -> str | None:
    """Return why the records may differ from the expected ones as they do; None if they may not."""
    given = [step for plan in play.plans for step in steps(plan.sink)]
    for reason, applies, holds in EXCEPTIONS:
        if applies(case, given) and all(holds(play.written.get(topic, ()), wanted) for topic, wanted in expected.items()):
            return reason
    return None


def has_final_results(case: Case, given: Steps) -> bool:
    windows = [step["windowExpression"] for step in given if isinstance(step.get("windowExpression"), dict)]
    return any(step_name(step) == "tableSuppress" for step in given) or any(window.get("emitStrategy") == "FINAL" for window in windows)


def has_old_subtractor(case: Case, given: Steps) -> bool:
    return case.version < (7, 5) and any(step_name(step) == "tableAggregate" for step in given)


def has_old_outer_join(case: Case, given: Steps) -> bool:
    return any(step_name(step) == "streamStreamJoin" and step["joinType"] != "INNER" and step.get("graceMillis") is None for step in given)


def has_collected(case: Case, given: Steps) -> bool:
    return any(text.startswith("COLLECT_") for step in given for text in step.get("aggregationFunctions", ()))


def has_registered_schema(case: Case, given: Steps) -> bool:
    sinks = [step for step in given if step_name(step).endswith("Sink")]
    return any("schemaId" in (sink["formats"]["valueFormat"].get("properties") or {}) for sink in sinks)


def end_alike(found: Records, wanted: Records) -> bool:
    """Return whether each key has the expected last value."""
    last: dict[str, Any] = {repr(each.key): each.value for each in found}
    expected: dict[str, Any] = {repr(each.key): each.value for each in wanted}
    return last.keys() == expected.keys() and all(same(last[key], value) for key, value in expected.items())


def begin_alike(found: Records, wanted: Records) -> bool:
    """Return whether the records are the expected ones, with lists that may be longer."""
    return _in_pairs(found, wanted, lambda one, other: same(one[: len(other)] if isinstance(one, list) and isinstance(other, list) else one, other))


def have_nulls_alike(found: Records, wanted: Records) -> bool:
    """Return whether the records are the expected ones, with nulls for other values."""
    return _in_pairs(found, wanted, _or_null)


def _or_null(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_or_null(value, other[key]) for key, value in one.items())
    return one is None or same(one, other)


def _in_pairs(found: Records, wanted: Records, alike: Callable[[Any, Any], bool]) -> bool:
    if len(found) != len(wanted):
        return False
    for one, other in zip(found, wanted, strict=True):
        if not same(one.key, other.key) or (one.value is None) != (other.value is None):
            return False
        if not all(map(alike, one.value or (), other.value or ())):
            return False
    return True


EXCEPTIONS: Final[Sequence[tuple[str, Callable[[Case, Steps], bool], Callable[[Records, Records], bool]]]] = (
    (LOST_RESULTS, has_final_results, has_all),
    (OLD_SUBTRACTOR, has_old_subtractor, end_alike),
    (OLD_OUTER_JOIN, has_old_outer_join, has_none_else),
    (LIMITS, has_collected, begin_alike),
    (DEFAULTS, has_registered_schema, have_nulls_alike),
)
