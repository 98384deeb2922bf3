"""The verdicts of `compare`, each confirmed by replacing a running topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ks_actors import App, Consumed, Grouped, KsActorsError, Materialized, Produced, Repartitioned, StreamsBuilder, StreamsConfig, TimeWindows
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch
from ks_actors.serdes import LONG, STRING
from ks_actors.topology import Effect, Topology, compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    """The observation in the new app: the count of a key, or `refused`, or `deaf` of a source."""


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


async def write(log: EmbeddedLog, topic: str) -> None:
    producer = await log.producer(client_id="test")
    await producer.send([Outgoing(TopicPartition(topic, 0), Batch([b"k"], [b"v"], [0]))])
    await producer.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_verdict_is_what_happens(case: Case, tmp_path: Path) -> None:
    """One record is counted by the old topology, one more is written to each topic, and the new topology goes on with the same log and state."""
    (change,) = [each for each in compare(case.old, case.new) if each.name == case.name]
    assert change.effect is case.effect
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic(name, 1) for name in ("in", "out", "also")])
        config = StreamsConfig(application_id="app", state_dir=tmp_path, auto_offset_reset="earliest")
        await write(log, "in")
        async with App(case.old, config, log=log) as app:
            await app.wait_until_caught_up()
        for topic in ("in", "also"):
            await write(log, topic)
        if case.seen == "refused":
            with pytest.raises(KsActorsError):
                async with App(case.new, config, log=log) as app:
                    await app.wait_until_caught_up()
            return
        async with App(case.new, config, log=log) as app:
            await app.wait_until_caught_up()
            if case.seen.startswith("topic "):
                topic = case.seen.removeprefix("topic ")
                assert topic in await log.describe_topics()
                assert topic not in {each.topic for task in app.tasks() for each in task.partitions}
            else:
                store, _, count = case.seen.partition("=")
                assert await app.store(store).get("k") == int(count)
        ends = await log.end_offsets([TopicPartition("out", 0)], IsolationLevel.READ_COMMITTED)
        assert ends[TopicPartition("out", 0)] >= 1


def test_what_stays_as_it_is_is_harmless() -> None:
    """A topology in the place of itself changes nothing."""
    changes = compare(counting(before=other("also")), counting(before=other("also")))
    assert {each.effect for each in changes} == {Effect.KEPT}
    assert all(each.harmless for each in changes)
    assert [each.kind for each in changes] == ["store", "store", "source", "source", "sink"]
