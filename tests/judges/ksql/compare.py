"""Comparison of the records of a case with the expected ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.judges.ksql.play import Written


def difference(found: Mapping[str, Sequence[Written]], expected: Mapping[str, Sequence[Written]]) -> str | None:
    """Return the first difference; None if each topic has the expected records in their order."""
    for topic, wanted in expected.items():
        told = found.get(topic, ())
        for at, (one, other) in enumerate(zip(told, wanted, strict=False)):
            if not same_record(one, other):
                return f"{topic}[{at}]: {one}, expected {other}"
        if len(told) != len(wanted):
            return f"{topic}: {len(told)} records, expected {len(wanted)}: {list(told)}, expected {list(wanted)}"
    return None


def same_record(found: Written, wanted: Written) -> bool:
    return (
        same(found.key, wanted.key)
        and same(found.value, wanted.value)
        and wanted.timestamp in {None, found.timestamp}
        and (wanted.window is None or found.window == wanted.window)
    )


def same(one: Any, other: Any) -> bool:
    """Return whether values are equal, doubles but for the last digits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def has_all(found: Sequence[Written], wanted: Sequence[Written]) -> bool:
    """Return whether all expected records were found, in their order, maybe among others."""
    rest = iter(found)
    return all(any(same_record(each, one) for each in rest) for one in wanted)


def has_none_else(found: Sequence[Written], wanted: Sequence[Written]) -> bool:
    """Return whether all records that were found are expected, in their order."""
    rest = iter(wanted)
    return all(any(same_record(one, each) for each in rest) for one in found)
