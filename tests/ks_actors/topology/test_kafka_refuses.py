"""Kafka Streams 4.3 refuses these, and so do we: each of its checks of names, topologies, windows, stores and settings, taken from its sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ks_actors import SlidingWindows, StreamsBuilder, StreamsConfig, Suppressed, TimeWindows, Topology, UnlimitedWindows, Window, stores
from ks_actors._errors import ConfigError, TopologyError
from ks_actors.dsl import BufferConfig, Consumed, EmitStrategy, Joined, JoinWindows, Materialized, Repartitioned, SessionWindows
from ks_actors.processors import Processor, Record
from ks_actors.serdes import STRING

CONSUMED = Consumed(STRING, STRING)


class Work(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None: ...


ONE = Work()


class Case(NamedTuple):
    """A check of Kafka Streams: its class and message there, how to run into it here, and words of the error here."""

    there: str
    call: Callable[[], Any]
    here: str
    kind: type[Exception] = TopologyError


def base() -> Topology:
    return Topology().add_source("in", "topic", key=STRING, value=STRING).add_processor("work", Work, "in").add_sink("out", "written", "work")


def stored(name: str = "s") -> Topology:
    return base().add_state_store(stores.key_value(name, STRING, STRING), "work")


def stream(builder: StreamsBuilder, topic: str = "in") -> Any:
    return builder.stream(topic, CONSUMED)


def table(builder: StreamsBuilder, topic: str = "rows", materialized: Materialized[str, str] | None = None) -> Any:
    return builder.table(topic, CONSUMED, materialized)


def two_sources(first: Any, second: Any, *, resets: tuple[Any, Any] = (None, None)) -> Topology:
    builder = StreamsBuilder()
    for topics, reset in zip((first, second), resets, strict=True):
        builder.stream(topics, Consumed(STRING, STRING, offset_reset=reset))
    return builder.build()


def built(make: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder()
    make(builder)
    return builder.build()


def copartitioned(first: int, second: int) -> Topology:
    def make(b: StreamsBuilder) -> None:
        left = stream(b).repartition(Repartitioned(name="l", partitions=first))
        right = stream(b, "other").repartition(Repartitioned(name="r", partitions=second))
        left.join(right, lambda a, b: (a, b), JoinWindows.of_time_difference_with_no_grace(1))

    return built(make)


def setting(**values: Any) -> StreamsConfig:
    return StreamsConfig.of({"application_id": "app", **values})


def versioned() -> Materialized[str, str]:
    return Materialized(history_retention_ms=1000)


HISTORY = Materialized[str, str](name="h", history_retention_ms=1000)
COUNT = Materialized[Any, Any](name="c")
CLOSES = Suppressed.until_window_closes(BufferConfig.unbounded())

CASES = [
    # InternalTopologyBuilder
    Case("Processor x is already added.", lambda: base().add_source("in", "more"), "node in has already been added"),
    Case("Processor x is already added. (processor)", lambda: base().add_processor("work", Work, "in"), "node work has already been added"),
    Case("Processor x is already added. (sink)", lambda: base().add_sink("out", "t", "work"), "node out has already been added"),
    Case("topics cannot be empty", lambda: Topology().add_source("x", []), "source x reads no topic"),
    Case("name must not be null", lambda: Topology().add_source(None, "t"), "not a valid node name"),  # type: ignore[arg-type]
    Case("topic names cannot be null", lambda: Topology().add_source("x", [None]), "is not a valid topic name: use"),  # type: ignore[list-item]
    Case("topicPattern cannot be null", lambda: Topology().add_source("x", None), "topics of source x are None"),  # type: ignore[arg-type]
    Case("Pattern p will match a topic that has already been registered", lambda: base().add_source("x", re.compile("to.*")), "matches topic topic"),
    Case(
        "Topic t has already been registered by another source.",
        lambda: base().add_source("x", "topic"),
        "is already read by source in: add a child to",
    ),
    Case(
        "Topic t matches a Pattern already registered by another source.",
        lambda: Topology().add_source("p", re.compile("to.*")).add_source("x", "topic"),
        "matches the pattern to.* of source p",
    ),
    Case("predecessorNames cannot be empty", lambda: base().add_processor("x", Work), "node x has no parent"),
    Case("predecessorNames cannot be empty (sink)", lambda: base().add_sink("x", "t"), "node x has no parent"),
    Case("Parent node x is unknown (self-reference).", lambda: base().add_processor("x", Work, "x"), "cannot be its own parent"),
    Case("Parent node y is unknown.", lambda: base().add_processor("x", Work, "y"), "parent y of node x is unknown"),
    Case("Sink out cannot be used a parent.", lambda: base().add_processor("x", Work, "out"), "is a sink, which forwards nothing"),
    Case("topic cannot be null", lambda: base().add_sink("x", None, "in"), "is not a valid topic name: use"),  # type: ignore[arg-type]
    Case("supplier must not be null", lambda: base().add_processor("x", None, "in"), "supplier of node x is None"),  # type: ignore[arg-type]
    Case("supplier.get() returns one object twice", lambda: base().add_processor("x", lambda: ONE, "in"), "supplied the same processor twice"),
    Case(
        "A different StateStore has already been added with the name s",
        lambda: stored().add_state_store(stores.key_value("s", STRING, STRING)),
        "a different store s has already been added",
    ),
    Case(
        "A different StateStore has already been added with the name s (operations)",
        lambda: built(lambda b: (stream(b).group_by_key().count(COUNT), stream(b, "more").group_by_key().count(COUNT))),
        "a different store c has already been added, and is used by KSTREAM-AGGREGATE",
    ),
    Case(
        "A different StateStore has already been added with the name s (operation and store)",
        lambda: built(lambda b: (b.add_state_store(stores.key_value("c", STRING, STRING)), stream(b).group_by_key().count(COUNT))),
        "a different store c has already been added",
    ),
    Case(
        "A different StateStore has already been added with the name s (tables)",
        lambda: built(lambda b: (table(b, "a", Materialized("c")), table(b, "b", Materialized("c")))),
        "a different store c has already been added",
    ),
    Case(
        "A different StateStore has already been added with the name s (global)",
        lambda: stored().add_global_store(stores.key_value("s"), "a", "b", "c", Work),
        "store s has already been added",
    ),
    Case(
        "A different GlobalStateStore has already been added with the name s",
        lambda: built(lambda b: (b.global_table("a", CONSUMED, Materialized("s")), b.global_table("b", CONSUMED, Materialized("s")))),
        "store s has already been added",
    ),
    Case(
        "A different GlobalStateStore has already been added with the name s (local)",
        lambda: base().add_global_store(stores.key_value("s"), "a", "b", "c", Work).add_state_store(stores.key_value("s")),
        "store s has already been added as a global store",
    ),
    Case(
        "sourceName and processorName must be different.",
        lambda: Topology().add_global_store(stores.key_value("s"), "a", "b", "a", Work),
        "are both named a",
    ),
    Case("stateStoreNames cannot be empty", lambda: base().connect_processor_and_state_stores("work"), "is connected to no store"),
    Case(
        "State stores cannot be connect to sources or sinks.",
        lambda: stored().connect_processor_and_state_stores("in", "s"),
        "node in is not a processor",
    ),
    Case(
        "State stores cannot be connect to sources or sinks. (sink)",
        lambda: stored().connect_processor_and_state_stores("out", "s"),
        "is not a processor",
    ),
    Case(
        "Global StateStore s can be used by a Processor without being specified",
        lambda: base().add_global_store(stores.key_value("s"), "a", "b", "c", Work).connect_processor_and_state_stores("work", "s"),
        "store s is global: processor work can read it without a connection; remove",
    ),
    Case("StateStore s is not added yet.", lambda: base().connect_processor_and_state_stores("work", "s"), "store s of processor work is unknown"),
    Case("Processor x is not added yet.", lambda: stored().connect_processor_and_state_stores("x", "s"), "processor x, to be connected to store s"),
    Case("Following topics do not have the same number of partitions", lambda: copartitioned(2, 3), "different numbers of partitions"),
    # InternalStreamsBuilder
    Case(
        "Two source nodes are subscribed to overlapping but not equal input topics",
        lambda: two_sources(["a", "b"], ["b"]),
        "read topic 'b', and only one of them reads other topics, too",
    ),
    Case(
        "Can't configure different offset resets on the same input topic(s)",
        lambda: two_sources("a", "a", resets=("earliest", "latest")),
        "but have different options, offset_reset is earliest and latest",
    ),
    Case(
        "GlobalTables cannot be versioned.",
        lambda: built(lambda b: b.global_table("t", CONSUMED, HISTORY)),
        "a global table cannot be versioned",
    ),
    Case(
        "suppress() is only supported for non-versioned KTables",
        lambda: built(lambda b: table(b, materialized=HISTORY).suppress(Suppressed.until_time_limit(1, BufferConfig.unbounded()))),
        "has a versioned store, and its changes cannot be suppressed",
    ),
    Case(
        "KTable must be versioned to use a grace period in a stream table join.",
        lambda: built(lambda b: stream(b).join(table(b), lambda a, b: (a, b), Joined(grace_ms=1))),
        "has a grace period, but its table has no history",
    ),
    Case(
        "history retention must be greater than or equal to grace period",
        lambda: built(lambda b: stream(b).join(table(b, materialized=HISTORY), lambda a, b: (a, b), Joined(grace_ms=1001))),
        "cannot wait for 1001 ms: its table keeps history for 1000 ms",
    ),
    Case(
        "Could not find grace period (suppress until window closes)",
        lambda: built(lambda b: table(b).suppress(CLOSES)),
        "has no windows that close",
    ),
    Case(
        "ON_WINDOW_CLOSE emit strategy cannot be used for UnlimitedWindows",
        lambda: stream(StreamsBuilder()).group_by_key().windowed_by(UnlimitedWindows.of()).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE),
        "an unlimited window never closes",
    ),
    Case(
        "The retention period of the window store must be no smaller than its window size plus the grace period.",
        lambda: stream(StreamsBuilder()).group_by_key().windowed_by(TimeWindows.of_size_and_grace(10, 5)).count(Materialized(retention_ms=14)),
        "keeps windows for 14 ms, but window and grace take 15 ms",
    ),
    Case(
        "The retention period of the session store must be no smaller than the session inactivity gap plus the grace period.",
        lambda: (
            stream(StreamsBuilder())
            .group_by_key()
            .windowed_by(SessionWindows.of_inactivity_gap_and_grace(10, 5))
            .count(Materialized(retention_ms=14))
        ),
        "keeps windows for 14 ms, but inactivity gap and grace take 15 ms",
    ),
    # Named
    Case("Name is illegal, it can't be empty", lambda: stream(StreamsBuilder()).filter(max, name=""), "'' is not a valid name"),
    Case('Name cannot be "." or ".."', lambda: stream(StreamsBuilder()).filter(max, name=".."), "'..' is not a valid name"),
    Case("Name is illegal, it can't be longer than 249", lambda: stream(StreamsBuilder()).filter(max, name="x" * 250), "is not a valid name"),
    Case("it contains a character other than ASCII alphanumerics", lambda: stream(StreamsBuilder()).filter(max, name="a b"), "is not a valid name"),
    Case("Name is illegal (Materialized)", lambda: Materialized(name="a b"), "'a b' is not a valid name"),
    # windows
    Case("Window interval (ie, beforeMs+afterMs) must not be negative.", lambda: JoinWindows(1, -2, 0), "the sum must not be negative"),
    Case("Grace period must not be negative. (join)", lambda: JoinWindows(1, 1, -1), "grace_ms is -1"),
    Case("Gap time cannot be negative.", lambda: SessionWindows(-1, 0), "inactivity_gap_ms is -1"),
    Case("Grace period cannot be negative. (session)", lambda: SessionWindows(1, -1), "grace_ms is -1"),
    Case("Window time difference must not be negative.", lambda: SlidingWindows(-1, 0), "time_difference_ms is -1"),
    Case("Window grace period must not be negative.", lambda: SlidingWindows(1, -1), "grace_ms is -1"),
    Case("Window size (sizeMs) must be larger than zero.", lambda: TimeWindows(0, 0, 1), "size_ms is 0"),
    Case("Window advancement interval should be more than zero", lambda: TimeWindows(5, 0, 0), "advance_ms is 0"),
    Case("Window advancement interval should be less than window duration", lambda: TimeWindows(5, 0, 6), "advance_ms is 6"),
    Case("Grace period must not be negative. (time)", lambda: TimeWindows(5, -1, 5), "grace_ms is -1"),
    Case("Window start time (startMs) cannot be negative.", lambda: UnlimitedWindows.of().start_on(-1), "start_ms is -1"),
    # stores, Materialized, Suppressed
    Case("Retention must not be negative.", lambda: Materialized(retention_ms=-1), "retention_ms of Materialized is -1"),
    Case("historyRetention cannot be negative", lambda: stores.versioned_key_value("s", history_retention_ms=-1), "for -1 ms"),
    Case("retentionPeriod cannot be negative", lambda: stores.window("s", retention_ms=-1, window_size_ms=-1), "cannot keep windows of -1 ms"),
    Case("windowSize cannot be negative", lambda: stores.window("s", retention_ms=5, window_size_ms=-1), "cannot keep windows of -1 ms"),
    Case(
        "The retention period must be no smaller than its window size.",
        lambda: stores.window("s", retention_ms=5, window_size_ms=6),
        "of 6 ms for 5 ms",
    ),
    Case("retentionPeriod cannot be negative (session)", lambda: stores.session("s", retention_ms=-1), "cannot keep sessions for -1 ms"),
    Case("name cannot be null", lambda: stores.key_value(None), "None is not a valid name"),  # type: ignore[arg-type]
    Case(
        "timeToWaitForMoreEvents must not be negative",
        lambda: Suppressed.until_time_limit(-1, BufferConfig.unbounded()),
        "wait_ms of Suppressed is -1",
    ),
    # StreamsConfig
    Case("Missing required configuration application.id", lambda: StreamsConfig.of({}), "application_id", ConfigError),
    Case("Invalid value exactly_once for processing.guarantee", lambda: setting(processing_guarantee="exactly"), "processing_guarantee", ConfigError),
    Case("num.stream.threads: Value must be at least 1", lambda: setting(num_stream_threads=0), "num_stream_threads", ConfigError),
    Case("num.standby.replicas is no number", lambda: setting(num_standby_replicas="two"), "num_standby_replicas", ConfigError),
    Case("commit.interval.ms: Value must be at least 0", lambda: setting(commit_interval_ms=-1), "commit_interval_ms", ConfigError),
    Case(
        "statestore.cache.max.bytes: Value must be at least 0",
        lambda: setting(statestore_cache_max_bytes=-1),
        "statestore_cache_max_bytes",
        ConfigError,
    ),
    Case("default.dsl.store: String must be one of: rocksDB, in_memory", lambda: setting(default_dsl_store="disk"), "default_dsl_store", ConfigError),
    Case('"x" is not a valid optimization config.', lambda: setting(topology_optimization="x"), "topology_optimization", ConfigError),
    Case("Class x could not be found (serde)", lambda: setting(default_key_serde="no.such.Serde"), "default_key_serde", ConfigError),
    Case("is not a serde", lambda: setting(default_key_serde=object), "default_key_serde", ConfigError),
]
DIFFERENT = [
    # In both directions; docs/streams-semantics.md has the reasons.
    Case("Window startMs time cannot be negative.", lambda: Window(-1, 5), ""),
    Case("Window endMs time cannot be smaller than window startMs time.", lambda: Window(5, 4), ""),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.there[:60])
def test_a_check_of_kafka_streams_is_there(case: Case) -> None:
    """The error is raised by the call or by `build`, and names the fault in its own words."""
    with pytest.raises(case.kind, match=re.escape(case.here)):
        case.call()


@pytest.mark.parametrize("case", DIFFERENT, ids=lambda case: case.there[:60])
def test_a_window_is_a_plain_tuple_which_checks_nothing(case: Case) -> None:
    """Windows are made by the operators a million times a second; Kafka Streams' have checks, these are named tuples."""
    assert isinstance(case.call(), tuple)
