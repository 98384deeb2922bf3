"""Random apps, input and faults: nothing stands still, and results are complete."""

from __future__ import annotations

import pytest

from tests.liveness import __main__ as command
from tests.liveness.__main__ import attempt, main
from tests.liveness.fetch_plan import draw_fetching
from tests.liveness.layers import LAYERS
from tests.liveness.plan import draw
from tests.liveness.wide_plan import draw_wide

pytestmark = pytest.mark.unmeasured

SEEDS = 60
WIDE_SEEDS = 39
FETCH_SEEDS = 60
AT_ONCE = 3


@pytest.mark.heavy("a few seeds take two seconds")
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_no_task_stands_still_that_has_records(first: int) -> None:
    """With any topology, settings, input and faults: each task reads on within a bound, in the end all is done, and is done right."""
    for seed in range(first, first + AT_ONCE):
        outcome = attempt("app", seed, told=True)
        assert outcome.error is None, outcome.error


@pytest.mark.heavy("a few seeds take two seconds")
@pytest.mark.parametrize("first", range(0, WIDE_SEEDS, AT_ONCE))
def test_no_operation_stands_still_while_members_and_workers_come_and_go(first: int) -> None:
    """Batches, final results, joins by foreign keys and punctuators go on and are right, also when members restart and the log gives no answer."""
    for seed in range(first, first + AT_ONCE):
        outcome = attempt("wide", seed, told=True)
        assert outcome.error is None, outcome.error


@pytest.mark.heavy("all seeds in one test, so that every run has them")
def test_seeds_that_have_found_something_pass() -> None:
    """The time of a commit is none of a call's, a task that a commit held up has its turn first, and a drain that is over wakes nobody.

    Calls and a membership that end behind the last message of their actor tell it nothing, so that a clean end logs no warning.
    """
    for seed in (42722, 42996, 47269, 101222, 30012, 30023, 60728, 100632):
        outcome = attempt("app", seed, told=True)
        assert outcome.error is None, outcome


def test_a_run_that_turns_in_a_circle_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that takes CPU without end is told like one that fails, and keeps nobody from the next ones."""

    def turn(_: int) -> None:
        while True:
            pass

    monkeypatch.setitem(LAYERS, "app", turn)
    monkeypatch.setattr(command, "_LONGEST_S", 0.01)
    outcome = attempt("app", 1)
    assert outcome.error == "TimeoutError: still at it after 0.01 s of CPU: something turns in a circle"


def test_a_seed_stands_for_one_plan() -> None:
    """The same seed gives the same plan, and another one another."""
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw_fetching(7) == draw_fetching(7)
    assert draw_fetching(7) != draw_fetching(8)
    assert draw_wide(7) == draw_wide(7)
    assert draw_wide(7) != draw_wide(8)


def test_the_command_line_reports_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """It says how many failed, and of one seed all that there is to know."""
    assert main(["--seeds", "2", "--jobs", "1"]) == 0
    assert "2 seeds from 0 on, 0 failed" in capsys.readouterr().out
    assert main(["--seed", "0"]) == 0
    assert "seed 0: all is well" in capsys.readouterr().out


@pytest.mark.heavy("a seed of 20,000 requests")
def test_the_seed_of_the_fetcher_that_has_found_something_passes() -> None:
    """Without a session a partition has its turn, also when others are paused between two requests, or those of another topic are at their ends."""
    outcome = attempt("fetch", 207507, told=True)
    assert outcome.error is None, outcome.error


@pytest.mark.parametrize("first", range(0, FETCH_SEEDS, AT_ONCE))
def test_no_partition_of_kafka_stays_unread(first: int) -> None:
    """With any arrivals, pauses, moves and losses: each partition that is assigned, not paused and has records is read within a bound."""
    for seed in range(first, first + AT_ONCE):
        outcome = attempt("fetch", seed, told=True)
        assert outcome.error is None, outcome.error
