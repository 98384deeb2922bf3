"""Times that callers give: an int that counts ms, or a timedelta; for a moment also a datetime."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ks_actors import (
    App,
    AsyncOptions,
    BufferConfig,
    CalendarWindows,
    Consumed,
    EmitStrategy,
    HealthBounds,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    Retry,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    stores,
)
from ks_actors.config._settings import SETTINGS
from ks_actors.letters import read_letter, read_letters, redrive
from ks_actors.query import Client, KeyQuery, StateQueryRequest
from ks_actors.records import TopicPartition
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, AsyncTopologyTestDriver, TopologyTestDriver
from tests.ks_actors.runtime.helpers import in_virtual_time

MODULES = ("ks_actors", "ks_actors.batch", "ks_actors.letters", "ks_actors.log", "ks_actors.query", "ks_actors.snapshots", "ks_actors.testing")
OF_THE_PROJECT = {
    # Data that the project makes and users read.
    *("HealthProblem", "SnapshotManifest", "SentRecord", "Shape", "StoreSpec", "StoreQueries", "TopicRecord", "Wait"),
    # The messages of an actor behind a method that takes a timedelta.
    *("RunJob", "StartQuery"),
    # The port, which the runtime calls, and the tools of its snapshots, with its own clock.
    *("Fetcher.fetch", "Log.transactional_producer", "NewMember", "SnapshotWriter", "delete_old_snapshots"),
}


def parameters(thing: Any) -> dict[str, str]:
    if hasattr(thing, "__struct_fields__"):
        written = {name: text for base in reversed(thing.__mro__) for name, text in vars(base).get("__annotations__", {}).items()}
        return {name: str(written[name]) for name in thing.__struct_fields__}
    try:
        return {name: str(each.annotation) for name, each in inspect.signature(thing).parameters.items()}
    except (TypeError, ValueError):
        return {}


def public(module: Any) -> Iterator[tuple[str, Any]]:
    names = getattr(module, "__all__", None) or [name for name, each in vars(module).items() if inspect.isfunction(each) and name[0] != "_"]
    for name in names:
        thing = getattr(module, name)
        if inspect.ismodule(thing):
            yield from ((f"{name}.{member}", each) for member, each in public(thing))
            continue
        yield name, thing
        if isinstance(thing, type):
            yield from ((f"{name}.{member}", getattr(thing, member)) for member in dir(thing) if member[0] != "_" and hasattr(thing, member))


def found() -> dict[str, str]:
    """Return the annotation of each public parameter that counts ms."""
    things = {name: thing for module in MODULES for name, thing in public(importlib.import_module(module)) if callable(thing)}
    return {
        f"{name} {parameter}": annotation
        for name, thing in things.items()
        if name not in OF_THE_PROJECT
        for parameter, annotation in parameters(thing).items()
        if parameter.endswith("_ms")
    }


def one(a: Any, b: Any) -> Any:
    return b


def _calendar(unit: str) -> Callable[[Any], Any]:
    return lambda time: getattr(CalendarWindows, unit)("UTC", grace_ms=time)


def _paced(time: Any) -> Any:
    builder = StreamsBuilder()
    with builder.query("fraud", commit_interval_ms=time):
        builder.stream("in", Consumed(STRING, STRING)).foreach(print)
    return dict(builder.build().commit_intervals)


def _paced_by_hand(time: Any) -> Any:
    topology = Topology()
    with topology.query("fraud", commit_interval_ms=time):
        return dict(topology.commit_intervals)


ALL = BufferConfig.unbounded()
CLOSE = EmitStrategy.ON_WINDOW_CLOSE
WAY: dict[str, Callable[[Any], Any]] = {
    "AsyncOptions timeout_ms": lambda t: AsyncOptions(timeout_ms=t),
    "CalendarWindows grace_ms": lambda t: CalendarWindows("day", "UTC", t),
    **{f"CalendarWindows.{each} grace_ms": _calendar(each) for each in ("days", "weeks", "months", "quarters", "years")},
    "HealthBounds outage_ms": lambda t: HealthBounds(outage_ms=t),
    "HealthBounds stuck_ms": lambda t: HealthBounds(stuck_ms=t),
    "HealthBounds loop_ms": lambda t: HealthBounds(loop_ms=t),
    "JoinWindows before_ms": lambda t: JoinWindows(t, 0, 0),
    "JoinWindows after_ms": lambda t: JoinWindows(0, t, 0),
    "JoinWindows grace_ms": lambda t: JoinWindows(0, 0, t),
    "JoinWindows.after after_ms": JoinWindows(0, 0, 0).after,
    "JoinWindows.before before_ms": JoinWindows(0, 0, 0).before,
    "JoinWindows.of_time_difference_and_grace time_difference_ms": lambda t: JoinWindows.of_time_difference_and_grace(t, 0),
    "JoinWindows.of_time_difference_and_grace grace_ms": lambda t: JoinWindows.of_time_difference_and_grace(0, t),
    "JoinWindows.of_time_difference_with_no_grace time_difference_ms": JoinWindows.of_time_difference_with_no_grace,
    "Joined grace_ms": lambda t: Joined(grace_ms=t),
    "Materialized retention_ms": lambda t: Materialized(retention_ms=t),
    "Materialized history_retention_ms": lambda t: Materialized(history_retention_ms=t),
    "Retry backoff_ms": lambda t: Retry(backoff_ms=t),
    "Retry max_backoff_ms": lambda t: Retry(max_backoff_ms=t),
    "SessionWindows inactivity_gap_ms": lambda t: SessionWindows(t, 0),
    "SessionWindows grace_ms": lambda t: SessionWindows(0, t),
    "SessionWindows.of_inactivity_gap_and_grace inactivity_gap_ms": lambda t: SessionWindows.of_inactivity_gap_and_grace(t, 0),
    "SessionWindows.of_inactivity_gap_and_grace grace_ms": lambda t: SessionWindows.of_inactivity_gap_and_grace(0, t),
    "SessionWindows.of_inactivity_gap_with_no_grace inactivity_gap_ms": SessionWindows.of_inactivity_gap_with_no_grace,
    "SlidingWindows time_difference_ms": lambda t: SlidingWindows(t, 0),
    "SlidingWindows grace_ms": lambda t: SlidingWindows(1, t),
    "SlidingWindows.of_time_difference_and_grace time_difference_ms": lambda t: SlidingWindows.of_time_difference_and_grace(t, 0),
    "SlidingWindows.of_time_difference_and_grace grace_ms": lambda t: SlidingWindows.of_time_difference_and_grace(1, t),
    "SlidingWindows.of_time_difference_with_no_grace time_difference_ms": SlidingWindows.of_time_difference_with_no_grace,
    "StreamsBuilder.query commit_interval_ms": _paced,
    "Suppressed wait_ms": lambda t: Suppressed(t, ALL),
    "Suppressed idle_after_ms": lambda t: Suppressed(1, ALL, None, t),
    "Suppressed.until_time_limit wait_ms": lambda t: Suppressed.until_time_limit(t, ALL),
    "Suppressed.until_time_limit idle_after_ms": lambda t: Suppressed.until_time_limit(1, ALL, idle_after_ms=t),
    "Suppressed.until_window_closes idle_after_ms": lambda t: Suppressed.until_window_closes(ALL, idle_after_ms=t),
    "TimeWindows size_ms": lambda t: TimeWindows(t, 0, 1),
    "TimeWindows grace_ms": lambda t: TimeWindows(1, t, 1),
    "TimeWindows advance_ms": lambda t: TimeWindows(9_000, 0, t),
    "TimeWindows.advance_by advance_ms": TimeWindows(9_000, 0, 9_000).advance_by,
    "TimeWindows.of_size_and_grace size_ms": lambda t: TimeWindows.of_size_and_grace(t, 0),
    "TimeWindows.of_size_and_grace grace_ms": lambda t: TimeWindows.of_size_and_grace(1, t),
    "TimeWindows.of_size_with_no_grace size_ms": TimeWindows.of_size_with_no_grace,
    "Topology.query commit_interval_ms": _paced_by_hand,
    "UnlimitedWindows start_ms": UnlimitedWindows,
    "UnlimitedWindows.start_on start_ms": UnlimitedWindows.of().start_on,
    "stores.session retention_ms": lambda t: stores.session("s", STRING, LONG, retention_ms=t),
    "stores.versioned_key_value history_retention_ms": lambda t: stores.versioned_key_value("s", STRING, LONG, history_retention_ms=t),
    "stores.window retention_ms": lambda t: stores.window("s", STRING, LONG, retention_ms=t, window_size_ms=1),
    "stores.window window_size_ms": lambda t: stores.window("s", STRING, LONG, retention_ms=9_000, window_size_ms=t),
}
"""Calls whose results can be compared."""


def built(name: str, time: Any) -> Any:
    """Return what counts ms in a topology with the operation: fields of its operators and its stores."""
    builder = StreamsBuilder()
    OPERATIONS[name](builder.stream("in", Consumed(STRING, STRING)), time)
    topology = builder.build()
    operators = [node.operator for node in topology.nodes.values() if hasattr(node, "operator")]
    fields = [{each: getattr(part, each) for each in dir(part) if each.endswith("_ms")} for one in operators for part in (one, one.asynchronous)]
    return fields, [(spec.retention_ms, spec.window_size_ms) for spec in topology.stores.values()]


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Stream.batch max_wait_ms": lambda s, t: s.batch(list, max_wait_ms=t),
    "Stream.batch timeout_ms": lambda s, t: s.batch(list, timeout_ms=t),
    "Stream.distinct within_ms": lambda s, t: s.distinct(t),
    "Stream.distinct grace_ms": lambda s, t: s.distinct(1, grace_ms=t),
    "Stream.expire after_ms": lambda s, t: s.expire(t),
    "Stream.join_asof tolerance_ms": lambda s, t: s.join_asof(s, one, t),
    "Stream.join_asof grace_ms": lambda s, t: s.join_asof(s, one, 1, grace_ms=t),
    "Stream.left_join_asof tolerance_ms": lambda s, t: s.left_join_asof(s, one, t),
    "Stream.left_join_asof grace_ms": lambda s, t: s.left_join_asof(s, one, 1, grace_ms=t),
    "SessionWindowedStream.emit_strategy idle_after_ms": lambda s, t: (
        s.group_by_key().windowed_by(SessionWindows(1, 0)).emit_strategy(CLOSE, idle_after_ms=t).count()
    ),
    "TimeWindowedStream.emit_strategy idle_after_ms": lambda s, t: (
        s.group_by_key().windowed_by(TimeWindows(5, 0, 5)).emit_strategy(CLOSE, idle_after_ms=t).count()
    ),
}
"""Operations of the DSL."""


class Puts(Processor[str, str, str, int]):
    def __init__(self, time: Any) -> None:
        self.time = time

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(self.time, PunctuationType.WALL_CLOCK_TIME, self.at, self.time)

    def at(self, time: int) -> None:
        self.context.forward(Record("at", time, 0))

    def process(self, record: Any) -> None:
        for name in ("plain", "timestamped", "headed"):
            store = self.context.get_state_store(name)
            store.put("k", None, self.time)
            store.put("k", 1 if name == "plain" else (1, 2) if name == "timestamped" else (1, 2, ()), self.time)
            self.context.forward(Record(name, next(iter(store.all()))[0][1], 0))


def putting(time: Any) -> Topology:
    builder = StreamsBuilder()
    for name in ("plain", "timestamped", "headed"):
        kind: dict[str, Any] = {} if name == "plain" else {"timestamped": True} if name == "timestamped" else {"headers": True}
        builder.add_state_store(stores.window(name, STRING, LONG, retention_ms=9_000, window_size_ms=1, **kind))
    made = builder.stream("in", Consumed(STRING, STRING)).process(lambda: Puts(time), "plain", "timestamped", "headed")
    made.to("out", None)
    return builder.build()


WITH_PUTS = [f"{kind}.put window_start_ms" for kind in ("WindowStore", "TimestampedWindowStore", "WindowStoreWithHeaders")]


def driven(time: Any, piped: Any, wall: Any) -> list[Any]:
    with TopologyTestDriver(putting(time), {"default_key_serde": STRING, "default_value_serde": LONG}, initial_wall_clock_ms=wall) as driver:
        source = driver.create_input_topic("in", STRING, STRING, start_timestamp_ms=piped, auto_advance_ms=time)
        source.pipe_input("a", "b", piped)
        source.pipe_raw(b"a", b"b", piped)
        source.advance_time(time)
        driver.advance_wall_clock_time(time)
        return driver.create_output_topic("out", STRING, LONG).read_records_to_list()


async def driven_async(time: Any, piped: Any, wall: Any) -> list[Any]:
    config = {"default_key_serde": STRING, "default_value_serde": LONG}
    async with AsyncTopologyTestDriver(putting(time), config, initial_wall_clock_ms=wall) as driver:
        source = driver.create_input_topic("in", STRING, STRING, start_timestamp_ms=piped, auto_advance_ms=time)
        await source.pipe_input("a", "b", piped)
        await source.pipe_raw(b"a", b"b", piped)
        await driver.pipe_input("in", b"a", b"b", piped)
        await driver.advance_wall_clock_time(time)
        return driver.create_output_topic("out", STRING, LONG).read_records_to_list()


DRIVERS = [
    f"{prefix}{method} {parameter}"
    for prefix, methods in {
        "TopologyTestDriver": {"": ["initial_wall_clock_ms"], ".create_input_topic": ["start_timestamp_ms", "auto_advance_ms"]},
        "AsyncTopologyTestDriver": {
            "": ["initial_wall_clock_ms"],
            ".create_input_topic": ["start_timestamp_ms", "auto_advance_ms"],
            ".pipe_input": ["timestamp_ms"],
        },
        "TestInputTopic": {".pipe_input": ["timestamp_ms"], ".pipe_raw": ["timestamp_ms"]},
        "AsyncTestInputTopic": {".pipe_input": ["timestamp_ms"], ".pipe_raw": ["timestamp_ms"]},
    }.items()
    for method, names in methods.items()
    for parameter in names
]

PLACE = TopicPartition("dead", 0)
AWAITED: dict[str, Callable[[AppHarness, Any], Any]] = {
    "App.store timeout_ms": lambda h, t: h.app.store("counts", timeout_ms=t).get("a"),
    "App.query timeout_ms": lambda h, t: h.app.query(StateQueryRequest(store="counts", query=KeyQuery("a")), t),
    "App.pause timeout_ms": lambda h, t: h.app.pause(t),
    "App.resume timeout_ms": lambda h, t: h.app.resume(t),
    "App.commit timeout_ms": lambda h, t: h.app.commit(t),
    "App.add_worker timeout_ms": lambda h, t: h.app.add_worker(t),
    "App.remove_worker timeout_ms": lambda h, t: h.app.remove_worker(t),
    "AppHarness.remove_worker timeout_ms": lambda h, t: h.remove_worker(t),
    "App.wait_until_caught_up timeout_ms": lambda h, t: h.app.wait_until_caught_up(t),
    "AppHarness.caught_up timeout_ms": lambda h, t: h.caught_up(t),
    "read_letters timeout_ms": lambda h, t: read_letters(h.log, "dead", timeout_ms=t),
    "read_letter timeout_ms": lambda h, t: read_letter(h.log, PLACE, 0, timeout_ms=t),
}
"""Orders to an app that runs, which take their time."""
REFUSING: dict[str, Callable[[AppHarness, Any], Any]] = {
    "App.snapshot timeout_ms": lambda h, t: h.app.snapshot(t),
    "App.reset timeout_ms": lambda h, t: App(counting(), h.config).reset(timeout_ms=t),
    "redrive timeout_ms": lambda h, t: redrive(h.log, PLACE, 0, application_id="app", timeout_ms=t),
    "AppHarness.ended timeout_ms": lambda h, t: h.ended(t),
    "App.close timeout_ms": lambda h, t: h.app.close(timeout_ms=t),
    "Client timeout_ms": lambda _, t: Client(["127.0.0.1:7070"], timeout_ms=t),
    "Client.of_group timeout_ms": lambda h, t: Client.of_group(h.config, timeout_ms=t),
    "Client.store timeout_ms": lambda _, t: Client(["127.0.0.1:7070"]).store("counts", STRING, LONG, timeout_ms=t),
}
"""Calls that need another state, or end the app: here their time is looked at first."""
ELSEWHERE = {
    "App.send timestamp_ms",
    "AppHarness wall_clock_ms",
    "Publisher.send timestamp_ms",
    "reset timeout_ms",
    *(
        f"SparkBridge{each}"
        for each in (
            " start_timeout_ms",
            ".run deadline_ms",
            ".start_query stop_ms",
            ".start_query timeout_ms",
            ".stop_query timeout_ms",
        )
    ),
}
"""Tested below, where Spark is, or by the same method of App."""


def test_each_public_parameter_in_ms_takes_a_timedelta() -> None:
    """By its annotation; and one of the tables here calls each."""
    there = found()
    assert {name: annotation for name, annotation in there.items() if "timedelta" not in annotation} == {}
    assert there.keys() == {*WAY, *OPERATIONS, *WITH_PUTS, *DRIVERS, *AWAITED, *REFUSING, *ELSEWHERE}


@pytest.mark.parametrize("name", WAY)
def test_a_timedelta_is_its_number_of_ms(name: str) -> None:
    """Equal objects come of both, and an int is inside."""
    call = WAY[name]
    made = call(timedelta(seconds=2))
    assert made == call(2_000)
    assert "timedelta" not in repr(made)


@pytest.mark.parametrize("name", [*WAY, *OPERATIONS])
def test_a_part_of_a_ms_is_refused(name: str) -> None:
    """The error says between which times it is."""
    with pytest.raises(ValueError, match=r"_ms .*is not a whole number of ms: give timedelta\(milliseconds=2\), or 3"):
        (WAY[name] if name in WAY else partial(built, name))(timedelta(milliseconds=2, microseconds=7))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_takes_a_timedelta(name: str) -> None:
    """Its operator and its stores have ints."""
    assert built(name, timedelta(seconds=2)) == built(name, 2_000)
    assert "timedelta" not in repr(built(name, timedelta(seconds=2)))


def test_drivers_punctuators_and_window_stores_take_a_timedelta() -> None:
    """A moment may be a timedelta since 1970, or a datetime with a time zone."""
    expected = driven(2_000, 5_000, 10_000)
    assert [record.value for record in expected][-1] == 12_000
    assert driven(timedelta(seconds=2), timedelta(seconds=5), timedelta(seconds=10)) == expected
    assert driven(2_000, datetime.fromtimestamp(5, UTC), datetime.fromtimestamp(10, UTC)) == expected


@in_virtual_time
async def test_asynchronous_drivers_take_a_timedelta() -> None:
    """As the others."""
    expected = await driven_async(2_000, 5_000, 10_000)
    assert await driven_async(timedelta(seconds=2), timedelta(seconds=5), timedelta(seconds=10)) == expected
    assert await driven_async(2_000, datetime.fromtimestamp(5, UTC), datetime.fromtimestamp(10, UTC)) == expected


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).group_by_key().count(Materialized("counts", STRING, LONG))
    return builder.build()


@in_virtual_time
async def test_orders_and_queries_take_a_timedelta() -> None:
    """As timeouts; a negative one is refused as a number is."""
    async with AppHarness(counting(), topics={"in": 1, "dead": 1}, wall_clock_ms=datetime.fromtimestamp(5, UTC)) as harness:
        assert harness.kit.wall_time_ms() >= 5_000
        for name, call in AWAITED.items():
            await call(harness, timedelta(minutes=1))
            with pytest.raises(ValueError, match=r"timeout_ms is -1000: give 0 or more"):
                await call(harness, timedelta(seconds=-1))
            assert name
        for call in REFUSING.values():
            with pytest.raises(ValueError, match=r"timeout_ms is -1000: give 0 or more"):
                await call(harness, timedelta(seconds=-1))
        await harness.produce("in", "a", "b", datetime.fromtimestamp(5, UTC))
        assert [record.timestamp for record in await harness.read("in")] == [5_000]
        await harness.app.close(timeout_ms=timedelta(seconds=1))


def test_a_moment_without_a_time_zone_is_refused() -> None:
    """The error says both times that it could be."""
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - the wrong way
    for call in (lambda: UnlimitedWindows.of().start_on(naive), lambda: TopologyTestDriver(counting(), initial_wall_clock_ms=naive)):
        with pytest.raises(ValueError, match=r"has no time zone: give time.replace\(tzinfo=UTC\) .* or time.astimezone\(\)"):
            call()
    moment = naive.replace(tzinfo=UTC)
    assert UnlimitedWindows.of().start_on(moment) == UnlimitedWindows(int(moment.timestamp() * 1000))


@pytest.mark.parametrize("name", [name for name in SETTINGS if name.endswith("_ms")])
def test_a_setting_in_ms_takes_a_timedelta(name: str) -> None:
    """The config has the int; a part of a ms is refused."""
    most = {"retry_backoff_max_ms": 10**6, "reconnect_backoff_max_ms": 10**6}
    settings: dict[str, Any] = {"application_id": "a", "bootstrap_servers": "localhost:1", **most}
    config = StreamsConfig(**settings | {name: timedelta(seconds=2)})
    assert config == StreamsConfig(**settings | {name: 2_000})
    assert type(getattr(config, name)) is int
    with pytest.raises(ValueError, match=f"{name}.* is not a whole number of ms: give"):
        StreamsConfig(**settings | {name: timedelta(microseconds=7)})


@in_virtual_time
async def test_records_are_sent_at_times_of_the_three_forms() -> None:
    """An int of ms, a datetime with a zone and a timedelta since 1970 are the same time."""
    async with AppHarness(counting(), topics={"in": 1, "dead": 1}) as harness:
        times = (5_000, datetime.fromtimestamp(5, UTC), timedelta(seconds=5))
        sent = [await harness.app.send("in", "a", "b", timestamp_ms=time) for time in times]
        assert [record.timestamp_ms for record in sent] == [5_000] * 3
        with pytest.raises(ValueError, match=r"timestamp_ms is .* time zone"):
            await harness.app.send("in", "a", "b", timestamp_ms=datetime(2026, 1, 1))  # noqa: DTZ001 - refused for that
