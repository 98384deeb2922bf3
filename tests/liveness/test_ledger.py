"""Results that are missing, doubled or wrong are told."""

from __future__ import annotations

import pytest

from ks_actors.testing import TestRecord
from tests.liveness.ledger import Ledger, Wrong
from tests.liveness.plan import Lane, Shape, Work

SENT = ("k", "k", "other")
RIGHT: dict[Shape, list[tuple[str, str]]] = {
    "final": [("k@0", "1"), ("k@1000", "1"), ("other@0", "1")],
    "foreign": [("k", "0"), ("other", "2"), ("k", "1")],
    "map": [("k", "0"), ("k", "1"), ("other", "2")],
}
WRONG: dict[str, tuple[Shape, list[tuple[str, str]]]] = {
    "a window twice": ("final", [("k@0", "1"), ("k@0", "2"), ("other@0", "1")]),
    "a record in no window": ("final", [("k@0", "1"), ("other@0", "1")]),
    "a record in two windows": ("final", [("k@0", "1"), ("k@1000", "2"), ("other@0", "1")]),
    "an old row at last": ("foreign", [("k", "1"), ("k", "0"), ("other", "2")]),
    "a row without result": ("foreign", [("k", "1")]),
    "a record lost": ("map", [("k", "0"), ("other", "2")]),
    "a record doubled": ("map", [("k", "0"), ("k", "1"), ("k", "1"), ("other", "2")]),
    "a record of nobody": ("map", [("k", "0"), ("k", "1"), ("other", "2"), ("k", "3")]),
}


def check(shape: Shape, results: list[tuple[str, str]]) -> None:
    ledger = Ledger()
    lane = Lane("l", shape, 1, Work())
    for key in SENT:
        ledger.send(lane, lane.topics[0], 0, key)
    ledger.check(lane, [TestRecord(key, value, 0) for key, value in results], exactly_once=True)


@pytest.mark.parametrize("shape", RIGHT)
def test_right_results_pass(shape: Shape) -> None:
    """Each record counts once, and each table ends with its last rows."""
    check(shape, RIGHT[shape])


@pytest.mark.parametrize("case", WRONG)
def test_wrong_results_are_told(case: str) -> None:
    """Exactly once, nothing may be missing, doubled or outdated."""
    with pytest.raises(Wrong, match="l: "):
        check(*WRONG[case])
