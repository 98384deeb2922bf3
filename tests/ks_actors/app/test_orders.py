"""Orders to an app that cannot obey at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from ks_actors import App, KsActorsError, NotRunning, TaskTimeout
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.testing import AppHarness, _harness
from tests.ks_actors.runtime.helpers import EOS, Bomb, counting, echo, feed, in_app, in_virtual_time
from tests.ks_actors.runtime.outages import Line, Weather

IN_AND_OUT = {"in": 1, "out": 1}
ORDERS: list[tuple[str, Callable[[App], Awaitable[Any]]]] = [
    ("pause", lambda app: app.pause(timeout_ms=6_000)),
    ("resume", lambda app: app.resume(timeout_ms=6_000)),
    ("add a worker", lambda app: app.add_worker(timeout_ms=6_000)),
    ("remove a worker", lambda app: app.remove_worker(timeout_ms=6_000)),
    ("commit", lambda app: app.commit(timeout_ms=6_000)),
]
ids = pytest.mark.parametrize(("what", "order"), ORDERS, ids=[name for name, _ in ORDERS])


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch) -> Weather:
    """The log of the harness, to be made away and back."""
    weather = Weather(Random(0), 60.0)
    monkeypatch.setattr(_harness, "Connection", partial(Line, weather))
    return weather


async def process(harness: AppHarness, value: str) -> None:
    await feed(harness, "in", "a", value)


@ids
@in_virtual_time
async def test_an_order_that_comes_during_a_rollback_has_a_deadline(what: str, order: Callable[[App], Awaitable[Any]], weather: Weather) -> None:
    """It raises TaskTimeout when its time is over, and nothing of it happens when the rollback has ended."""
    bomb = Bomb()
    async with AppHarness(
        echo(bomb), topics=IN_AND_OUT, processing_guarantee=EOS, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER
    ) as harness:
        app = harness.app
        await process(harness, "1")
        bomb.armed = 1
        weather.down_at("abort")
        await harness.produce("in", "a", "2")
        while not weather.is_down:
            await asyncio.sleep(0.01)
        began = harness.kit.clock.time()
        with pytest.raises(TaskTimeout, match=f"start to {what} within 6000 ms and drops the request; its state is RUNNING"):
            await order(app)
        assert harness.kit.clock.time() == pytest.approx(began + 6, abs=0.01)
        weather.up()
        await harness.caught_up()
        await process(harness, "3")
        assert [worker.name for worker in app.workers()] == ["app-Worker-2"]
        assert {record.value for record in await harness.read("out")} == {"1", "2", "3"}


@ids
@in_app(counting(), topics=IN_AND_OUT, start=False)
async def test_an_order_that_comes_during_a_start_has_a_deadline(
    harness: AppHarness, what: str, order: Callable[[App], Awaitable[Any]], weather: Weather
) -> None:
    """It raises an error of the app's own, by its deadline at the latest, and does nothing later: the app has its workers, and processes."""
    weather.down_at("join")
    starting = asyncio.ensure_future(harness.start())
    while not weather.is_down:
        await asyncio.sleep(0.01)
    with pytest.raises(KsActorsError) as refused:
        await order(harness.app)
    assert isinstance(refused.value, NotRunning if what == "commit" else TaskTimeout)
    weather.up()
    await starting
    await process(harness, "1")
    assert len(harness.app.workers()) == 1


@in_app(echo(), topics=IN_AND_OUT, start=False)
async def test_an_order_that_was_cancelled_is_not_obeyed(harness: AppHarness, weather: Weather) -> None:
    """To cancel the wait for an order takes the order back."""
    weather.down_at("join")
    starting = asyncio.ensure_future(harness.start())
    while not weather.is_down:
        await asyncio.sleep(0.01)
    orders = [asyncio.ensure_future(work) for work in (harness.app.pause(), harness.app.add_worker())]
    await asyncio.sleep(1)
    for waiting in orders:
        waiting.cancel()
    await asyncio.wait(orders)
    weather.up()
    await starting
    await process(harness, "1")
    assert len(harness.app.workers()) == 1


@in_app(echo(), topics=IN_AND_OUT, start=False)
async def test_an_order_in_time_is_obeyed_when_the_start_is_over(harness: AppHarness, weather: Weather) -> None:
    """An order waits for a start for longer than five seconds, if it may, and is obeyed then."""
    weather.down_at("join")
    starting = asyncio.ensure_future(harness.start())
    while not weather.is_down:
        await asyncio.sleep(0.01)
    adding = asyncio.ensure_future(harness.app.add_worker())
    await asyncio.sleep(30)
    weather.up()
    await starting
    assert await adding == "app-Worker-2"


@in_app(echo(), topics=IN_AND_OUT, start=False)
async def test_an_order_to_an_app_that_ends_meanwhile_is_not_running(harness: AppHarness, weather: Weather) -> None:
    """An app that ends raises `NotRunning` for each order that still waits."""
    weather.down_at("join")
    starting = asyncio.ensure_future(harness.start())
    while not weather.is_down:
        await asyncio.sleep(0.01)
    app = harness.app
    pausing = asyncio.ensure_future(app.pause())
    await asyncio.sleep(1)
    await harness.close()
    with pytest.raises(NotRunning):
        await pausing
    with pytest.raises(NotRunning):
        await starting
    assert app.state is InstanceState.NOT_RUNNING


@in_app(echo(), topics=IN_AND_OUT)
async def test_waiting_to_be_caught_up_ends_by_its_deadline_also_when_the_log_does_not_answer(harness: AppHarness, weather: Weather) -> None:
    """It is TaskTimeout then, and names the unknown part."""
    await process(harness, "1")
    weather.down()
    began = harness.kit.clock.time()
    with pytest.raises(TaskTimeout, match="not caught up within 3000 ms: the log did not return its end offsets"):
        await harness.app.wait_until_caught_up(timeout_ms=3_000)
    assert harness.kit.clock.time() == pytest.approx(began + 3, abs=0.01)
    weather.up()
    await process(harness, "2")
