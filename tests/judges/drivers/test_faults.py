"""Faults of runs are drawn before them."""

from __future__ import annotations

import pytest

from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.judges.drivers.faults import draw
from tests.judges.drivers.options import Options


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_seed_draws_the_same_faults_again(guarantee: str) -> None:
    """Faults are drawn by the seed alone; they come in order, and the last one while records are still written."""
    options = Options(guarantee=guarantee, kills=3, freezes=2, broker_restarts=1, seed=5)
    faults = draw(options)
    assert faults == draw(options) != draw(Options(guarantee=guarantee, kills=3, freezes=2, broker_restarts=1, seed=6))
    assert sorted(fault.kind for fault in faults) == ["broker", "freeze", "freeze", "kill", "kill", "kill"]
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert faults[-1].at < options.seconds
