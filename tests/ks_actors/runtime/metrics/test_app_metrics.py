"""The metrics of running apps."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from ks_actors import App, PunctuationType, Record, StreamsConfig, Suppressed, TimeWindows, Topology, log_and_continue, serdes, stores
from ks_actors.dsl import BufferConfig, Consumed, EmitStrategy, Grouped, Materialized, Produced, SessionWindows, SlidingWindows, StreamsBuilder
from ks_actors.log import RequestFigures
from ks_actors.metrics import Distribution, Metric, RecordingLevel
from ks_actors.metrics.families import catalogue, store
from ks_actors.processors import Processor, ProcessorContext
from ks_actors.runtime import InstanceState
from ks_actors.runtime.instance import Workers
from ks_actors.runtime.metrics import Watched
from ks_actors.runtime.metrics._log import log_source
from ks_actors.runtime.shared import Metrics
from ks_actors.task import StoreRegistry, Telemetry
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import feed
from tests.ks_actors.state.custom.test_custom import InMemory
from tests.waiting import until

STRINGS = Consumed(serdes.STRING, serdes.STRING)


class Passing(Processor[str, str, str, str]):
    """Forward each record."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def counting() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", STRINGS).group_by_key().count(Materialized("counts"))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


def numbers(found: tuple[Metric, ...]) -> list[float]:
    return [metric.value for metric in found if isinstance(metric.value, int | float)]


async def called(value: str) -> str:
    if value == "bad":
        raise ValueError(value)
    return value


def broad() -> Topology:
    """A topology with an async function, stores of each place, a cache, and a function that fails."""
    builder = StreamsBuilder()
    records = builder.stream("in", STRINGS).map_values(called, name="calling")
    records.group_by_key().count(Materialized("counts")).to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    records.group_by_key().count(Materialized("in-memory", store_type="in_memory"))
    return builder.build()


def closing() -> Topology:
    """A topology whose windows close, in a named query."""
    builder = StreamsBuilder()
    with builder.query("closing"):
        windows = builder.stream("in", STRINGS).group_by_key().windowed_by(TimeWindows.of_size_and_grace(10, 0))
        windows.count(Materialized("windows")).suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    return builder.build()


# A log in the process has no requests.
OF_KAFKA = {"consumer-fetch-manager-metrics", "producer-metrics"}


def all_of_them() -> list[Metric]:
    """Return the metrics of an app, of one that restores, and of one with standbys, for `broad`, and those of an app for `closing`."""

    async def run(harness: AppHarness) -> list[Metric]:
        for value in ("good", "bad"):
            await harness.produce("in", "key", value)
        await harness.caught_up()
        harness.app.metrics()
        # Databases are asked when somebody has read the metrics, and the totals are noted.
        await harness.kit.clock.advance(25)
        found = list(harness.app.metrics())
        async with harness.another() as other:
            for number in range(50):
                await harness.produce("in", str(number), "value")
            await harness.caught_up()
            await harness.kit.clock.advance(5)
            found += [*harness.app.metrics(), *other.app.metrics()]
        await harness.crash()
        harness.wipe_state()
        # A member of another process is in the group until its session is over.
        await harness.kit.clock.advance(harness.config.session_timeout_ms / 1000)
        starting = asyncio.create_task(harness.restart())

        def look() -> bool:
            nonlocal found
            if harness._app is not None:
                found += harness._app.metrics()
            return starting.done()

        await until(look)  # at each moment of a start
        await starting
        return found

    async def rest(harness: AppHarness) -> list[Metric]:
        await harness.caught_up()
        harness.app.metrics()
        await harness.kit.clock.advance(25)
        return list(harness.app.metrics())

    return run_app(rest, closing(), topics={"in": 1}, metrics_recording_level="TRACE") + run_app(
        run,
        broad(),
        topics={"in": 2, "out": 1},
        metrics_recording_level="TRACE",
        num_standby_replicas=1,
        statestore_cache_max_bytes=100_000,
        processing_exception_handler=log_and_continue,
    )


def test_each_value_is_in_the_catalogue_and_each_metric_has_a_value() -> None:
    """Apps have exactly the metrics of the catalogue, with the tags that it says, and values of its kinds."""
    found = all_of_them()
    families = {(family.group, family.name): family for family in catalogue() if family.group not in OF_KAFKA}
    assert {(metric.group, metric.name) for metric in found} == families.keys()
    for metric in found:
        family = families[metric.group, metric.name]
        tags = tuple(store.STATE_ID if tag.endswith("-state-id") else tag for tag in metric.tags)
        assert tags == family.tags, metric
        assert (metric.kind, metric.description) == (family.kind, family.description)
        kinds: dict[str, tuple[type[Any], ...]] = {"text": (str,), "histogram": (Distribution,)}
        assert isinstance(metric.value, kinds.get(metric.kind.value, (int, float))), metric


@pytest.mark.parametrize("kind", ["windows", "sliding", "sessions"])
def test_results_that_are_held_back_are_counted_when_they_are_sent(kind: str) -> None:
    """At the suppression, or at the aggregation that sends them when windows close; one that sends all updates counts none."""

    def grouped(builder: StreamsBuilder) -> Any:
        found = builder.stream("in", STRINGS).group_by_key(Grouped(serdes.STRING, serdes.STRING))
        windows: dict[str, Any] = {
            "windows": TimeWindows.of_size_and_grace(10, 0),
            "sliding": SlidingWindows.of_time_difference_and_grace(10, 0),
            "sessions": SessionWindows.of_inactivity_gap_and_grace(10, 0),
        }
        return found.windowed_by(windows[kind])

    builder = StreamsBuilder()
    held = grouped(builder).count(Materialized("held"), name="updates")
    held.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("holding")).to_stream().foreach(lambda *_: None)
    sent: list[object] = []
    finals = grouped(builder).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(Materialized("final"), name="finals")
    finals.to_stream().foreach(lambda *one: sent.append(one))

    async def run(harness: AppHarness) -> dict[tuple[str, str], object]:
        for number in range(10):
            await harness.produce("in", f"key{number % 3}", "value", timestamp=number * 7)
        await harness.caught_up()
        found = harness.app.metrics()
        names = ("suppression-emit-total", "window-aggregate-final-emit-total")
        return {(name, one.tags["processor-node-id"]): one.value for name in names for one in found.find(name)}

    found = run_app(run, builder.build(), topics={"in": 1}, metrics_recording_level="DEBUG")
    assert len(sent) > 0
    assert found == {
        ("suppression-emit-total", "holding"): len(sent),
        ("window-aggregate-final-emit-total", "updates"): 0,
        ("window-aggregate-final-emit-total", "finals"): len(sent),
    }


def test_no_two_values_have_the_same_name_and_tags() -> None:
    """Each value is one of its own, also with several tasks, workers and partitions."""

    async def run(harness: AppHarness) -> list[tuple[object, ...]]:
        await harness.caught_up()
        return [(metric.group, metric.name, *metric.tags.items()) for metric in harness.app.metrics()]

    topics = {"in": 4, "out": 1}
    found = run_app(run, counting(), topics=topics, num_stream_threads=3, metrics_recording_level="TRACE")
    assert len(found) == len(set(found))


def test_an_app_has_metrics_before_its_start_and_after_its_end() -> None:
    """Those of the client: its state, its version, and the totals of the instance."""
    app = App(counting(), StreamsConfig(application_id="app"))
    assert [metric.value for metric in app.metrics().find("state", group="stream-metrics")] == ["CREATED"]
    assert app.metrics()["process-total"] == 0

    async def run(harness: AppHarness) -> App:
        await feed(harness, "in", "key", "value")
        return harness.app

    ended = run_app(run, counting(), topics={"in": 1, "out": 1}).metrics()
    assert [metric.value for metric in ended.find("state", group="stream-metrics")] == ["NOT_RUNNING"]
    assert (ended["process-total"], ended["active-tasks"], ended.find("process-total", group="stream-task-metrics")) == (1, 0, ())


def test_the_lag_of_a_paused_app_grows_in_records_and_in_seconds() -> None:
    """Records in memory count as not processed, and the age of the next one is the lag in seconds."""

    async def run(harness: AppHarness) -> list[tuple[list[float], list[float]]]:
        app, seen = harness.app, []

        def look() -> None:
            metrics = app.metrics()
            seen.append((numbers(metrics.find("records-lag")), numbers(metrics.find("lag-seconds"))))

        await feed(harness, "in", "key", "value")
        look()
        await app.pause()
        for _ in range(5):
            await harness.produce("in", "key", "value")
        await harness.kit.clock.advance(7)
        look()
        await app.resume()
        await harness.caught_up()
        look()
        return seen

    before, paused, after = run_app(run, counting(), topics={"in": 1, "out": 1})
    assert [before, after] == [([0], [0])] * 2
    assert paused[0] == [5]
    assert 6 < paused[1][0] <= 8


@pytest.mark.parametrize("stall_warning_ms", [10_000, 0])
def test_the_lag_of_partitions_without_records_is_known_soon(stall_warning_ms: int) -> None:
    """It is 0 after a second, and stays so; also without the watchdog, and when one of them gets a record."""

    async def run(harness: AppHarness) -> list[tuple[float, list[float]]]:
        seen = []
        for look in range(20):
            await harness.kit.clock.advance(1.1)
            metrics = harness.app.metrics()
            lag = metrics.total("records-lag", group="ks-actors-input-metrics")
            seen.append((lag, numbers(metrics.find("lag-seconds"))))
            if look == 9:
                await feed(harness, "in", "key", "value")
        return seen

    seen = run_app(run, counting(), topics={"in": 3, "out": 1}, stall_warning_ms=stall_warning_ms)
    assert seen == [(0, [0, 0, 0])] * 20


def test_a_standby_of_an_empty_changelog_has_nothing_to_read() -> None:
    """Its remaining records are 0, not unknown, though no fetch tells the end; then they follow the changelog."""

    async def run(harness: AppHarness) -> list[list[float]]:
        seen = []
        async with harness.another() as other:
            for value in ("", "value"):
                if value:
                    await harness.produce("in", "key", value)
                await harness.kit.clock.advance(60)
                instances = [each.app.metrics() for each in (harness, other)]
                roles = {"role": "standby"}
                seen.append([number for each in instances for number in numbers(each.find("remaining-records", roles))])
        return seen

    assert run_app(run, counting(), topics={"in": 2, "out": 1}, num_standby_replicas=1) == [[0, 0]] * 2


def test_the_lag_of_a_stuck_task_grows_though_nothing_more_of_it_is_fetched() -> None:
    """The end of the log is looked up where the buffer is full: a call that does not return holds up the records behind it."""
    free = asyncio.Event()

    async def stuck(value: str) -> str:
        await free.wait()
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(stuck, name="stuck").to("out", Produced(serdes.STRING, serdes.STRING))

    async def run(harness: AppHarness) -> list[float]:
        seen = []
        for _ in range(3):
            for number in range(200):
                await harness.produce("in", str(number), "value")
            await harness.kit.clock.advance(12)
            seen += numbers(harness.app.metrics().find("records-lag"))
        calls = harness.app.metrics()
        assert numbers(calls.find("calls-running")) == [100]
        assert numbers(calls.find("oldest-call-ms"))[0] > 30_000
        assert [metric.value for metric in calls.find("wait-reason")] == ["async call"]
        free.set()
        await harness.caught_up()
        done = harness.app.metrics()
        assert numbers(done.find("call-total")) == [600]
        return [*seen, *numbers(done.find("records-lag"))]

    lags = run_app(run, builder.build(), topics={"in": 1, "out": 1}, buffered_records_per_partition=50)
    assert lags == [100, 300, 500, 0]


def test_wait_reasons_are_those_of_app_waiting() -> None:
    """A task without records waits for records, for no time; a paused one says so."""

    async def run(harness: AppHarness) -> list[object]:
        await harness.caught_up()
        seen = [metric.value for metric in harness.app.metrics().find("wait-reason")]
        seen += numbers(harness.app.metrics().find("waited-ms"))
        await harness.app.pause()
        await harness.kit.clock.advance(1)
        return [*seen, *(metric.value for metric in harness.app.metrics().find("wait-reason"))]

    assert run_app(run, counting(), topics={"in": 1, "out": 1}) == ["records", 0, "paused"]


class Ticking(Processor[str, str, str, str]):
    """Calls a punctuator each second of stream time, and each second of the wall clock."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        context.schedule(1_000, PunctuationType.STREAM_TIME, lambda _: None)
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda _: None)

    def process(self, record: Record[str, str]) -> None: ...


def test_punctuators_are_counted_by_worker_and_by_task() -> None:
    """Those on stream time and those by the wall clock, and their time is not the records' time."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Ticking)

    async def run(harness: AppHarness) -> tuple[list[float], list[float], list[float]]:
        for second in range(4):
            await harness.produce("in", "key", "value", timestamp=second * 1_000)
        await harness.caught_up()
        await harness.kit.clock.advance(3.5)
        metrics = harness.app.metrics()
        latency = numbers(metrics.find("punctuate-latency-max"))
        return (
            numbers(metrics.find("punctuate-total", group="stream-thread-metrics")),
            numbers(metrics.find("punctuate-total", group="stream-task-metrics")),
            latency,
        )

    of_worker, of_task, latency = run_app(run, builder.build(), topics={"in": 1}, metrics_recording_level="DEBUG")
    assert of_worker == of_task
    assert of_task[0] >= 6
    assert not any(map(math.isnan, latency))


def test_the_time_of_processing_is_that_of_the_worker_and_of_its_tasks() -> None:
    """A worker's ratio is the sum of its tasks' ratios."""

    async def run(harness: AppHarness) -> tuple[float, float]:
        for number in range(50):
            await harness.produce("in", str(number), "value")
        await harness.caught_up()
        metrics = harness.app.metrics()
        of_tasks = metrics.total("active-process-ratio", group="stream-task-metrics")
        return metrics.total("process-ratio", group="stream-thread-metrics"), of_tasks

    of_worker, of_tasks = run_app(run, counting(), topics={"in": 2, "out": 1})
    assert 0 < of_worker == pytest.approx(of_tasks)


class Asked:
    """A log with a fetcher and two producers of one name, of which the newer one counts."""

    def __init__(self) -> None:
        self.figures = [RequestFigures("fetch", "app"), RequestFigures("produce", "app"), RequestFigures("produce", "app")]

    def requests(self) -> list[RequestFigures]:
        return self.figures


def test_requests_to_brokers_are_measured_by_client() -> None:
    """Their number, times and bytes, by Kafka's names for its clients; times by the windows of the app from the first look on."""
    log, metrics = Asked(), Metrics(RecordingLevel.INFO)
    for figures in log.figures:
        figures.times.add(9.0)  # before the first look: counted, but in no window
    config = StreamsConfig(application_id="app")
    watched = Watched(
        config,
        counting(),
        Workers("app", uncommitted_bytes=-1),
        state=lambda: InstanceState.RUNNING,
        instance=lambda: None,
        registry=StoreRegistry(),
        telemetry=Telemetry(),
        log=lambda: log,
    )
    metrics.registry.add(log_source(metrics, watched))
    metrics.registry.values()
    for figures in log.figures:
        figures.times.add(4.0)
        figures.bytes += 100
        figures.records += 7
    values = metrics.registry.values()
    assert {metric.group for metric in values} - {"ks-actors-loop-metrics"} == OF_KAFKA
    for group in OF_KAFKA:
        assert {family.name for family in catalogue() if family.group == group} == {metric.name for metric in values if metric.group == group}
    assert numbers(values.find("fetch-total")) == [2]
    assert numbers(values.find("bytes-consumed-total", {"client-id": "app"})) == [100]
    assert numbers(values.find("record-send-total")) == [7]
    assert numbers(values.find("request-latency-max")) == [4]
    metrics.registry.window.number += 2
    assert math.isnan(numbers(metrics.registry.values().find("request-latency-max"))[0])


def test_a_custom_store_is_not_asked_while_a_thread_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes its figures itself, and nothing says that it may be called from two threads."""
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("pass", Passing, "source")
    topology.add_state_store(stores.custom("custom", InMemory), "pass")

    async def run(harness: AppHarness) -> list[int]:
        asked: list[int] = []

        def ask(_: InMemory) -> int:
            asked.append(1)
            return 7

        (task,) = harness.app._metrics.tasks.values()
        found = []
        monkeypatch.setattr(InMemory, "approximate_num_uncommitted_bytes", ask)
        for in_thread in (False, True):
            if in_thread:
                task.thread_guard.begin()
            asked.clear()
            harness.app.metrics()
            found.append(len(asked))
        task.thread_guard.end()
        monkeypatch.undo()
        return found

    here, in_thread = run_app(run, topology, topics={"in": 1})
    assert here > in_thread == 0
