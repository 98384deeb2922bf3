"""The states of workers, through whole lives (ThreadMetadata of Kafka Streams)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from typing import Any, Final

import pytest

from ks_actors import App, ProcessingFailed, WorkerState
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import Bomb, counting, echo
from tests.waiting import until

pytestmark = pytest.mark.unmeasured

CHANGE: Final = re.compile(r"(worker|task) (\S+): (\w+), was (\w+)")
BIRTH = ["CREATED", "STARTING", "PARTITIONS_ASSIGNED", "RUNNING"]
REBALANCE = ["PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "RUNNING"]
DEATH = ["PENDING_SHUTDOWN", "DEAD"]


def lives(caplog: pytest.LogCaptureFixture, kind: str) -> dict[str, list[str]]:
    """Return the states of each worker or task in order, as the log has them at DEBUG."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in caplog.records:
        if (change := CHANGE.fullmatch(record.getMessage())) is not None and change[1] == kind:
            life = found[change[2]]
            if change[4] == "CREATED" and life[-1:] != ["CREATED"]:
                assert life[-1:] in ([], ["CLOSED"]), f"{kind} {change[2]} began again when it was {life[-1]}"
                life.append("CREATED")
            assert life[-1] == change[4], f"{kind} {change[2]} went from {change[4]}, and was {life[-1]}"
            life.append(change[3])
    return dict(found)


def shown(harness: AppHarness) -> list[WorkerState]:
    return [worker.state for worker in harness.app.workers()]


def test_workers_live_through_rebalances_to_the_end(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each worker walks as a thread of Kafka Streams: through a member that joins and leaves, a lost membership, and the close."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    seen: list[tuple[InstanceState, set[WorkerState]]] = []
    apps: list[App] = []

    def note(new: InstanceState, _: InstanceState) -> None:
        if apps and apps[0].state is new:  # not the other instance, which has the same listener
            seen.append((new, {worker.state for worker in apps[0].workers()}))

    async def test(harness: AppHarness) -> None:
        assert shown(harness) == [WorkerState.RUNNING] * 2
        apps.append(harness.app)
        await harness.produce("in", "a", "1")
        async with harness.another(client_id="other", num_workers=1) as other:
            await harness.kit.clock.advance(1)
            assert shown(harness) == [WorkerState.RUNNING] * 2
            assert shown(other) == [WorkerState.RUNNING]
        await harness.kit.clock.advance(1)
        harness.lose_membership()
        await harness.kit.clock.advance(1)
        await harness.caught_up()
        assert shown(harness) == [WorkerState.RUNNING] * 2
        await harness.close()
        assert apps[0].workers() == ()

    run_app(
        test, counting("in_memory"), topics={"in": 4, "out": 1}, client_id="me", num_workers=2, processing_guarantee=guarantee, on_state=note
    )  # fmt: skip
    walked = lives(caplog, "worker")
    assert walked.keys() == {"me-Worker-1", "me-Worker-2", "other-Worker-1"}
    mine = walked["me-Worker-1"]
    assert mine == walked["me-Worker-2"]
    assert mine[:4] == BIRTH
    assert mine[4:-2].count("PARTITIONS_REVOKED") >= 3
    assert [state for index, state in enumerate(mine[4:-2]) if state != mine[3 + index]][-3:] == REBALANCE
    assert mine[-2:] == walked["other-Worker-1"][-2:] == DEATH
    rebalancing = {state for instance, states in seen if instance is InstanceState.REBALANCING for state in states}
    assert rebalancing <= {WorkerState.PARTITIONS_REVOKED, WorkerState.PARTITIONS_ASSIGNED}
    assert WorkerState.PARTITIONS_REVOKED in rebalancing
    assert [(instance, states) for instance, states in seen if instance is not InstanceState.REBALANCING][-3:] == [
        (InstanceState.RUNNING, {WorkerState.RUNNING}),
        (InstanceState.PENDING_SHUTDOWN, {WorkerState.PENDING_SHUTDOWN}),
        (InstanceState.NOT_RUNNING, set()),
    ]


def test_a_removed_worker_is_shown_until_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    """It is PENDING_SHUTDOWN until its slice is over; then it is DEAD, and left out."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")

    async def test(harness: AppHarness) -> None:
        removing = asyncio.ensure_future(harness.remove_worker())
        await until(lambda: len(shown(harness)) != 2 or WorkerState.PENDING_SHUTDOWN in shown(harness))
        assert shown(harness) == [WorkerState.RUNNING, WorkerState.PENDING_SHUTDOWN]
        assert harness.app.metrics()["alive-workers"] == 1
        assert await removing == "app-Worker-2"
        assert shown(harness) == [WorkerState.RUNNING]

    run_app(test, echo(), topics={"in": 2, "out": 1}, num_workers=2)
    assert lives(caplog, "worker")["app-Worker-2"] == [*BIRTH, *DEATH]


@pytest.mark.parametrize("response", [UncaughtResponse.LOSE_WORKER, UncaughtResponse.SHUTDOWN_CLIENT])
def test_a_worker_that_dies_is_dead_at_once(response: UncaughtResponse, caplog: pytest.LogCaptureFixture) -> None:
    """The handler is asked when the worker is DEAD; the others run on, or end with the app."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    bomb = Bomb()
    harnesses: list[AppHarness] = []
    seen: list[list[WorkerState]] = []

    def answer(_: Exception) -> UncaughtResponse:
        seen.append(shown(harnesses[0]))
        return response

    async def test(harness: AppHarness) -> None:
        harnesses.append(harness)
        bomb.armed = 1
        await harness.produce("in", "a", "1")
        if response is UncaughtResponse.LOSE_WORKER:
            await harness.caught_up()
            assert shown(harness) == [WorkerState.RUNNING]
        else:
            assert isinstance(await harness.ended(), ProcessingFailed)

    run_app(test, echo(bomb), topics={"in": 1, "out": 1}, num_workers=2, uncaught_handler=answer)
    assert seen == [[WorkerState.RUNNING]]
    assert [*lives(caplog, "worker").values()] == [[*BIRTH, *DEATH]] * 2


def test_a_worker_that_comes_in_a_rebalance_begins_as_the_others_are(caplog: pytest.LogCaptureFixture) -> None:
    """While tasks are revoked, a new worker is STARTING, then PARTITIONS_REVOKED, and follows the assignment with the others."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    added: list[list[Any]] = []

    async def test(harness: AppHarness) -> None:
        async with harness.another(client_id="other", start=False) as other:
            joining = asyncio.ensure_future(other.start())
            await until(lambda: harness.app.state is InstanceState.REBALANCING)
            assert await harness.add_worker() == "app-Worker-2"
            added.append(shown(harness))
            await joining
        await harness.kit.clock.advance(1)

    run_app(test, echo(), topics={"in": 2, "out": 1})
    assert added == [[WorkerState.PARTITIONS_REVOKED] * 2]
    assert lives(caplog, "worker")["app-Worker-2"][:5] == ["CREATED", "STARTING", *REBALANCE]
