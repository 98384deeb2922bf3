"""Closes without any time, and closes that are cancelled again and again: the app is over all the same, and says so."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ks_actors import ConfigError, Consumed, Materialized, ProcessingFailed, Produced, StreamsBuilder, blocking, serdes
from ks_actors.runtime import InstanceState
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import feed, in_virtual_time
from tests.waiting import PATIENCE_S, until

TEXT = Consumed(serdes.STRING, serdes.STRING)
TOPICS = {"in": 1, "out": 1}


def slow(began: asyncio.Event) -> Topology:
    """Make each record take an hour."""

    async def wait(value: str) -> str:
        began.set()
        await asyncio.sleep(3_600)
        return value

    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(wait).to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


@pytest.mark.parametrize("way", ["argument", "setting"])
@in_virtual_time
async def test_a_close_without_time_leaves_calls_in_flight_at_once(guarantee: str, way: str) -> None:
    """It raises nothing, and `run` returns: the records are processed again by the next instance."""
    began = asyncio.Event()

    settings: dict[str, Any] = {"close_timeout_ms": 0} if way == "setting" else {}
    async with AppHarness(slow(began), topics=TOPICS, processing_guarantee=guarantee, **settings) as harness:
        await harness.produce("in", "a", "x", 0)
        await began.wait()
        running = asyncio.create_task(harness.app.run())
        await asyncio.sleep(0)
        await harness.app.close(timeout_ms=0 if way == "argument" else None)
        assert harness.app.state is InstanceState.NOT_RUNNING
        assert not harness.app.health().live
        await running


@pytest.mark.parametrize("times", [1, 2, 3])
@in_virtual_time
async def test_a_close_that_is_cancelled_ends_the_app(times: int) -> None:
    """With the second one the actors are ended without their own last steps; a call of `run` returns."""
    began = asyncio.Event()
    async with AppHarness(slow(began), topics=TOPICS) as harness:
        await harness.produce("in", "a", "x", 0)
        await began.wait()
        running = asyncio.create_task(harness.app.run())
        closing = asyncio.create_task(harness.app.close(timeout_ms=1_000))
        for _ in range(3):
            await asyncio.sleep(0)
        for _ in range(times):
            closing.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([closing])
        assert harness.app.state is InstanceState.NOT_RUNNING
        assert harness.app.waiting() == ()
        await running
        await harness.app.close()


@pytest.mark.parametrize("timeout_ms", [0, 1, 5])
@in_virtual_time
async def test_a_short_limit_for_the_log_is_none_for_closing_stores(guarantee: str, timeout_ms: int) -> None:
    """The disk has its own time; the app ends without an error, and its results are committed."""
    builder = StreamsBuilder()
    builder.stream("in", TEXT).group_by_key().count(Materialized("counts", store_type="rocksdb")).to_stream().map_values(str).to(
        "out", Produced(serdes.STRING, serdes.STRING)
    )
    async with AppHarness(builder.build(), topics=TOPICS, processing_guarantee=guarantee, task_timeout_ms=timeout_ms) as harness:
        await feed(harness, "in", "a", "x", 0)
        await harness.app.close()
        assert harness.app.state is InstanceState.NOT_RUNNING
        assert [record.value for record in await harness.read("out")] == ["1"]


def test_a_config_that_an_internal_topic_cannot_have_is_refused() -> None:
    """The error is the log's."""
    builder = StreamsBuilder()
    builder.stream("in", TEXT).group_by_key().count(Materialized("counts"))

    async def test(_: AppHarness) -> None:
        pytest.fail("it has started")

    with pytest.raises(ConfigError, match=r"bogus"):
        run_app(test, builder.build(), topics=TOPICS, topic_configs={"bogus": "1"})


@in_virtual_time
async def test_a_worker_that_dies_while_the_app_closes_is_told(guarantee: str) -> None:
    """The close does not wait for its tasks, and raises its error; work that others have finished is committed at least once."""
    entered, go_on = threading.Event(), threading.Event()

    @blocking
    def fail(value: str) -> str:
        if value == "bad":
            entered.set()
            assert go_on.wait(PATIENCE_S)
            raise RuntimeError("by its own fault")
        return value

    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(fail).to("out", Produced(serdes.STRING, serdes.STRING))
    async with AppHarness(builder.build(), topics={"in": 2, "out": 1}, processing_guarantee=guarantee) as harness:
        await feed(harness, "in", "a", "good", 0, partition=1)
        await harness.produce("in", "a", "bad", 0, partition=0)
        await asyncio.to_thread(entered.wait, 20)
        closing = asyncio.create_task(harness.app.close())
        await until(lambda: harness.app._closing.begun)
        began = harness.kit.clock.time()
        go_on.set()
        with pytest.raises(ProcessingFailed, match="by its own fault"):
            await closing
        assert harness.kit.clock.time() - began < 1
        assert isinstance(harness.app.error, ProcessingFailed)
        assert [record.value for record in await harness.read("out")] == ["good"]
