"""The verdicts of `compare`, each confirmed by replacing a running topology."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ks_actors import App, KsActorsError, Processor, Record, StreamsConfig, ValueAndTimestamp, ValueTimestampHeaders
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, Repartitioned, StreamsBuilder, TimeWindows
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch
from ks_actors.serdes import LONG, STRING
from ks_actors.topology import Effect, Topology, compare, stores

STRINGS = Consumed(STRING, STRING)
COUNTS = Materialized("counts", STRING, LONG)


def counting(
    *,
    before: Callable[[StreamsBuilder], object] | None = None,
    after: Callable[[StreamsBuilder], object] | None = None,
    store: Any = COUNTS,
    source: str = "in",
    sink: str = "out",
    repartition: Repartitioned[str, str] | None = None,
    windows: Any = None,
) -> Topology:
    """Count records by key."""
    builder = StreamsBuilder()
    if before is not None:
        before(builder)
    stream = builder.stream(source, STRINGS)
    if repartition is not None:
        stream = stream.repartition(repartition)
    grouped = stream.group_by_key(Grouped(STRING, STRING))
    counts = grouped.count(store) if windows is None else grouped.windowed_by(windows).count(store)
    if windows is None:
        counts.to_stream().to(sink, Produced(STRING, LONG))
    if after is not None:
        after(builder)
    return builder.build()


def other(name: str) -> Callable[[StreamsBuilder], object]:
    """Count another topic in a subtopology of its own."""
    return lambda builder: builder.stream(name, STRINGS).group_by_key(Grouped(STRING, STRING)).count(Materialized(f"{name}-counts", STRING, LONG))


class Case(NamedTuple):
    old: Topology
    new: Topology
    name: str
    effect: Effect
    seen: str
    """The observation in the new app: the value of a key in a store, a topic that nobody reads, or `refused`."""
    optimized: tuple[str, str] = ("none", "none")
    """The settings `topology_optimization` of both."""


CASES = {
    "nothing has changed": Case(counting(), counting(), "counts", Effect.KEPT, "counts=2"),
    "a subtopology comes before": Case(counting(), counting(before=other("also")), "counts", Effect.RESTORED, "counts=2"),
    "a subtopology comes behind": Case(counting(), counting(after=other("also")), "also-counts", Effect.BEGINS, "also-counts=1"),
    "a subtopology goes": Case(counting(before=other("also")), counting(), "also-counts", Effect.LEFT, "topic app-also-counts-changelog"),
    "a store has another name": Case(counting(), counting(store=Materialized("sums", STRING, LONG)), "sums", Effect.BEGINS, "sums=1"),
    "a store has its old name no more": Case(
        counting(), counting(store=Materialized("sums", STRING, LONG)), "counts", Effect.LEFT, "topic app-counts-changelog"
    ),
    "a store is in memory": Case(
        counting(), counting(store=Materialized("counts", STRING, LONG, store_type="in_memory")), "counts", Effect.RESTORED, "counts=2"
    ),
    "a store has no changelog any more": Case(
        counting(), counting(store=Materialized("counts", STRING, LONG, logging=False)), "counts", Effect.KEPT, "counts=2"
    ),
    "a store without changelog moves": Case(
        counting(store=Materialized("counts", STRING, LONG, logging=False)),
        counting(before=other("also"), store=Materialized("counts", STRING, LONG, logging=False)),
        "counts",
        Effect.LOST,
        "counts=1",
    ),
    "a count is windowed": Case(counting(), counting(windows=TimeWindows.of_size_with_no_grace(1_000)), "counts", Effect.REFUSED, "refused"),
    "another source": Case(counting(), counting(source="also"), "also", Effect.BEGINS, "counts=2"),
    "another sink": Case(counting(), counting(sink="also"), "out", Effect.LEFT, "counts=2"),
    "a repartition has more partitions": Case(
        counting(repartition=Repartitioned(STRING, STRING, name="by", partitions=1)),
        counting(repartition=Repartitioned(STRING, STRING, name="by", partitions=2)),
        "by-repartition",
        Effect.REFUSED,
        "refused",
    ),
    "a repartition goes": Case(
        counting(repartition=Repartitioned(STRING, STRING, name="by")), counting(), "by-repartition", Effect.LOST, "topic app-by-repartition"
    ),
}


def keeping(**options: Any) -> Topology:
    """Keep the last value of each key, in a store with these options."""

    class Keeping(Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            self.store = context.get_state_store("last")

        def process(self, record: Record[str, str]) -> None:
            value: Any = record.value
            if options.get("headers"):
                value = ValueTimestampHeaders(value, record.timestamp, record.headers)
            elif options.get("timestamped"):
                value = ValueAndTimestamp(value, record.timestamp)
            self.store.put(record.key, value)

    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("last", STRING, STRING, **options))
    builder.stream("in", STRINGS).process(Keeping, "last").to("out", Produced(STRING, STRING))
    return builder.build()


def versioned(history_ms: int) -> Topology:
    """Have a store with versions."""

    class Idle(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            pass

    builder = StreamsBuilder()
    builder.add_state_store(stores.versioned_key_value("last", STRING, STRING, history_retention_ms=history_ms))
    builder.stream("in", STRINGS).process(Idle, "last").to("out", Produced(STRING, STRING))
    return builder.build()


def table(optimization: str) -> Topology:
    """Keep a topic as a table."""
    builder = StreamsBuilder()
    builder.table("in", STRINGS, Materialized("last", STRING, STRING)).to_stream().to("out", Produced(STRING, STRING))
    return builder.build(StreamsConfig(application_id="app", topology_optimization=optimization))


def windowed(size_ms: int) -> Topology:
    return counting(windows=TimeWindows.of_size_with_no_grace(size_ms))


TIMED: dict[str, Any] = {"timestamped": True}
HEADERS: dict[str, Any] = {"headers": True}
BARE: dict[str, Any] = {"logging": False}
CASES |= {
    "a store keeps timestamps": Case(keeping(), keeping(**TIMED), "last", Effect.RESTORED, "last=first"),
    "a store keeps no timestamps any more": Case(keeping(**TIMED), keeping(), "last", Effect.RESTORED, "last=first"),
    "a store keeps headers": Case(keeping(), keeping(**HEADERS), "last", Effect.KEPT, "last=first"),
    "a store keeps no headers any more": Case(keeping(**HEADERS), keeping(**TIMED), "last", Effect.RESTORED, "last=first"),
    "a store on disk alone keeps headers": Case(keeping(**BARE), keeping(**BARE, **HEADERS), "last", Effect.KEPT, "last=first"),
    "a store on disk alone keeps timestamps": Case(keeping(**BARE), keeping(**BARE, **TIMED), "last", Effect.REFUSED, "refused"),
    "a store on disk alone gets a changelog": Case(keeping(**BARE), keeping(), "last", Effect.LOST, "last=None"),
    "a store on disk alone is in memory": Case(keeping(**BARE), keeping(**BARE, type="in_memory"), "last", Effect.LOST, "last=None"),
    "a store in memory has no changelog": Case(keeping(type="in_memory"), keeping(**BARE), "last", Effect.LOST, "last=None"),
    "a table is restored from its topic": Case(table("none"), table("all"), "last", Effect.RESTORED, "last=first", ("none", "all")),
    "a table is restored from a changelog": Case(table("all"), table("none"), "last", Effect.LOST, "last=None", ("all", "none")),
    "versions are kept longer": Case(versioned(1_000), versioned(2_000), "last", Effect.REFUSED, "refused"),
    "versions are kept shorter": Case(versioned(2_000), versioned(1_000), "last", Effect.KEPT, "last=None"),
    "windows are longer": Case(windowed(1_000), windowed(2_000), "counts", Effect.REFUSED, "refused"),
    "windows are shorter": Case(windowed(2_000), windowed(1_000), "counts", Effect.MIXED, "windows"),
}


async def write(log: EmbeddedLog, topic: str, key: bytes = b"k", value: bytes = b"v") -> None:
    producer = await log.producer(client_id="test")
    await producer.send([Outgoing(TopicPartition(topic, 0), Batch([key], [value], [0]))])
    await producer.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_verdict_is_what_happens(case: Case, tmp_path: Path) -> None:
    """One record is counted by the old topology, one more is written to each topic, and the new topology goes on with the same log and state."""
    (change,) = [each for each in compare(case.old, case.new) if each.name == case.name]
    assert change.effect is case.effect
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic(name, 1) for name in ("in", "out", "also")])
        old, new = (StreamsConfig(application_id="app", state_dir=tmp_path, topology_optimization=each) for each in case.optimized)
        await write(log, "in")
        await write(log, "in", b"once", b"first")
        async with App(case.old, old, log=log) as app:
            await app.wait_until_caught_up()
        for topic in ("in", "also"):
            await write(log, topic)
        if case.seen == "refused":
            with pytest.raises(KsActorsError):
                async with App(case.new, new, log=log) as app:
                    await app.wait_until_caught_up()
            return
        async with App(case.new, new, log=log) as app:
            await app.wait_until_caught_up()
            if case.seen.startswith("topic "):
                topic = case.seen.removeprefix("topic ")
                assert topic in await log.describe_topics()
                assert topic not in {each.topic for task in app.tasks() for each in task.partitions}
            elif case.seen == "windows":
                rows = [row async for row in app.store("counts").fetch_all(0, 10_000)]
                assert rows == [(("k", 0), 2), (("once", 0), 1)]
            else:
                store, _, value = case.seen.partition("=")
                found = await app.store(store).get("once" if store == "last" else "k")
                assert str(found) == value


def test_what_stays_as_it_is_is_harmless() -> None:
    """A topology in the place of itself changes nothing."""
    changes = compare(counting(before=other("also")), counting(before=other("also")))
    assert {each.effect for each in changes} == {Effect.KEPT}
    assert all(each.harmless for each in changes)
    assert [each.kind for each in changes] == ["store", "store", "source", "source", "sink"]
