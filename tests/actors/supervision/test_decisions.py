"""The decisions of supervision: which are taken, and the reports of what follows."""

from __future__ import annotations

from typing import Any

import pytest

from actors import Decision, Failed, Restart, Resume, Spec, Stop
from actors.testing import TestKit
from tests.actors.helpers import Boom, Do, boom, do, restart_at_once

pytestmark = pytest.mark.actors(runs=5)


def reports(kit: TestKit) -> list[tuple[str, str]]:
    """Collect decision and reason of each failure."""
    seen: list[tuple[str, str]] = []
    kit.subscribe(Failed, lambda event: seen.append((event.decision, event.reason)))
    return seen


@pytest.mark.parametrize(
    ("limit", "reason"),
    [(0, "the limit of restarts is 0"), (1, "1 restart within 60 s is spent"), (2, "2 restarts within 60 s are spent")],
)
async def test_a_failure_past_the_budget_is_reported_as_the_stop_that_it_is(
    actor_kit: TestKit, caplog: pytest.LogCaptureFixture, limit: int, reason: str
) -> None:
    """Event and log say "restart" only where a restart follows."""
    seen = reports(actor_kit)
    ref, _ = await do(actor_kit, supervise=restart_at_once(limit=limit, within=60))
    for _ in range(limit + 1):
        ref.tell(boom)
    await actor_kit.quiesce()
    assert seen == [("restart", "")] * limit + [("stop", reason)]
    assert f"actor /test/a failed at function, decision: stop ({reason})" in caplog.text
    actor_kit.failures.clear()


async def test_a_failed_restart_that_cannot_be_resumed_is_reported_as_a_stop(actor_kit: TestKit) -> None:
    """Nothing is there to resume, whatever was decided."""
    made: list[Do] = []

    def make() -> Do:
        if made:
            raise KeyError("factory")
        made.append(Do())
        return made[0]

    def supervise(error: Exception) -> Decision:
        return Restart(backoff=(0.0, 0.0)) if isinstance(error, Boom) else Resume()

    seen = reports(actor_kit)
    ref = await actor_kit.spawn(Spec(make, supervise=supervise), "a")
    ref.tell(boom)
    await actor_kit.quiesce()
    assert seen == [("restart", ""), ("stop", "nothing is there to resume, as the restart failed")]
    actor_kit.failures.clear()


async def test_a_restart_that_a_stop_forestalls_is_reported_as_a_stop(actor_kit: TestKit) -> None:
    """The actor was told to end before it failed, and does."""
    seen = reports(actor_kit)
    ref, _ = await do(actor_kit, supervise=restart_at_once())

    def stop_and_fail(me: Do) -> None:
        me.ctx.stop()
        boom()

    ref.tell(stop_and_fail)
    await actor_kit.quiesce()
    assert seen == [("stop", "a stop was requested before the restart")]
    assert actor_kit.tree() == []


@pytest.mark.parametrize(("decision", "shown"), [("restart", "'restart'"), (None, "None"), (Stop, "<class 'actors")])
async def test_a_supervisor_that_returns_no_decision_stops_the_actor_with_an_error(actor_kit: TestKit, decision: Any, shown: str) -> None:
    """The error names the actor, the value and the decisions; the first error is its context."""
    ref, _ = await do(actor_kit, supervise=lambda _: decision)
    probe = actor_kit.probe(object)
    ref.tell(boom)
    cause = (await probe.terminated(ref)).cause
    assert isinstance(cause, TypeError)
    assert str(cause).startswith(f"supervise of /test/a returned {shown}")
    assert str(cause).endswith("it must be a function that returns Stop(), Resume() or Restart(...)")
    assert isinstance(cause.__context__, Boom)


async def test_a_supervisor_that_returns_a_coroutine_stops_the_actor_with_an_error(actor_kit: TestKit) -> None:
    """A lambda around an `async def` passes the check of Spec, but not this one."""

    async def supervise(_: Exception) -> Decision:
        return Resume()

    hidden: Any = lambda error: supervise(error)  # noqa: E731 - a function that is not `async def`
    ref, _ = await do(actor_kit, supervise=hidden)
    probe = actor_kit.probe(object)
    ref.tell(boom)
    cause = (await probe.terminated(ref)).cause
    assert isinstance(cause, TypeError)
    assert "it must be a function, not `async def`, that returns" in str(cause)
