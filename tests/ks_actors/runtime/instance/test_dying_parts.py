"""Parts that die, stores that cannot be written, global tables that cannot be filled: at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from ks_actors import DeserializationFailed, LogClosed, StateFull, StreamsError, serdes
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.state import TaskStores
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, Asked, Load, counting, feed, in_app, in_virtual_time, replace

pytestmark = pytest.mark.unmeasured

TOPICS = {"in": 2, "out": 1}
PARTS = ("poller", "member", "task-manager", "state-manager", "restorer", "collector", "committer")


def child(harness: AppHarness, name: str) -> Any:
    """Return one of the instance's actors."""
    instance = harness.app._instance
    assert instance is not None
    return next(ref for ref in instance.ctx.children if ref.path.endswith(f"/{name}"))


class Strange:
    """A message that no actor knows: each actor that gets it dies."""


# --- actors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("part", PARTS)
@in_app(counting("rocksdb"), topics=TOPICS, uncaught_handler=replace)
async def test_a_part_that_dies_ends_the_app(harness: AppHarness, part: str, guarantee: str, seed: int) -> None:
    """The app ends soon, by the error of the part and nothing that follows from it; the next one does all that is left."""
    load = Load(harness, Random(seed))
    await load.send(150)
    await harness.turns(harness.kit.random.randrange(200))
    began = harness.kit.clock.time()
    child(harness, part).tell(Strange())
    error = await harness.ended()
    assert harness.app.state is InstanceState.ERROR
    assert isinstance(error, AssertionError)
    assert "Strange" in str(error)
    assert harness.kit.clock.time() - began < 1
    await harness.restart()
    await load.send(20)
    await load.check(guarantee)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_dies_while_the_app_closes(part: str, guarantee: str) -> None:
    """Closing comes to its end all the same, with or without an error; the next app does all that is left."""
    for seed in range(4):

        async def test(harness: AppHarness, seed: int = seed) -> None:
            load = Load(harness, Random(seed))
            await load.send(100)
            began = harness.kit.clock.time()
            ref = child(harness, part)
            closing = asyncio.ensure_future(harness.close())
            await harness.turns(harness.kit.random.randrange(40))
            ref.tell(Strange())
            with suppress(Exception):
                await closing
            assert harness.kit.clock.time() - began < 1
            await harness.restart()
            await load.send(20)
            await load.check(guarantee)

        run_app(test, counting("rocksdb"), seed=seed, topics=TOPICS, processing_guarantee=guarantee)


@pytest.mark.parametrize("handler", [None, replace])
@in_virtual_time
async def test_a_log_that_is_closed_ends_the_app(guarantee: str, handler: Callable[[Exception], UncaughtResponse] | None) -> None:
    """A log that is closed under an app ends it, with any handler: it does not come back."""
    options: dict[str, Any] = {} if handler is None else {"uncaught_handler": handler}
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, **options) as harness:
        await harness.log.close()
        assert isinstance(await harness.ended(1000), LogClosed)


# --- global tables --------------------------------------------------------------------------------------------------------------


def named() -> Topology:
    """Join each record with a global table of numbers."""
    builder = StreamsBuilder()
    table = builder.global_table("names", Consumed(serdes.STRING, serdes.INTEGER))
    builder.stream("in", STRINGS).join(table, lambda key, _: key, lambda left, right: f"{left}{right}").to("out", STRINGS_OUT)
    return builder.build()


@in_app(named(), topics={"in": 1, "out": 1, "names": 1}, start=False)
async def test_a_global_table_that_cannot_be_filled(harness: AppHarness) -> None:
    """A record of a global topic that cannot be read fails the start, when it is there before the app."""
    await harness.produce("names", "a", b"bad")
    with pytest.raises(DeserializationFailed, match="topic names"):
        await harness.start()
    assert harness.app.state is InstanceState.ERROR


@pytest.mark.parametrize("handler", [None, replace])
@in_virtual_time
async def test_a_global_table_that_cannot_be_kept_up(handler: Callable[[Exception], UncaughtResponse] | None) -> None:
    """A record of a global topic that cannot be read later ends the app: the next record would be processed with a table that lacks it."""
    options: dict[str, Any] = {} if handler is None else {"uncaught_handler": handler}
    async with AppHarness(named(), topics={"in": 1, "out": 1, "names": 1}, **options) as harness:
        await harness.produce("names", "a", b"bad")
        assert isinstance(await harness.ended(1000), DeserializationFailed)


# --- state ----------------------------------------------------------------------------------------------------------------------


class Broken:
    """Have a method of all stores raise StateFull so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.left: int = 0
        real = getattr(TaskStores, method)

        def broken(stores: TaskStores, *args: Any, **options: Any) -> Any:
            if self.left:
                self.left -= 1
                raise StateFull("there is no room")
            return real(stores, *args, **options)

        monkeypatch.setattr(TaskStores, method, broken)


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("method", ["publish", "changelog", "open", "restore", "persist_unlogged", "give_up"])
@in_virtual_time
async def test_state_that_cannot_be_written(guarantee: str, method: str, times: int, goes_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unwritable state ends the app, or its tasks begin anew from the log, as the handler says; results are those of the guarantee."""
    broken = Broken(monkeypatch, method)
    asked = Asked(UncaughtResponse.REPLACE_WORKER if goes_on else UncaughtResponse.SHUTDOWN_CLIENT)

    async with AppHarness(
        counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, uncaught_handler=asked, commit_interval_ms=1000
    ) as harness:
        load = Load(harness, Random(1))
        await load.through(100)
        broken.left = times
        await load.send(100)
        if method in {"open", "restore"}:
            harness.lose_membership()
        if method == "give_up":
            await harness.close()
            for database in harness.state_dir.glob("0_*/rocksdb"):
                (database / "CURRENT").write_text("nothing")
            with suppress(StateFull):
                await harness.restart()
        await harness.kit.clock.advance(60)
        if goes_on or method == "publish":
            assert harness.app.state is InstanceState.RUNNING
        elif method != "persist_unlogged":
            assert "there is no room" in str(await harness.ended(1000))
        elif harness.app.state is InstanceState.ERROR:
            await harness.ended()
        broken.left = 0
        if harness.app.state is InstanceState.ERROR:
            await harness.restart()
        await load.send(10)
        await load.check(guarantee)
        assert all("there is no room" in str(error) for error in asked)
        assert len(asked) <= 2 * times


@in_virtual_time
async def test_a_changelog_record_that_is_none(guarantee: str) -> None:
    """A record of a changelog that cannot be taken in ends the start, by an error that names store, topic and partition."""
    builder = StreamsBuilder()
    windows = builder.stream("in", STRINGS).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(1000))
    windows.count(Materialized("counts", serdes.STRING, serdes.LONG)).to_stream(lambda key, _: key.key).to(
        "out", Produced(serdes.STRING, serdes.LONG)
    )
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee) as harness:
        await feed(harness, "in", "a", "v", 0)
        await harness.close()
        harness.wipe_state()
        await harness.produce("app-counts-changelog", b"x", b"no window")
        with pytest.raises(StreamsError, match=r"store counts cannot be restored.*topic app-counts-changelog, partition 0"):
            await harness.start()


@in_virtual_time
async def test_a_value_that_the_store_cannot_encode(guarantee: str) -> None:
    """A value that a store's serde refuses is refused where it is written, or at the commit: the handler is asked, and nothing is lost."""
    builder = StreamsBuilder()
    wrong = ["b"]

    def append(key: str, value: str, old: str) -> Any:
        return 5 if value in wrong else old + value

    grouped = builder.stream("in", STRINGS).group_by_key()
    table = grouped.aggregate(lambda: "", append, Materialized("texts", serdes.STRING, serdes.STRING))
    table.to_stream().map_values(str).to("out", STRINGS_OUT)
    asked: list[Exception] = []

    def handler(error: Exception) -> UncaughtResponse:
        asked.append(error)
        wrong.clear()
        return UncaughtResponse.REPLACE_WORKER

    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, uncaught_handler=handler) as harness:
        for value in "abc":
            await harness.produce("in", "k", value)
        await harness.caught_up()
        assert (await harness.read("out"))[-1].value == "abc"
        assert len(asked) == 1
