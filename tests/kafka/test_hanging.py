"""Processors that do not return: for a while, and for too long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, Consumed, Materialized, Produced, StreamsBuilder, StreamsConfig, TaskTimeout, blocking
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.runtime import InstanceState
from ks_actors.serdes import BYTES, LONG
from tests.chaos.checks import EXACTLY_ONCE, check_output
from tests.kafka.broker import Broker
from tests.kafka.counting import read_updates
from tests.log.helpers import batch, group_name
from tests.waiting import PATIENCE_S, SESSION_MS, until

PARTITIONS = 2


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


class World:
    """Two partitions that are counted."""

    def __init__(self, log: KafkaLog, bootstrap: str, directory: Path) -> None:
        self.log = log
        self.name = group_name()
        self.fed: dict[bytes, int] = {}
        self._bootstrap = bootstrap
        self._directory = directory

    async def create(self) -> None:
        await self.log.create_topics([NewTopic(f"in-{self.name}", PARTITIONS), NewTopic(f"out-{self.name}", PARTITIONS)])

    async def feed(self, count: int = 10) -> None:
        """Write records to each partition."""
        producer = await self.log.producer(client_id="feeder")
        for number in range(PARTITIONS):
            key = b"k%d" % number
            await producer.send([Outgoing(TopicPartition(f"in-{self.name}", number), batch(*[b"v"] * count, keys=[key] * count))])
            self.fed[key] = self.fed.get(key, 0) + count
        await producer.close()

    def app(
        self, who: str, log: KafkaLog, function: Callable[[bytes], bytes], max_poll_ms: int, on_state: Callable[[Any, Any], None], **settings: Any
    ) -> App:
        builder = StreamsBuilder()
        counts = (
            builder.stream(f"in-{self.name}", Consumed(BYTES, BYTES)).map_values(function).group_by_key().count(Materialized("counts", BYTES, LONG))
        )
        counts.to_stream().to(f"out-{self.name}", Produced(BYTES, LONG))
        config = StreamsConfig.of(
            {
                "application_id": self.name, "state_dir": str(self._directory / who), "processing_guarantee": EXACTLY_ONCE, "commit_interval_ms": 50,
                "session_timeout_ms": SESSION_MS, "max_poll_interval_ms": max_poll_ms, **settings,
            }
        )  # fmt: skip
        return App(builder.build(), config, log=log, on_state=on_state)

    async def counted(self) -> None:
        """Wait until all is counted; it is counted once."""
        sinks = [TopicPartition(f"out-{self.name}", number) for number in range(PARTITIONS)]
        found = await read_updates(self.log, sinks, lambda found: len(found) >= sum(self.fed.values()))
        assert check_output({key: list(range(count)) for key, count in self.fed.items()}, found, EXACTLY_ONCE).violations == []

    def elsewhere(self, function: Callable[[bytes], bytes], max_poll_ms: int) -> Elsewhere:
        return Elsewhere(self, self._bootstrap, function, max_poll_ms)


class Elsewhere:
    """An app on a loop of its own, in a thread."""

    def __init__(self, where: World, bootstrap: str, function: Callable[[bytes], bytes], max_poll_ms: int) -> None:
        self.states: list[InstanceState] = []
        self.error: Exception | None = None
        self._where = where
        self._bootstrap = bootstrap
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
        async with KafkaLog(self._bootstrap) as log:
            app = self._where.app("elsewhere", log, self._function, self._max_poll_ms, lambda new, _: self.states.append(new))
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


@asynccontextmanager
async def world(broker: Broker, directory: Path) -> AsyncIterator[World]:
    async with KafkaLog(broker.bootstrap) as log:
        made = World(log, broker.bootstrap, directory)
        await made.create()
        yield made


async def test_a_processor_that_blocks_the_loop_keeps_its_membership(kafka_broker: Broker, tmp_path: Path) -> None:
    """For twice the session timeout: heartbeats do not depend on users' code."""
    trap = Trap(2 * SESSION_MS / 1000)
    states: list[InstanceState] = []
    async with world(kafka_broker, tmp_path) as here, here.app("here", here.log, trap, 60_000, lambda new, _: states.append(new)):
        await here.feed()
        await here.counted()
        seen = len(states)
        trap.armed = True
        await here.feed()
        await here.counted()
        assert trap.caught.is_set()
        assert states[seen:] == []


@pytest.mark.parametrize("thread", [False, True])
async def test_a_processor_that_hangs_loses_its_tasks(kafka_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, thread: bool) -> None:
    """After max_poll_interval_ms others get them, and it is said why; when it returns, the member comes back."""
    trap = Trap()
    async with world(kafka_broker, tmp_path) as here:
        away = here.elsewhere(blocking(trap) if thread else trap, 2_500)
        try:
            await away.until(InstanceState.RUNNING)
            async with here.app("here", here.log, lambda value: value, 2_500, lambda _new, _old: None):
                await here.feed()
                await here.counted()
                trap.armed = True
                await here.feed()
                assert await asyncio.to_thread(trap.caught.wait, PATIENCE_S)
                await here.counted()
                assert "has not returned for" in caplog.text
                trap.release.set()
                await away.until(InstanceState.RUNNING)
                await here.feed()
                await here.counted()
        finally:
            trap.release.set()
            await away.end()
        assert away.error is None


async def test_a_static_member_that_hung_has_its_tasks_again(kafka_broker: Broker, tmp_path: Path) -> None:
    """It was thrown out and comes back within its session: the group gives it its place again, by the same generation."""
    trap = Trap()
    states: list[InstanceState] = []
    static = {"group_instance_id": "one", "session_timeout_ms": 30_000}
    async with world(kafka_broker, tmp_path) as here:
        app = here.app("here", here.log, blocking(trap), 1_500, lambda new, _: states.append(new), **static)
        try:
            async with app:
                await here.feed()
                await here.counted()
                seen = len(states)
                trap.armed = True
                await here.feed()
                assert await asyncio.to_thread(trap.caught.wait, PATIENCE_S)
                await until(lambda: len(states) != seen)
                trap.release.set()
                await here.counted()
                await here.feed()
                await here.counted()
                assert states[-1] is InstanceState.RUNNING
        finally:
            trap.release.set()


@pytest.mark.extended
async def test_a_processor_that_hangs_for_good_ends_its_app(kafka_broker: Broker, tmp_path: Path) -> None:
    """With an error that says so, since nobody can end a thread; the others have its tasks."""
    trap = Trap()
    async with world(kafka_broker, tmp_path) as here:
        away = here.elsewhere(blocking(trap), 1_500)
        try:
            await away.until(InstanceState.RUNNING)
            async with here.app("here", here.log, lambda value: value, 60_000, lambda _new, _old: None):
                await here.feed()
                await here.counted()
                trap.armed = True
                await here.feed()
                await here.counted()
                await away.until(InstanceState.ERROR)
                await here.feed()
                await here.counted()
        finally:
            trap.release.set()
            await away.end()
        assert isinstance(away.error, TaskTimeout)
        assert "has not returned" in str(away.error)
