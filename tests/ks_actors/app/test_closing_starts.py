"""Apps that are closed before they have started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ks_actors import App, NotRunning, StreamsConfig, serdes
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.log import Fetcher, IsolationLevel, Log, NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime import InstanceState
from ks_actors.testing import AppHarness, TestRecord, _harness, run_app
from ks_actors.testing._connection import Connection
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import EOS, STRINGS, by_key, check_counts, counting, echo, in_app, in_virtual_time, own_threads, states
from tests.ks_actors.runtime.outages import Line, Weather
from tests.waiting import soon

TOPICS = {"in": 4, "names": 2, "out": 1}
IN_AND_OUT = {"in": 2, "out": 1}
# In virtual seconds: less than any deadline of a call, or of an actor that is stopped.
SOON = 5.0


def counting_by_name() -> Topology:
    """Count the records of each key, with the name that a global table has for it."""
    builder = StreamsBuilder()
    names = builder.global_table("names", Consumed(serdes.STRING, serdes.STRING))
    named = builder.stream("in", STRINGS).left_join(names, lambda key, _: key, lambda value, _: value)
    counts = named.group_by_key(Grouped(serdes.STRING, serdes.STRING)).count(Materialized("counts", serdes.STRING, serdes.LONG, store_type="rocksdb"))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


async def feed(harness: AppHarness, count: int) -> None:
    await harness.produce_all("in", [TestRecord(f"k{number % 10}", "v", 0) for number in range(count)])


def check_gone(harness: AppHarness, app: App) -> None:
    """Nothing of an app is there any more: actors, parts of the log, members, threads."""
    assert app.state is InstanceState.NOT_RUNNING
    assert app.error is None
    assert [info.path for info in harness.kit.tree()] == []
    assert harness.log._parts.keys() == set()
    assert harness.log._groups.get(harness.config.application_id)._members == {}
    assert own_threads() == []


async def close_soon(app: App) -> None:
    async with asyncio.timeout(SOON):
        await app.close()


@pytest.mark.parametrize("seed", range(20))
def test_an_app_may_be_closed_at_any_moment_of_its_start(seed: int, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """While it fills global tables, restores, or joins: its start is NotRunning, nothing is left, and the next app has exact results."""
    random = Random(seed)

    async def test(harness: AppHarness) -> None:
        await harness.produce_all("names", [TestRecord(f"k{number}", "name", 0) for number in range(10)])
        await feed(harness, 100)
        for _ in range(8):
            starting = asyncio.ensure_future(harness.start())
            await harness.turns(random.choice([1, random.randrange(1, 150), random.randrange(1, 600)]))
            app = harness.app
            starts = app._starting is not None
            await close_soon(app)
            check_gone(harness, app)
            if starts:
                with pytest.raises(NotRunning, match="app app was closed before it was started"):
                    await starting
            else:
                await starting
            await feed(harness, 10)
        await harness.restart()
        await harness.caught_up()
        check_counts(await harness.read("out"), {f"k{number}": 18 for number in range(10)}, guarantee)

    run_app(test, counting_by_name(), seed=seed, topics=TOPICS, start=False, processing_guarantee=guarantee, commit_interval_ms=100)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("call", ["describe_topics", "transactional_producer", "begin_offsets", "end_offsets", "join", "fetch"])
@in_virtual_time
async def test_a_start_that_waits_for_the_log_is_closed_at_once(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any request of the start to a log that does not answer: `close` does not wait for that."""
    weather = Weather(Random(0), 60.0)
    monkeypatch.setattr(_harness, "Connection", partial(Line, weather))
    async with AppHarness(counting_by_name(), topics=TOPICS, start=False, processing_guarantee=EOS) as harness:
        await harness.produce("names", "a", "name")
        await harness.produce("in", "a", "1")
        weather.down_at(call)
        starting = asyncio.ensure_future(harness.start())
        await asyncio.sleep(60)
        assert not starting.done()
        app = harness.app
        await close_soon(app)
        with pytest.raises(NotRunning):
            await starting
        check_gone(harness, app)
        weather.up()
        await harness.restart()
        await harness.caught_up()
        assert by_key(await harness.read("out")) == {"a": [1]}


class NoRestoring(Connection):
    """A restore gets no records."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._restoring: list[Fetcher] = []

    def fetcher(self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> Fetcher:
        made = super().fetcher(client_id=client_id, isolation=isolation)
        if client_id.endswith("-restore-consumer"):
            self._restoring.append(self._fetchers[-1])
        return made

    async def through(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(call, "__self__", None) in self._restoring and call.__name__ == "fetch":
            await asyncio.get_running_loop().create_future()
        return await super().through(call, *args, **kwargs)


@in_virtual_time
async def test_tasks_that_run_while_others_restore_are_committed_when_the_start_is_closed(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed before all tasks run, it is closed in order: work of running tasks is committed, and is not done again."""
    seen: list[tuple[InstanceState, InstanceState]] = []
    async with AppHarness(
        counting("rocksdb"),
        topics=IN_AND_OUT,
        start=False,
        processing_guarantee=guarantee,
        commit_interval_ms=9_000,
        on_state=lambda new, old: seen.append((new, old)),
    ) as harness:
        await harness.produce("in", "a", "1", partition=0)
        async with harness.another() as first:
            await first.caught_up()
        with monkeypatch.context() as patch:
            patch.setattr(_harness, "Connection", NoRestoring)
            seen.clear()
            starting = asyncio.ensure_future(harness.start())
            await harness.produce("in", "b", "1", partition=1)
            await asyncio.sleep(1)
            assert harness.app.metrics()["process-total"] == 1
            app = harness.app
            await close_soon(app)
            with pytest.raises(NotRunning):
                await starting
        check_gone(harness, app)
        assert states(seen) == ["REBALANCING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
        assert by_key(await harness.read("out")) == {"a": [1], "b": [1]}
        await harness.restart()
        await harness.caught_up()
        assert harness.app.metrics()["process-total"] == 0


@in_app(counting("rocksdb"), topics={"in": 4, "out": 1}, start=False)
async def test_a_start_that_is_cancelled_leaves_the_group(harness: AppHarness) -> None:
    """A cancelled start, as by a signal, gives an app that is closed in order: its place in the group is free at once."""
    for turns in range(1, 200, 200 // examples(28)):
        starting = asyncio.ensure_future(harness.start())
        await harness.turns(turns)
        app = harness.app
        if starting.cancel():
            with pytest.raises(asyncio.CancelledError):
                async with asyncio.timeout(SOON):
                    await starting
        else:
            await harness.close()
        check_gone(harness, app)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 10, 20, 40, 80])
@in_app(echo(), topics=IN_AND_OUT, start=False)
async def test_run_returns_when_the_app_is_closed_while_it_starts(harness: AppHarness, turns: int) -> None:
    """`run` of an app that another task closes before it has started, or before it has begun to: it returns, without an error."""
    app = App(echo(), harness.config, log=harness.log, system=harness.kit)
    running = asyncio.ensure_future(app.run())
    await harness.turns(turns)
    await close_soon(app)
    async with asyncio.timeout(SOON):
        await running
    check_gone(harness, app)
    with pytest.raises(NotRunning, match="make a new one"):
        await app.start()
    await app.close()
    await app.run()


@in_app(echo(), topics=IN_AND_OUT, start=False)
async def test_services_that_are_being_entered_are_waited_for_and_left(harness: AppHarness) -> None:
    """A start that enters services when it is closed goes no further than the one that it is at, which it leaves again."""
    told: list[str] = []
    held = asyncio.Event()

    @asynccontextmanager
    async def service(name: str) -> AsyncIterator[None]:
        told.append(f"enter {name}")
        await held.wait()
        try:
            yield
        finally:
            told.append(f"leave {name}")

    app = App(echo(), harness.config, log=harness.log, system=harness.kit, services=[service("first")])
    harness.fail("join", AssertionError("the start went on"))
    starting = asyncio.ensure_future(app.start())
    while not told:
        await harness.turns(1)
    closing = asyncio.ensure_future(app.close())
    await asyncio.sleep(60)
    assert not closing.done()
    held.set()
    await closing
    with pytest.raises(NotRunning):
        await starting
    assert told == ["enter first", "leave first"]
    check_gone(harness, app)


@pytest.mark.parametrize("leaves", [False, True])
@in_app(counting(), topics=IN_AND_OUT, start=False, group_instance_id="one")
async def test_a_static_member_that_is_closed_while_it_starts_leaves_only_when_told(harness: AppHarness, leaves: bool) -> None:
    """`leave_group` counts for a start that is under way as for an app that runs."""
    starting = asyncio.ensure_future(harness.start())
    members: Any = harness.log._groups.get("app")._members
    while not members:
        await harness.turns(1)
    await harness.turns(2)
    await harness.close(leave_group=leaves)
    with pytest.raises(NotRunning):
        await starting
    assert len(members) == (0 if leaves else 1)


@in_app(echo(), topics=IN_AND_OUT, start=False)
async def test_a_wait_for_an_app_that_fails_to_start_ends(harness: AppHarness) -> None:
    """`run` in one task, while another task's start of the same app fails: it returns."""
    app = App(echo(), harness.config, log=harness.log, system=harness.kit)
    harness.fail("describe_topics", OSError("away"))
    starting = asyncio.ensure_future(app.start())
    await harness.turns(1)
    with pytest.raises(OSError, match="away"):
        async with asyncio.timeout(SOON):
            await app.run()
    with pytest.raises(OSError, match="away"):
        await starting


async def test_a_directory_is_free_when_an_app_was_closed_while_it_started(tmp_path: Path) -> None:
    """In real time, with real threads: whenever an app is closed in its start, the next one can have its directory at once."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 2), NewTopic("out", 1)])
        config = StreamsConfig(application_id="app", state_dir=tmp_path)
        for turns in range(0, 120, 3):
            app = App(counting("rocksdb"), config, log=log)
            running = asyncio.ensure_future(app.run())
            for _ in range(turns):
                await asyncio.sleep(0)
            await soon(app.close())
            await soon(running)
        async with App(counting("rocksdb"), config, log=log) as app:
            assert app.state is InstanceState.RUNNING
    assert asyncio.all_tasks() == {asyncio.current_task()}
