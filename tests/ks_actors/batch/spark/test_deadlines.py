"""A Spark that does not answer: each caller gets an error in time, with the remedy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from actors import System
from ks_actors import ConfigError, JobCancelled, JobTimeout, SparkUnavailable
from ks_actors.batch import BatchBridge, SparkBridge, SparkSettings
from ks_actors.batch.spark import _bridge
from ks_actors.batch.spark._bridge import run_job
from ks_actors.batch.spark._session import SparkSession
from ks_actors.batch.spark._spark_bridge import _Life


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Spark that does not start before the bridge is closed."""
    closing = threading.Event()
    stop = BatchBridge._stop

    async def let_go_and_stop(bridge: BatchBridge) -> None:
        closing.set()
        await stop(bridge)

    monkeypatch.setattr(SparkSession, "open", lambda _: closing.wait())
    monkeypatch.setattr(BatchBridge, "_stop", let_go_and_stop)
    monkeypatch.setattr(_bridge, "_GIVE_UP_SECONDS", 0.01)
    yield
    closing.set()


@pytest.mark.usefixtures("stuck")
async def test_a_bridge_is_not_entered_when_spark_does_not_start_in_time() -> None:
    """The error names Spark, the time, and the argument to raise; nothing is left of it."""
    bridge = SparkBridge(SparkSettings(master="local[2]"), start_timeout_ms=20)
    with pytest.raises(SparkUnavailable, match=r"Spark at local\[2\] did not start.* within 20 ms: .*start_timeout_ms"):
        await bridge.__aenter__()
    assert bridge._life is None


@pytest.mark.usefixtures("stuck")
async def test_a_query_that_does_not_run_in_time_is_stopped() -> None:
    """Its start raises JobTimeout, and so does a stop that takes too long."""
    bridge = SparkBridge()
    async with System("test") as system:
        life = bridge._life = _Life(asyncio.get_running_loop())
        life.ref = await system.spawn(BatchBridge.spec(SparkSettings()), "bridge")
        with pytest.raises(JobTimeout, match="query q did not run within 20 ms and is stopped"):
            await bridge.start_query("q", lambda _: None, "nowhere", timeout_ms=20)
        with pytest.raises(JobTimeout, match="query q did not stop within 20 ms"):
            await bridge.stop_query("q", timeout_ms=20)


def test_a_bridge_needs_time_to_start() -> None:
    """None at all is refused when the bridge is made."""
    for wrong in (0, float("nan"), True, "20"):
        with pytest.raises(ConfigError, match="start_timeout_ms is "):
            SparkBridge(start_timeout_ms=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, float("nan"), True, "20"])
async def test_the_times_of_a_bridge_are_finite_numbers(wrong: Any) -> None:
    """Others are refused by name, before it is looked whether the bridge is open."""
    bridge = SparkBridge()
    calls: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
        ("deadline_ms", lambda: bridge.run(str, deadline_ms=wrong)),
        ("timeout_ms", lambda: bridge.stop_query("any", timeout_ms=wrong)),
        ("timeout_ms", lambda: bridge.start_query("any", str, "place", timeout_ms=wrong)),
        ("stop_ms", lambda: bridge.start_query("any", str, "place", stop_ms=wrong)),
    ]
    for name, call in calls:
        with pytest.raises((TypeError, ValueError), match=f"^{name} is "):
            await call()


async def test_a_job_that_hangs_does_not_keep_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a job's thread nor the one that starts Spark is waited for when the interpreter ends."""
    hangs, let_go = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hang(_: object) -> None:
        threads.append(threading.current_thread())
        hangs.set()
        let_go.wait()

    monkeypatch.setattr(_bridge, "_opened", lambda _: threads.append(threading.current_thread()))
    monkeypatch.setattr(SparkSession, "spark", property(hang))
    monkeypatch.setattr(_bridge, "_GIVE_UP_SECONDS", 0.01)
    async with System("test") as system:
        bridge = await system.spawn(BatchBridge.spec(SparkSettings()), "bridge")
        asked = asyncio.ensure_future(run_job(bridge, "job", lambda _: None))
        await asyncio.to_thread(hangs.wait)
    with pytest.raises(JobCancelled):
        await asked
    assert [thread.name for thread in threads] == ["ks-batch-session-0", "ks-batch-job-0"]
    assert threads[1].is_alive()
    assert all(thread.daemon for thread in threads)
    let_go.set()
