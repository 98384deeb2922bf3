"""Processors that do not return: for a while, and for too long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, Consumed, Materialized, Produced, StreamsBuilder, TaskTimeout, blocking
from ks_actors.log.kafka import KafkaLog
from ks_actors.runtime import InstanceState
from ks_actors.serdes import BYTES, LONG
from tests.chaos.checks import EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import Counting, counting_as
from tests.waiting import PATIENCE_S, SESSION_MS, until


class Trap:
    """A function for `map_values` that does not return, once, when it is armed, before it is released; or for so many seconds."""

    def __init__(self, seconds: float | None = None) -> None:
        self.armed: bool = False
        self.caught = threading.Event()
        self.release = threading.Event()
        self._seconds = seconds

    def __call__(self, value: bytes) -> bytes:
        if self.armed:
            self.armed = False
            self.caught.set()
            self.release.wait(self._seconds)
        return value


class World(Counting):
    """Two partitions that are counted."""

    def hanging(self, who: str, function: Callable[[bytes], bytes], max_poll_ms: int, states: list[InstanceState], **more: Any) -> App:
        """Return an app that calls a function for each record."""
        builder = StreamsBuilder()
        stream = builder.stream(self.source, Consumed(BYTES, BYTES)).map_values(function)
        counts = stream.group_by_key().count(Materialized("counts", BYTES, LONG))
        counts.to_stream().to(self.sink, Produced(BYTES, LONG))
        return self.app(who, states, topology=builder.build(), **{"max_poll_interval_ms": max_poll_ms, "session_timeout_ms": SESSION_MS, **more})


class Elsewhere:
    """An app on a loop of its own, in a thread."""

    def __init__(self, where: World, function: Callable[[bytes], bytes], max_poll_ms: int) -> None:
        self.states: list[InstanceState] = []
        self.error: Exception | None = None
        self._where = where
        self._function = function
        self._max_poll_ms = max_poll_ms
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        async with KafkaLog(self._where.bootstrap) as log:
            app = self._where.hanging("elsewhere", self._function, self._max_poll_ms, self.states, log=log)
            running = asyncio.ensure_future(app.run())
            stopping = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            stopping.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)
            self.error = app.error

    async def until(self, state: InstanceState) -> None:
        await until(lambda: self.states[-1:] == [state])

    async def end(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        await until(lambda: not self._thread.is_alive())


async def test_a_processor_that_blocks_the_loop_keeps_its_membership(kafka_broker: Broker, tmp_path: Path) -> None:
    """For twice the session timeout: heartbeats do not depend on users' code."""
    trap = Trap(2 * SESSION_MS / 1000)
    states: list[InstanceState] = []
    async with counting_as(World, kafka_broker, EXACTLY_ONCE, tmp_path) as here, here.hanging("here", trap, 60_000, states):
        await here.through()
        seen = len(states)
        trap.armed = True
        await here.through()
        assert trap.caught.is_set()
        assert states[seen:] == []


@pytest.mark.parametrize("thread", [False, True])
async def test_a_processor_that_hangs_loses_its_tasks(kafka_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, thread: bool) -> None:
    """After max_poll_interval_ms others get them, and it is said why; when it returns, the member comes back."""
    trap = Trap()
    async with counting_as(World, kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        away = Elsewhere(here, blocking(trap) if thread else trap, 2_500)
        try:
            await away.until(InstanceState.RUNNING)
            async with here.hanging("here", lambda value: value, 2_500, []):
                await here.through()
                trap.armed = True
                await here.feed()
                assert await asyncio.to_thread(trap.caught.wait, PATIENCE_S)
                await here.counted()
                assert "has not returned for" in caplog.text
                trap.release.set()
                await away.until(InstanceState.RUNNING)
                await here.through()
        finally:
            trap.release.set()
            await away.end()
        assert away.error is None


async def test_a_static_member_that_hung_has_its_tasks_again(kafka_broker: Broker, tmp_path: Path) -> None:
    """It was thrown out and comes back within its session: the group gives it its place again, by the same generation."""
    trap = Trap()
    states: list[InstanceState] = []
    static = {"group_instance_id": "one", "session_timeout_ms": 30_000}
    async with counting_as(World, kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        app = here.hanging("here", blocking(trap), 1_500, states, **static)
        try:
            async with app:
                await here.through()
                seen = len(states)
                trap.armed = True
                await here.feed()
                assert await asyncio.to_thread(trap.caught.wait, PATIENCE_S)
                await until(lambda: len(states) != seen)
                trap.release.set()
                await here.counted()
                await here.through()
                assert states[-1] is InstanceState.RUNNING
        finally:
            trap.release.set()


@pytest.mark.extended
async def test_a_processor_that_hangs_for_good_ends_its_app(kafka_broker: Broker, tmp_path: Path) -> None:
    """With an error that says so, since nobody can end a thread; the others have its tasks."""
    trap = Trap()
    async with counting_as(World, kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        away = Elsewhere(here, blocking(trap), 1_500)
        try:
            await away.until(InstanceState.RUNNING)
            async with here.hanging("here", lambda value: value, 60_000, []):
                await here.through()
                trap.armed = True
                await here.through()
                await away.until(InstanceState.ERROR)
                await here.through()
        finally:
            trap.release.set()
            await away.end()
        assert isinstance(away.error, TaskTimeout)
        assert "has not returned" in str(away.error)
