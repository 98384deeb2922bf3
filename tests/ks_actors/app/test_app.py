"""The life of an app."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from actors import System
from actors.testing import VirtualLoop
from ks_actors import App, MissingSourceTopics, NotRunning, ProcessingFailed, StateLocked, StreamsConfig, TaskTimeout, TopologyError, serdes
from ks_actors.dsl import Consumed, Grouped, Joined, Materialized, Produced, StreamsBuilder
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime import InstanceState
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, Bomb, by_key, counting, echo, feed, in_app, in_virtual_time, own_threads, states
from tests.waiting import until

IN_AND_OUT = {"in": 2, "out": 1}


def joined() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("right", Consumed(serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).join(table, lambda left, right: f"{left}{right}", Joined(serdes.STRING, serdes.STRING, serdes.STRING)).to(
        "out", STRINGS_OUT
    )
    return builder.build()


def nothing_left() -> None:
    """Check that no task but the test's own, and no thread but the main one, is at work."""
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert own_threads() == []


# --- states ---------------------------------------------------------------------------------------------------------------------


def test_states_come_in_the_order_of_kafka_streams() -> None:
    """CREATED, REBALANCING, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING: the listener hears each with the one before it."""
    seen: list[tuple[InstanceState, InstanceState]] = []

    async def test(harness: AppHarness) -> None:
        assert harness.app.state is InstanceState.RUNNING
        assert harness.app.error is None
        await harness.close()

    run_app(test, echo(), topics=IN_AND_OUT, on_state=lambda new, old: seen.append((new, old)))
    assert states(seen) == ["REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert [old.name for _, old in seen] == ["CREATED", "REBALANCING", "RUNNING", "PENDING_SHUTDOWN"]


def test_an_error_leads_through_pending_error() -> None:
    """An error that nobody deals with: RUNNING, PENDING_ERROR, ERROR; and it stays so when the app is closed."""
    seen: list[tuple[InstanceState, InstanceState]] = []
    bomb = Bomb()

    async def test(harness: AppHarness) -> None:
        app = harness.app
        bomb.armed = 1
        await harness.produce("in", "a", "1")
        error = await harness.ended()
        assert isinstance(error, ProcessingFailed)
        assert app.state is InstanceState.ERROR
        with pytest.raises(ProcessingFailed):
            await app.wait_until_caught_up()
        with pytest.raises(NotRunning):
            await app.pause()

    run_app(test, echo(bomb), topics=IN_AND_OUT, on_state=lambda new, old: seen.append((new, old)))
    assert states(seen) == ["REBALANCING", "RUNNING", "PENDING_ERROR", "ERROR"]


@in_virtual_time
async def test_a_rebalance_leads_back_to_running() -> None:
    """A topic that a pattern matches, or a member that comes: RUNNING, REBALANCING, RUNNING."""
    seen: list[tuple[InstanceState, InstanceState]] = []
    async with AppHarness(echo(), topics=IN_AND_OUT, on_state=lambda new, old: seen.append((new, old))) as harness:
        seen.clear()
        harness.lose_membership()
        await harness.kit.clock.advance(1)
        assert states(seen) == ["REBALANCING", "RUNNING"]


# --- start ----------------------------------------------------------------------------------------------------------------------


def start_fails(topology: Topology, topics: dict[str, int], **options: Any) -> Exception:
    """Return the error of a start; check that it leaves nothing behind, and that nothing can be asked of the app."""
    errors: list[Exception] = []

    async def main() -> None:
        async with AppHarness(topology, topics=topics, start=False, **options) as harness:
            with pytest.raises(Exception) as failed:
                await harness.start()
            errors.append(failed.value)
            assert harness.app.state in {InstanceState.NOT_RUNNING, InstanceState.ERROR}
            assert harness.log._parts.keys() == set()
            assert [info.path for info in harness.kit.tree()] == []
            with pytest.raises(NotRunning):
                await harness.app.resume()
        nothing_left()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    return errors[0]


def test_missing_source_topics_are_named() -> None:
    """The start fails with the names of all topics that are to be read and do not exist."""
    error = start_fails(joined(), {"out": 1})
    assert isinstance(error, MissingSourceTopics)
    assert "in, right" in str(error)


def test_joined_topics_need_equal_numbers_of_partitions() -> None:
    """The start fails when topics that are joined do not have the same number of partitions, and says how many each has."""
    error = start_fails(joined(), {"in": 2, "right": 3, "out": 1})
    assert isinstance(error, TopologyError)
    assert "in has 2, right has 3" in str(error)


def test_internal_topics_of_another_size_are_not_touched() -> None:
    """A changelog with the wrong number of partitions fails the start, and the message gives the remedy."""
    error = start_fails(counting(), {"in": 2, "out": 1, "app-counts-changelog": 5})
    assert isinstance(error, TopologyError)
    assert "app-counts-changelog has 5 partitions and needs 2" in str(error)


def test_a_serde_that_is_missing_fails_the_making() -> None:
    """Without a serde, the topology's or the app's own, no app is made; the error names each node, topic and store, and where to give one."""
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized("counts")).to_stream().to("out")
    config = StreamsConfig(application_id="app")
    with pytest.raises(TopologyError) as missing:
        App(builder.build(), config)
    place = "at test_app.py:[0-9]+"
    assert re.fullmatch(
        rf"serdes are missing: key and value of source KSTREAM-SOURCE-0000000000, which reads in, {place}: write Consumed\(str, Order\); "
        rf"key of sink KSTREAM-SINK-0000000003, which writes to out, {place}: write Produced\(key=str\); "
        rf'key of store counts, which KSTREAM-AGGREGATE-0000000001 uses, {place}: write Materialized\("name", key=str\)\. '
        "Give the types of keys and values there, or annotate the functions whose results they are, .*, "
        "or set default_key_serde and default_value_serde for the app",
        str(missing.value),
    )
    with pytest.raises(TopologyError, match="key and value of source KSTREAM-SOURCE-0000000000"):
        builder.build(config)
    with pytest.raises(TopologyError, match="key of store counts"):
        TopologyTestDriver(builder.build(), {"default_value_serde": STRING})
    App(builder.build(), StreamsConfig(application_id="app", default_key_serde=STRING, default_value_serde=STRING))


@in_app(echo(), topics=IN_AND_OUT)
async def test_a_state_directory_that_is_in_use_is_left_alone(harness: AppHarness) -> None:
    """Two instances cannot have one state directory: the second one does not start, the first one goes on."""
    async with harness.another(client_id="second", state_dir=harness.config.state_dir, start=False) as second:
        with pytest.raises(StateLocked, match="state_dir"):
            await second.start()
    await feed(harness, "in", "a", "1")
    assert by_key(await harness.read("out")) == {"a": ["1"]}


@in_virtual_time
async def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """An unusable state directory fails the start, with an error that names it."""
    (tmp_path / "file").write_text("no directory")
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        with pytest.raises(Exception, match="file/app cannot be used"):
            await App(echo(), StreamsConfig(application_id="app", state_dir=tmp_path / "file"), log=log).start()
    nothing_left()


@in_app(echo(), topics=IN_AND_OUT)
async def test_an_app_starts_once(harness: AppHarness) -> None:
    """To start an app again is NotRunning, while it runs and after it was closed."""
    app = harness.app
    with pytest.raises(NotRunning, match="make a new one"):
        await app.start()
    await harness.close()
    with pytest.raises(NotRunning, match="make a new one"):
        await app.start()
    await app.close()


async def test_an_app_runs_for_the_lifespan_of_a_web_service(tmp_path: Path) -> None:
    """It runs before the first request, and is closed with the service."""
    app = App(echo(), "app", log="memory://", topics=IN_AND_OUT, state_dir=tmp_path)
    service = Starlette(lifespan=app.lifespan)
    seen = []
    async with service.router.lifespan_context(service):
        seen.append(app.state)
    assert [*seen, app.state] == [InstanceState.RUNNING, InstanceState.NOT_RUNNING]


async def test_nothing_can_be_asked_of_an_app_that_was_not_started(tmp_path: Path) -> None:
    """Before the start: state CREATED, no log, no workers; orders are NotRunning or None."""
    app = App(echo(), StreamsConfig(application_id="app", state_dir=tmp_path))
    assert app.state is InstanceState.CREATED
    assert app.error is None
    assert app.workers() == ()
    assert app.metrics()["alive-workers"] == 0
    assert await app.add_worker() is None
    assert await app.remove_worker() is None
    for call in (app.pause, app.resume, app.commit, app.wait_until_caught_up):
        with pytest.raises(NotRunning):
            await call()
    with pytest.raises(NotRunning):
        app.log  # noqa: B018 - that it raises is the point
    await app.close()


@pytest.mark.parametrize("step", ["describe_topics", "create_topics", "producer", "join", "end_offsets"])
@in_virtual_time
async def test_a_start_that_the_log_fails_leaves_nothing(step: str) -> None:
    """With any failing call of the log during the start: its error comes out of it, nothing is left, and the next start works."""
    builder = StreamsBuilder()
    table = builder.global_table("names", Consumed(serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).join(table, lambda key, _: key, lambda left, right: f"{left}{right}").group_by_key(
        Grouped(serdes.STRING, serdes.STRING)
    ).count(Materialized("counts", serdes.STRING, serdes.LONG)).to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1, "names": 1}, start=False) as harness:
        harness.fail(step, OSError("away"))  # type: ignore[arg-type]  # one of those that there are
        with pytest.raises(OSError, match="away"):
            await harness.start()
        assert [info.path for info in harness.kit.tree()] == []
        await harness.restart()
        await harness.produce("names", "a", "x")
    nothing_left()


# --- end ------------------------------------------------------------------------------------------------------------------------


@in_app(counting(), topics=IN_AND_OUT, commit_interval_ms=10_000)
async def test_closing_commits(harness: AppHarness, guarantee: str) -> None:
    """Records processed before the close are committed by it: the next app does not see them again."""
    await harness.produce_all("in", [TestRecord(f"k{number}", "v", 0) for number in range(100)])
    app = harness.app
    while app.metrics()["process-total"] < 100:
        await asyncio.sleep(0.001)
    await harness.close()
    await harness.restart()
    await harness.caught_up()
    assert harness.app.metrics()["process-total"] == 0
    assert len(await harness.read("out")) == 100


async def test_leaving_the_block_raises_the_final_error_of_the_app(tmp_path: Path) -> None:
    """The block of an app that ended in ERROR raises its error, unless the block raises one itself; nothing is left on a loop of the real world."""
    for own in (False, True):
        bomb = Bomb()
        bomb.armed = 1
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
            with pytest.raises(ValueError if own else ProcessingFailed, match="mine" if own else "boom"):
                async with App(echo(bomb), StreamsConfig(application_id="app", state_dir=tmp_path), log=log) as app:
                    await write(log, "a")
                    with pytest.raises(ProcessingFailed):
                        await app.wait_until_caught_up()
                    if own:
                        raise ValueError("mine")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def write(log: EmbeddedLog, *keys: str) -> None:
    from ks_actors.log import Outgoing, TopicPartition  # noqa: PLC0415 - likewise
    from ks_actors.records._batch import Batch  # noqa: PLC0415 - of this helper alone

    producer = await log.producer(client_id="test")
    count = len(keys)
    await producer.send([Outgoing(TopicPartition("in", 0), Batch([key.encode() for key in keys], [b"v"] * count, [0] * count))])
    await producer.close()


@in_virtual_time
async def test_run_ends_when_it_is_cancelled() -> None:
    """`run` closes the app, committed, when it is cancelled."""
    async with AppHarness(echo(), topics=IN_AND_OUT, start=False) as harness:
        app = App(echo(), harness.config, log=harness.log, system=harness.kit)
        running = asyncio.ensure_future(app.run())
        await harness.produce("in", "a", "1")
        await until(lambda: app.metrics()["process-total"] >= 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert app.state is InstanceState.NOT_RUNNING
        assert by_key(await harness.read("out")) == {"a": ["1"]}
    nothing_left()


@pytest.mark.parametrize("seed", range(5))
def test_run_returns_behind_the_end_of_a_close_in_another_task(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """As a signal handler calls it: a program with `run` as its main task would end in the middle of closing. No message is undelivered."""

    async def test(harness: AppHarness) -> None:
        app = App(echo(), harness.config, log=harness.log, system=harness.kit)
        running = asyncio.ensure_future(app.run())
        await harness.produce("in", "a", "1")
        await until(lambda: app.metrics()["process-total"] >= 1)
        closing = asyncio.ensure_future(app.close())
        await running
        assert closing.done()
        assert by_key(await harness.read("out")) == {"a": ["1"]}

    run_app(test, echo(), seed=seed, topics=IN_AND_OUT, start=False)
    assert "undelivered" not in caplog.text


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_a_close_that_is_cancelled_comes_to_its_end_in_quiet(turns: int, caplog: pytest.LogCaptureFixture) -> None:
    """At any moment: the app is closed, committed, and no message is reported as undelivered."""

    async def test(harness: AppHarness) -> None:
        app = App(echo(), harness.config, log=harness.log, system=harness.kit)
        await app.start()
        await harness.produce("in", "a", "1")
        await until(lambda: app.metrics()["process-total"] >= 1)
        closing = asyncio.ensure_future(app.close())
        await harness.turns(turns)
        closing.cancel()
        await asyncio.wait([closing])
        assert app.state is (InstanceState.NOT_RUNNING if turns else InstanceState.RUNNING)
        await app.close()
        assert by_key(await harness.read("out")) == {"a": ["1"]}

    run_app(test, echo(), seed=turns, topics=IN_AND_OUT, start=False)
    assert "undelivered" not in caplog.text


@in_virtual_time
async def test_run_raises_the_final_error_of_the_app() -> None:
    """`run` returns when the app ends by itself, with its error."""
    bomb = Bomb()
    async with AppHarness(echo(bomb), topics=IN_AND_OUT, start=False) as harness:
        app = App(echo(bomb), harness.config, log=harness.log, system=harness.kit)
        bomb.armed = 1
        await harness.produce("in", "a", "1")
        with pytest.raises(ProcessingFailed):
            await app.run()
        with pytest.raises(ProcessingFailed):
            await app.run()


@pytest.fixture
def collector() -> Iterator[None]:
    """Give the test process its garbage collector back as it was."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_ends_at_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    """`main` tunes the garbage collector, and runs until SIGINT or SIGTERM; then it closes the app and returns."""
    seen: list[tuple[InstanceState, InstanceState]] = []
    log = EmbeddedLog(tmp_path / "log")

    async def prepare() -> None:
        async with EmbeddedLog(tmp_path / "log") as made:
            await made.create_topics([NewTopic("in", 1), NewTopic("out", 1)])

    asyncio.run(prepare())
    del log

    def note(new: InstanceState, old: InstanceState) -> None:
        seen.append((new, old))
        if new is InstanceState.RUNNING:
            signal.raise_signal(number)

    config = StreamsConfig(application_id="app", state_dir=tmp_path / "state", log=f"embedded://{tmp_path / 'log'}")
    App(echo(), config, on_state=note).main()
    assert states(seen) == ["REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert own_threads() == []
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[0] == 50_000


@pytest.mark.usefixtures("collector")
def test_a_second_signal_ends_a_program_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It waits for nothing any more, here a call that does not end; a warning names uncommitted tasks, and the app is closed properly."""
    seen: list[tuple[InstanceState, InstanceState]] = []
    apps: list[App] = []

    async def prepare() -> None:
        async with EmbeddedLog(tmp_path / "log") as made:
            await made.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
            await write(made, "k")

    async def call(value: str) -> str:
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: apps[0]._closing.begun)
        # The app waits for this call while its other tasks go on.
        assert apps[0].state is InstanceState.RUNNING
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()
        return value

    asyncio.run(prepare())
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(call).to("out", STRINGS_OUT)
    config = StreamsConfig(application_id="app", state_dir=tmp_path / "state", log=f"embedded://{tmp_path / 'log'}", close_timeout_ms=3_600_000)
    apps.append(App(builder.build(), config, on_state=lambda new, old: seen.append((new, old))))
    apps[0].main()
    assert states(seen) == ["REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert "second SIGTERM" in caplog.text
    assert "the app closes without a last commit of tasks 0_0" in caplog.text
    assert own_threads() == []


async def test_an_app_may_live_in_a_system_of_others(tmp_path: Path) -> None:
    """Given a system and a log, the app uses both, and closes neither."""
    async with EmbeddedLog() as log, System("mine") as system:
        await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        async with App(counting(), StreamsConfig(application_id="app", state_dir=tmp_path), log=log, system=system) as app:
            assert app.log is log
            assert "/mine/app-app" in {info.path for info in system.tree()}
            await write(log, "a", "a", "b")
            await app.wait_until_caught_up()
            await app.pause()
            await write(log, "c")
            with pytest.raises(TaskTimeout, match="not caught up within 60 ms"):
                await app.wait_until_caught_up(60)
            await app.resume()
            await app.wait_until_caught_up()
        assert system.tree() == []
        assert "in" in await log.describe_topics()
