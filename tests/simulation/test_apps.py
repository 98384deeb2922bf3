"""Whole apps on simulated brokers: random topologies and faults, in virtual time."""

from __future__ import annotations

import pytest

from tests.liveness.__main__ import attempt
from tests.simulation.app_plan import draw_apps
from tests.simulation.apps import apps_seed

pytestmark = pytest.mark.unmeasured

# A crash with exactly once, and one of three instances at least once.
FEW = (15, 8)
MANY = 100


@pytest.mark.parametrize("seed", FEW)
def test_whole_apps_lose_nothing_whatever_brokers_do(seed: int) -> None:
    """When brokers are well again all is processed, exactly once if so promised, within bounds, and without the watchdog's help."""
    outcome = attempt("kafka-apps", seed, told=True)
    assert outcome.error is None, outcome.error


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(MANY))
def test_many_whole_apps_lose_nothing_whatever_brokers_do(seed: int) -> None:
    """When brokers are well again all is processed, exactly once if so promised, within bounds, and without the watchdog's help."""
    outcome = attempt("kafka-apps", seed, told=True)
    assert outcome.error is None, outcome.error


def test_a_seed_of_whole_apps_replays() -> None:
    """Two runs of a seed have the same events at the same times."""
    first, second = apps_seed(FEW[0]), apps_seed(FEW[0])
    assert first.trace.digest == second.trace.digest
    assert first.trace.requests == second.trace.requests


def test_a_seed_of_whole_apps_stands_for_one_plan() -> None:
    """The same seed gives the same plan, and another one another."""
    assert draw_apps(7) == draw_apps(7)
    assert draw_apps(7) != draw_apps(8)
