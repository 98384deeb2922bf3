"""Where we differ from Kafka Streams on purpose, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cases import Case


class Difference(NamedTuple):
    """A difference on purpose: the cases in which it shows, and the reason."""

    shows: Callable[[Case], bool]
    reason: str


DIFFERENCES: dict[str, Difference] = {}
"""By topology."""

DROPPED_DEPENDS_ON_STORE: dict[str, str] = {}
"""Topologies whose count of dropped records is not compared, and why."""


def differs_on_purpose(case: Case) -> bool:
    difference = DIFFERENCES.get(case["topology"])
    return difference is not None and difference.shows(case)
