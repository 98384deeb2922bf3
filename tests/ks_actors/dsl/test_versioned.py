"""Tables with a history, beyond the comparison with Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import Serde, StoreKind, Suppressed, Table, TimeWindows, Topology, TopologyError, ValueTransformer, VersionedRecord, serdes
from ks_actors.dsl import BufferConfig, Consumed, Grouped, Joined, Materialized, Produced, SessionWindows, StreamsBuilder
from ks_actors.testing import AppHarness, TopologyTestDriver
from tests.ks_actors.runtime.helpers import in_app

TEXT: Serde[Any] = serdes.STRING
CONSUMED = Consumed(TEXT, TEXT)
PRODUCED = Produced(TEXT, TEXT)
HISTORY = Materialized[Any, Any]("rows", TEXT, TEXT, history_retention_ms=100)

Step = tuple[str, str, str | None, int]


def run(builder: StreamsBuilder, *steps: Step) -> list[tuple[Any, Any, int]]:
    """Pipe topic, key, value and timestamp, and return the output."""
    with TopologyTestDriver(builder.build()) as driver:
        out = driver.create_output_topic("out", TEXT, TEXT)
        for topic, key, value, timestamp in steps:
            driver.create_input_topic(topic, TEXT, TEXT).pipe_input(key, value, timestamp_ms=timestamp)
        return [(record.key, record.value, record.timestamp) for record in out.read_records_to_list()]


def paired(left: str | None, right: str | None) -> str:
    return f"{left}-{right}"


@pytest.mark.parametrize("stored", ["source", "filter", "map", "transform", "stream", "aggregate", "grouped", "join"])
def test_every_table_may_have_a_history(stored: str) -> None:
    """A stream is joined with the version that was valid at its time, for any kind of table."""
    builder = StreamsBuilder()
    stream = builder.stream("left", CONSUMED)

    class Same(ValueTransformer[str, str, str]):
        """Values as they are."""

        def transform(self, key: str, value: str | None) -> str | None:
            return value

    def source() -> Table[str, str]:
        return builder.table("right", CONSUMED)

    makes: dict[str, Callable[[], Any]] = {
        "source": lambda: builder.table("right", CONSUMED, HISTORY),
        "filter": lambda: source().filter(lambda _, __: True, HISTORY),
        "map": lambda: source().map_values(lambda v: v, HISTORY),
        "transform": lambda: source().transform_values(Same, materialized=HISTORY),
        "stream": lambda: builder.stream("right", CONSUMED).to_table(HISTORY),
        "aggregate": lambda: builder.stream("right", CONSUMED).group_by_key(Grouped(TEXT, TEXT)).reduce(lambda _, v: v, HISTORY),
        "grouped": lambda: source().group_by(lambda k, v: (k, v), Grouped(TEXT, TEXT)).reduce(lambda _, v: v, lambda a, _: a, HISTORY),
        "join": lambda: (rows := source()).join(rows.filter(lambda _, __: True), lambda v, _: v, HISTORY),
    }
    table = makes[stored]()
    assert table.history_ms == 100
    stream.left_join(table, paired, Joined(TEXT, TEXT)).to("out", PRODUCED)
    rows = run(builder, ("right", "k", "a", 10), ("right", "k", "b", 20), ("left", "k", "1", 15), ("left", "k", "2", 25), ("left", "k", "3", 5))
    assert rows == [("k", "1-a", 15), ("k", "2-b", 25), ("k", "3-None", 5)]


def test_tables_derived_from_a_history_have_it() -> None:
    """Filtered and mapped tables without stores are looked up in the past too, and leave updates of the past out of joins and groups."""
    builder = StreamsBuilder()
    table = builder.table("right", CONSUMED, HISTORY).filter_not(lambda _, v: v == "x").map_values(lambda v: v + "!")
    assert table.history_ms == 100
    builder.stream("left", CONSUMED).join(table, paired, Joined(TEXT, TEXT)).to("out", PRODUCED)
    other = builder.table("other", CONSUMED)
    table.join(other, paired).to_stream().to("out", PRODUCED)
    rows = run(
        builder,
        ("other", "k", "o", 1),
        ("right", "k", "a", 10),
        ("right", "k", "x", 30),
        ("right", "k", "b", 20),  # of the past: no join of tables
        ("left", "k", "1", 25),
        ("left", "k", "2", 35),
    )
    assert rows == [("k", "a!-o", 10), ("k", None, 30), ("k", "1-b!", 25)]


def test_records_wait_for_the_grace_period() -> None:
    """They are joined by time, then by key, and then in the order of arrival; a later record is joined at once."""
    builder = StreamsBuilder()
    table = builder.table("right", CONSUMED, HISTORY)
    builder.stream("left", CONSUMED).left_join(table, paired, Joined(TEXT, TEXT, grace_ms=10)).to("out", PRODUCED)
    rows = run(
        builder,
        ("left", "k", "1", 20),
        ("left", "b", "2", 15),
        ("left", "a", "3", 15),
        ("left", "a", "4", 15),
        ("right", "k", "late", 19),
        ("left", "z", "5", 31),
        ("left", "k", "6", 20),
    )
    assert rows == [("a", "3-None", 15), ("a", "4-None", 15), ("b", "2-None", 15), ("k", "1-late", 20), ("k", "6-late", 20)]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda b: b.global_table("t", CONSUMED, HISTORY), "a global table cannot be versioned"),
        (lambda b: b.table("t", CONSUMED, HISTORY).suppress(Suppressed.until_time_limit(5, BufferConfig())), "cannot be suppressed"),
        (
            lambda b: b.stream("s", CONSUMED).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5)).count(HISTORY),
            "of windows cannot be versioned",
        ),
        (
            lambda b: b.stream("s", CONSUMED).group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count(HISTORY),
            "of sessions cannot be versioned",
        ),
        (lambda b: b.stream("s", CONSUMED).join(b.table("t", CONSUMED), paired, Joined(grace_ms=1)), "its table has no history"),
        (lambda b: b.stream("s", CONSUMED).join(b.table("t", CONSUMED, HISTORY), paired, Joined(grace_ms=101)), "history for 100 ms"),
        (lambda b: b.stream("s", CONSUMED).join(b.table("t", CONSUMED, HISTORY), paired, Joined(grace_ms=-1)), "grace_ms of Joined is -1"),
    ],
)
def test_tables_that_cannot_have_a_history_are_refused(build: Callable[[StreamsBuilder], Any], words: str) -> None:
    """When the topology is made, by name."""
    with pytest.raises(TopologyError, match=words):
        build(StreamsBuilder())


def versioned_table() -> Topology:
    builder = StreamsBuilder()
    builder.table("t", CONSUMED, HISTORY)
    return builder.build()


def test_a_table_with_a_history_is_on_disk_and_not_cached() -> None:
    """Unless its options say otherwise: as in Kafka Streams, where versioned stores are in RocksDB."""
    spec = versioned_table().stores["rows"]
    assert (spec.kind, spec.type, spec.caching, spec.history_retention_ms) == (StoreKind.VERSIONED, "rocksdb", False, 100)


@in_app(versioned_table(), topics={"t": 1})
async def test_a_history_is_there_after_a_restart(harness: AppHarness) -> None:
    """From a changelog that keeps versions for a day longer than the store does."""
    for value, time in (("a", 10), ("b", 30), ("c", 20)):
        await harness.produce("t", "k", value, time)
    await harness.caught_up()
    await harness.app.commit()
    await harness.crash()
    await harness.start()
    await harness.caught_up()
    store = harness.app.store("rows")
    assert await store.get("k", as_of=25) == VersionedRecord("c", 20, 30)
    assert await store.versions("k") == [VersionedRecord("a", 10, 20), VersionedRecord("c", 20, 30), VersionedRecord("b", 30)]
    (changelog,) = (topic for name, topic in (await harness.log.describe_topics()).items() if name.endswith("-rows-changelog"))
    assert changelog.configs["min.compaction.lag.ms"] == str(100 + 86_400_000)
    assert changelog.configs["cleanup.policy"] == "compact"
