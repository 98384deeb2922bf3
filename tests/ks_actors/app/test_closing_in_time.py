"""An app that closes while its log does not answer: it gives up in time, reports uncommitted tasks, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from functools import partial
from math import inf, nan
from random import Random
from typing import Any

import pytest

from ks_actors import App
from ks_actors.app._signals import until_signal
from ks_actors.dsl import StreamsBuilder
from ks_actors.lifecycle._closing import Closing
from ks_actors.log.embedded._faults import Operation
from ks_actors.query import KeyQuery, StateQueryRequest
from ks_actors.runtime import InstanceState
from ks_actors.runtime import messages as m
from ks_actors.runtime.shared._state_directory import StateDirectory
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import ALOS, EOS, STRINGS, STRINGS_OUT, Load, check_counts, counting, feed, in_app, in_virtual_time, own_threads

TOPICS = {"in": 4, "out": 1}
BOUND_MS = 2_000
# Where a commit waits for the log.
COMMITTING: dict[str, tuple[Operation, ...]] = {EOS: ("send", "commit"), ALOS: ("send", "commit_offsets")}
COMMITS = [(guarantee, operation) for guarantee, operations in COMMITTING.items() for operation in operations]
# Other calls that may wait for the log.
OTHERS: tuple[Operation, ...] = ("abort", "fetch", "leave", "committed", "begin_offsets", "end_offsets")
MORE: tuple[tuple[Operation, ...], ...] = ((), ("abort",), ("leave",), ("abort", "leave"))
EVERY: tuple[Operation, ...] = ("send", "commit", "commit_offsets", *OTHERS)
GIVEN_UP = "the app closes without a last commit of tasks 0_"


def now() -> float:
    return asyncio.get_running_loop().time()


async def closed(harness: AppHarness, seconds: float, timeout_ms: int | None = None) -> App:
    """Close the app in so many seconds at most, and see that nothing of it is left."""
    app = harness.app
    began = now()
    await app.close(timeout_ms=timeout_ms)
    assert now() - began <= seconds
    assert app.state is InstanceState.NOT_RUNNING
    assert app.error is None
    assert [info.path for info in harness.kit.tree()] == []
    assert harness.log._parts.keys() == set()
    assert own_threads() == []
    directory = StateDirectory(harness.state_dir)
    directory.open()
    directory.close()
    return app


async def check_next(harness: AppHarness, load: Load, guarantee: str) -> None:
    """Check that the next app does the work that this one has left."""
    await harness.restart()
    await load.check(guarantee)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("guarantee", "operation"), COMMITS)
@in_app(counting(), topics=TOPICS, commit_interval_ms=100)
async def test_a_last_commit_without_an_answer_is_given_up(
    harness: AppHarness, guarantee: str, operation: Operation, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it was under way, for long or short, or is the last one: the warning names its tasks, and the next app does them again."""
    random = Random(seed)
    load = Load(harness, random)
    await load.send(random.randrange(40))
    more: tuple[Operation, ...] = random.choice(MORE)
    held = [harness.log.hold(each) for each in (operation, *more)]
    await load.send(40)
    await asyncio.sleep(random.choice([0.02, 0.5, 20, 120]))
    await closed(harness, BOUND_MS / 1000, BOUND_MS)
    assert caplog.text.count(GIVEN_UP) == 1
    assert ("transaction is aborted" if guarantee == EOS else "their output is written twice") in caplog.text
    for each in held:
        each.set()
    await check_next(harness, load, guarantee)


@pytest.mark.parametrize("operation", OTHERS)
@in_app(counting(), topics=TOPICS, commit_interval_ms=100)
async def test_other_calls_without_an_answer_do_not_hold_up_the_end(
    harness: AppHarness, guarantee: str, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is lost or doubled by them, and all work that can be committed is."""
    load = Load(harness, Random(1))
    await load.send(40)
    held = harness.log.hold(operation)
    if operation not in {"fetch", "leave"}:
        harness.lose_membership()
    await load.send(40)
    await asyncio.sleep(20)
    await closed(harness, BOUND_MS / 1000, BOUND_MS)
    assert ("when the app" in caplog.text) == (operation == "leave")
    held.set()
    await check_next(harness, load, guarantee)


@pytest.mark.parametrize(("settings", "seconds"), [({}, 30), ({"close_timeout_ms": 5_000}, 5)])
@pytest.mark.parametrize(("guarantee", "operation"), COMMITS)
@in_virtual_time
async def test_the_setting_bounds_an_end_that_says_nothing(guarantee: str, operation: Operation, settings: dict[str, Any], seconds: float) -> None:
    """Leaving the block takes `close_timeout_ms`, 30 s unless it is set; the last commit has most of that."""
    async with AppHarness(counting(), topics=TOPICS, processing_guarantee=guarantee, commit_interval_ms=100, **settings) as harness:
        load = Load(harness, Random(1))
        await load.send(40)
        held = harness.log.hold(operation)
        await load.send(40)
        began = now()
        await closed(harness, seconds)
        assert now() - began >= 0.6 * seconds
        held.set()
        await check_next(harness, load, guarantee)


@pytest.mark.parametrize(("guarantee", "operation"), COMMITS)
@in_app(counting(), topics=TOPICS, commit_interval_ms=100, transaction_timeout_ms=60_000)
async def test_an_answer_in_time_commits(harness: AppHarness, guarantee: str, operation: Operation, caplog: pytest.LogCaptureFixture) -> None:
    """A log that comes back while the app closes gets all of it: nothing is left to be done again."""
    load = Load(harness, Random(1))
    await load.send(40)
    held = harness.log.hold(operation)
    await load.send(40)
    await asyncio.sleep(10)
    closing = asyncio.ensure_future(closed(harness, 30))
    await asyncio.sleep(20)
    held.set()
    await closing
    assert GIVEN_UP not in caplog.text
    assert await harness._lag() == ""
    check_counts(await harness.read("out"), load.sent, guarantee)


@pytest.mark.parametrize(("guarantee", "operation"), COMMITS)
@in_app(counting(), topics=TOPICS, commit_interval_ms=100)
async def test_a_second_close_may_hurry_the_first(harness: AppHarness, guarantee: str, operation: Operation) -> None:
    """The sooner end counts for both, wherever the first one waits."""
    load = Load(harness, Random(1))
    await load.send(40)
    held = harness.log.hold(operation)
    await load.send(40)
    closing = asyncio.ensure_future(closed(harness, 3, 3_600_000))
    await asyncio.sleep(2.5)
    assert not closing.done()
    await harness.app.close(timeout_ms=0)
    await harness.app.close(timeout_ms=60_000)
    await closing
    held.set()
    await check_next(harness, load, guarantee)


def waiting_for_ever(begun: asyncio.Event) -> Topology:
    async def call(value: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(call).to("out", STRINGS_OUT)
    return builder.build()


@in_virtual_time
async def test_calls_in_flight_count_in_the_bound(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """A call of the user's that does not end is cancelled in time, and its records are processed again."""
    begun = asyncio.Event()
    async with AppHarness(waiting_for_ever(begun), topics=TOPICS, processing_guarantee=guarantee) as harness:
        await harness.produce("in", "k", "v")
        await begun.wait()
        await closed(harness, BOUND_MS / 1000, BOUND_MS)
        assert GIVEN_UP in caplog.text


@in_app(counting(), topics=TOPICS, commit_interval_ms=100)
async def test_an_app_that_ends_by_an_error_ends_in_time(harness: AppHarness, guarantee: str) -> None:
    """It commits nothing any more, and waits for its log as long as one that is closed."""
    await feed(harness, "in", "k", "v")
    for operation in EVERY:
        harness.log.hold(operation)
    app = harness.app
    assert app._instance is not None
    app._instance.ctx.self_ref.tell(m.Fatal(OSError("no such thing"), rolled_back=False))
    began = now()
    assert isinstance(await harness.ended(), OSError)
    assert now() - began <= 30


@pytest.mark.parametrize("wrong", [-1, nan, inf, "5", True, timedelta(seconds=-1), timedelta(microseconds=1)])
@in_app(counting(), topics={"in": 1, "out": 1})
async def test_a_time_to_wait_is_a_finite_number_that_is_not_negative(harness: AppHarness, wrong: Any) -> None:
    """Each call with a `timeout_ms` refuses any other by name, at once, and nothing is ordered."""
    app = harness.app
    for call in (
        app.close,
        app.pause,
        app.resume,
        app.commit,
        app.snapshot,
        app.add_worker,
        app.remove_worker,
        app.wait_until_caught_up,
        partial(app.query, StateQueryRequest(store="counts", query=KeyQuery("a"))),
        App(counting(), harness.config).reset,
        harness.caught_up,
        harness.ended,
    ):
        with pytest.raises((TypeError, ValueError), match="timeout_ms is "):
            await call(timeout_ms=wrong)
    with pytest.raises((TypeError, ValueError), match="timeout_ms is "):
        app.store("counts", timeout_ms=wrong)
    assert app.state is InstanceState.RUNNING
    assert len(app.workers()) == 1


# --- the parts ----------------------------------------------------------------------------------------------------------------


async def test_a_bound_gets_only_sooner() -> None:
    """Closing once more with more time changes nothing, with less it does, also for callers that wait by then."""
    closing = Closing()
    assert not closing.begun
    assert closing.end(7.0) == 7.0
    closing.begin(3_600)
    first = closing.end(float("inf"))
    closing.begin(7_200)
    assert closing.end(float("inf")) == first
    with pytest.raises(TimeoutError):
        async with closing.timeout_at():
            closing.begin(0)
            await asyncio.Event().wait()
    assert closing.over


async def test_the_second_signal_hurries() -> None:
    """The first one cancels the work, which may end properly; the second one has it hurry."""
    events: list[str] = []
    hurried = asyncio.Event()

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            events.append("ends")
            os.kill(os.getpid(), signal.SIGINT)
            await hurried.wait()
            events.append("ended")

    await until_signal(work(), hurried.set)
    assert events == ["ends", "ended"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGINT, signal.default_int_handler)
