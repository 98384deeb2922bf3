"""Closes that meet: out of an app's own code, and of several tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest

from ks_actors import App, ProcessingFailed, StreamsBuilder, StreamsConfig, UncaughtResponse
from ks_actors.runtime import InstanceState
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, in_app, in_virtual_time

TOPICS = {"in": 1, "out": 1}


def mapped(function: Callable[[str], Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(function).to("out", STRINGS_OUT)
    return builder.build()


def boom(_: str) -> str:
    raise ValueError("boom")


async def plainly(app: App) -> None:
    await app.close()


async def at_once(app: App) -> None:
    await app.close(timeout_ms=0)


async def in_a_task_of_its_own(app: App) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(app.close())


async def and_lingers(app: App) -> None:
    await app.close()
    await asyncio.sleep(1000)


@pytest.mark.parametrize("close", [plainly, at_once, in_a_task_of_its_own, and_lingers])
@in_virtual_time
async def test_an_uncaught_handler_may_await_the_close_of_its_app(close: Callable[[App], Awaitable[None]]) -> None:
    """As in Kafka Streams: the close does not wait for itself, the app ends, and the error that the handler was asked about is not lost."""
    found: list[App] = []

    async def handler(_: Exception) -> UncaughtResponse:
        await close(found[0])
        return UncaughtResponse.SHUTDOWN_CLIENT

    async with AppHarness(mapped(boom), topics=TOPICS, uncaught_handler=handler) as harness:
        found.append(harness.app)
        await harness.produce("in", "a", "x")
        with pytest.raises(ProcessingFailed, match="boom"):
            await asyncio.wait_for(harness.app.run(), 30)
        assert harness.app.state in {InstanceState.ERROR, InstanceState.NOT_RUNNING}
        assert isinstance(harness.app.error, ProcessingFailed)
        await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() if "pipe" in task.get_name()]


@in_virtual_time
async def test_the_error_of_a_worker_is_kept_when_its_handler_has_not_decided_before_the_close() -> None:
    """The close ends the handler, and nobody else would tell of the error."""

    async def handler(_: Exception) -> UncaughtResponse:
        await asyncio.sleep(1000)
        return UncaughtResponse.REPLACE_WORKER

    async with AppHarness(mapped(boom), topics=TOPICS, uncaught_handler=handler) as harness:
        await harness.produce("in", "a", "x")
        await asyncio.sleep(1)
        with pytest.raises(ProcessingFailed, match="boom"):
            await harness.app.close()


@in_virtual_time
async def test_an_async_function_that_awaits_the_close_of_its_app_returns_first_and_is_committed() -> None:
    """The close waits for calls in flight, so this call must not wait for the close."""
    found: list[App] = []

    async def closes(value: str) -> str:
        await found[0].close()
        return value.upper()

    async with AppHarness(mapped(closes), topics=TOPICS) as harness:
        found.append(harness.app)
        began = asyncio.get_running_loop().time()
        await harness.produce("in", "a", "x")
        await asyncio.wait_for(harness.app._gone.wait(), 30)
        assert asyncio.get_running_loop().time() - began < 1
        assert [record.value for record in await harness.read("out")] == ["X"]
        assert harness.app.error is None


async def slowly(value: str) -> str:
    await asyncio.sleep(1)
    return value.upper()


@in_app(mapped(slowly), topics=TOPICS)
async def test_a_block_that_ends_while_another_task_closes_its_app_waits_for_that_close(harness: AppHarness) -> None:
    """A program closes the log behind the block; the last commit must be in it by then."""
    async with App(mapped(slowly), StreamsConfig(application_id="b"), log=harness.log) as app:
        await harness.produce("in", "a", "x")
        await asyncio.sleep(0.5)
        closing = asyncio.create_task(app.close())
        await asyncio.sleep(0.05)
        assert app.state.name == "RUNNING"  # it waits for the call
    assert app.state is InstanceState.NOT_RUNNING
    await closing


@in_app(mapped(slowly), topics=TOPICS)
async def test_every_close_of_an_app_ends_with_the_first_one(harness: AppHarness) -> None:
    """As in Kafka Streams; a shorter time counts for all of them."""
    await harness.produce("in", "a", "x")
    await asyncio.sleep(0.5)
    closes = [asyncio.create_task(harness.app.close()) for _ in range(3)]
    await asyncio.wait(closes, return_when=asyncio.FIRST_COMPLETED)
    assert harness.app.state is InstanceState.NOT_RUNNING
    await asyncio.gather(*closes)
    assert [record.value for record in await harness.read("out")] == ["X"]


class Closer:
    """A service that closes the app when it is exited."""

    def __init__(self) -> None:
        self.app: App | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.app is not None
        await self.app.close()


@in_app(mapped(slowly), topics=TOPICS)
async def test_a_service_that_closes_its_app_at_its_end_does_not_wait_for_itself(harness: AppHarness) -> None:
    """The close exits the services."""
    closer = Closer()
    async with App(mapped(slowly), StreamsConfig(application_id="b"), log=harness.log, services=[closer]) as app:
        closer.app = app
    assert app.state is InstanceState.NOT_RUNNING
