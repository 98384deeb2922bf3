"""The permission to commit."""

from __future__ import annotations

import pytest

from ks_actors import IllegalGeneration, NotRunning
from ks_actors.runtime.commit._states import Permission
from ks_actors.runtime.messages import Commit

BY_TIME = Commit(None, "commit_interval_ms has passed", due_only=True)
CLOSING = Commit(None, "the app closes", closing=True)
HANDOVER = Commit(None, "tasks are moving to another member", hold=True)
REBALANCE = Commit(None, "the group rebalances", rebalancing=True)
REASON = NotRunning("the app is closing: it makes no more commits")


def after(*steps: Commit | Exception | str) -> Permission:
    """Return the permission after requests, the loss of the generation, reasons and releases."""
    permission = Permission()
    for step in steps:
        match step:
            case Commit():
                permission.follow(step)
            case Exception():
                permission.withdraw(step)
            case "lost":
                permission.lose_generation()
            case _:
                permission.open()
    return permission


@pytest.mark.parametrize(
    ("steps", "allowed"),
    [
        ((), (BY_TIME, CLOSING, HANDOVER, REBALANCE)),
        ((REBALANCE,), (BY_TIME, CLOSING, HANDOVER, REBALANCE)),
        ((HANDOVER,), (HANDOVER, REBALANCE)),
        ((REBALANCE, "lost"), (HANDOVER, REBALANCE)),
        ((REASON,), ()),
        # A handover or a rebalance that was asked for changes nothing about these two.
        ((REBALANCE, "lost", HANDOVER), (HANDOVER, REBALANCE)),
        ((REASON, HANDOVER, REBALANCE), ()),
        # Only giving up the tasks ends a reason, and the next assignment the rest.
        ((REASON, "open"), ()),
        ((REASON, "lost"), (HANDOVER, REBALANCE)),
        ((REASON, "lost", "open"), (BY_TIME, CLOSING, HANDOVER, REBALANCE)),
        ((HANDOVER, "open"), (BY_TIME, CLOSING, HANDOVER, REBALANCE)),
    ],
)
def test_the_state_alone_decides_which_commits_may_begin(steps: tuple[Commit | Exception | str, ...], allowed: tuple[Commit, ...]) -> None:
    """The state alone decides, and a request does not lead out of a lost generation or of a reason to commit nothing."""
    permission = after(*steps)
    assert tuple(one for one in (BY_TIME, CLOSING, HANDOVER, REBALANCE) if permission.allows(one)) == allowed


def test_a_request_that_is_not_allowed_waits_or_fails() -> None:
    """A request waits for the end of a handover, fails with the reason, and does not wait for a generation when the app closes."""
    assert after(HANDOVER).refusal(BY_TIME) is after(HANDOVER).refusal(CLOSING) is None
    assert after(REBALANCE, "lost").refusal(BY_TIME) is None
    assert isinstance(after(REBALANCE, "lost").refusal(CLOSING), IllegalGeneration)
    assert after(REASON).refusal(BY_TIME) is after(REASON).refusal(CLOSING) is REASON


@pytest.mark.parametrize(
    ("steps", "late"), [((), False), ((HANDOVER,), False), ((REBALANCE,), True), ((REBALANCE, "lost"), True), ((REBALANCE, "open"), False)]
)
def test_a_commit_may_come_too_late_only_in_a_rebalance(steps: tuple[Commit | Exception | str, ...], *, late: bool) -> None:
    """At any other time, a commit that the group refuses means that other members have the tasks."""
    assert after(*steps).may_come_too_late is late
