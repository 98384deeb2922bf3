"""kill -9 of the process that hands a snapshot over, at every point of its way."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tests.ks_actors.batch.backfill.killed_history import UNTIL, handed_over
from tests.ks_actors.batch.driver import Order, Point

POINTS: tuple[Point, ...] = tuple(point for point in get_args(Point) if point)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", POINTS)
async def test_a_hand_over_that_is_killed_has_happened_or_not_and_together_it_is_a_stream(point: Point, tmp_path: Path) -> None:
    """All changelogs have all of it or nothing; repeated, history and the live tail give the results of a stream over all, record for record."""
    order = Order(what="backfill", log=f"embedded://{tmp_path / 'log'}", directory=str(tmp_path), until=UNTIL)
    await handed_over(order, point)
