"""Faults that there were are found when they are put back in."""

from __future__ import annotations

import pytest

from tests.liveness.faults import find, main
from tests.liveness.old_faults import OLD_FAULTS

pytestmark = pytest.mark.unmeasured

FOUND_AT = {"idle": 20, "room": 18, "reset": 7, "bytes": 53, "priority": 54, "drain": 145, "commit": 116}


@pytest.mark.heavy("seeds with a fault, of which some go on for long")
@pytest.mark.parametrize("name", OLD_FAULTS)
def test_a_fault_that_is_put_back_in_is_found(name: str) -> None:
    """The first seed that finds it is below 200: `python -m tests.liveness.faults` looks for that seed, and this keeps it."""
    found = find(name, range(FOUND_AT[name], FOUND_AT[name] + 1))
    assert found is not None


@pytest.mark.extended
def test_the_command_line_reports_the_seed_of_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """It names the seed, and the error."""
    assert main(["reset"]) == 0
    assert "reset (a task is not told that a partition was reset): found at seed" in capsys.readouterr().out
