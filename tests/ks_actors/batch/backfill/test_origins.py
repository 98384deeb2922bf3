"""A backfill names no place in the log for a record that the log does not have: those behind repartition topics."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ks_actors import App, ErrorContext, FailedRecord, StreamsConfig, Topology, serdes
from ks_actors.batch import backfill
from ks_actors.config._exception_handlers import log_and_continue
from ks_actors.dsl import BufferConfig, Consumed, Grouped, Materialized, Produced, StreamsBuilder, Suppressed
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors.tables._suppressed_serde import BufferedChangeSerde
from tests.ks_actors.batch.histories import Input, batches_of, fill, read_committed, rows_of, stores_in

TEXT = Consumed(serdes.STRING, serdes.STRING)
TOPICS = {"in": 1, "out": 1, "letters": 1}
LETTERS = TopicPartition("letters", 0)


def fragile(count: int | None) -> str:
    if count == 2:
        raise ValueError("two")
    return str(count)


def held_counts(*, repartition: bool) -> Topology:
    """Count by key, or by value behind a repartition topic, hold the counts back for 100 ms, and fail at a count of two."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    grouped = stream.group_by(lambda _, value: value, Grouped(serdes.STRING, serdes.STRING)) if repartition else stream.group_by_key()
    counts = grouped.count(Materialized("counts", serdes.STRING, serdes.LONG))
    held = counts.suppress(Suppressed.until_time_limit(100, BufferConfig.unbounded()))
    held.to_stream().map_values(fragile).to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def failing(*, repartition: bool) -> Topology:
    """Fail at a bad value, in front of a repartition topic or behind one."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    (stream.repartition() if repartition else stream).map_values(lambda value: value[10]).to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def config_of(place: Path, contexts: list[ErrorContext] | None = None) -> StreamsConfig:
    def handle(context: ErrorContext, record: FailedRecord | None, error: Exception) -> Any:
        if contexts is not None:
            contexts.append(context)
        return log_and_continue(context, record, error)

    return StreamsConfig(
        application_id="app",
        snapshot_uri=str(place / "snapshots"),
        state_dir=place / "state",
        processing_exception_handler=handle,
        errors_dead_letter_queue_topic_name="letters",
    )


def headers_of(row: tuple[Any, ...]) -> dict[str, bytes]:
    return {name.removeprefix("__streams.errors."): value for name, value in row[3]}


def test_held_rows_from_behind_a_repartition_topic_have_an_unknown_origin(tmp_path: Path) -> None:
    """In the snapshot, and in the error of an app that goes on from it; held rows of a topic that is in the log have their place there."""
    records: list[Input] = [("in", b"a", b"x", 1), ("in", b"b", b"y", 2), ("in", b"a", b"x", 3)]

    async def main(*, repartition: bool) -> tuple[list[Any], ErrorContext, dict[str, bytes]]:
        contexts: list[ErrorContext] = []
        place = tmp_path / str(repartition)
        topology, config = held_counts(repartition=repartition), config_of(place, contexts)
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic(name, count) for name, count in TOPICS.items()])
            await fill(log, TOPICS, records)
            with await backfill(topology, config, log=log, snapshot_uri=config.snapshot_uri) as done:
                assert done.snapshot is not None
                stores = stores_in(topology, done.snapshot, place / "snapshots")
            held = BufferedChangeSerde(serdes.LONG).deserializer("held")
            origins = [held(row).origin for (store, _), rows in stores.items() if store != "counts" for row in rows.values()]
            app = App(topology, config, log=log)
            await app.seed(config.snapshot_uri or "")
            async with app:
                producer = await log.producer(client_id="test")
                await producer.send(batches_of(TOPICS, [("in", b"z", b"z", 500)]))
                await app.wait_until_caught_up()
                await producer.close()
            (letter,) = rows_of(await read_committed(log, LETTERS))
            (context,) = contexts
            return origins, context, headers_of(letter)

    origins, context, headers = asyncio.run(main(repartition=True))
    assert origins == [None, None]
    assert (context.topic, context.partition, context.offset, context.source_raw_key) == (None, -1, -1, None)
    assert headers["offset"] == b"-1"
    origins, context, headers = asyncio.run(main(repartition=False))
    assert sorted(origins) == [("in", 0, 1), ("in", 0, 2)]
    assert (context.topic, context.partition, context.offset) == ("in", 0, 2)
    assert headers["offset"] == b"2"


def test_errors_behind_a_repartition_topic_name_no_offset(tmp_path: Path) -> None:
    """Topic and partition are told, and the record as it was, but no offset, as the log has no such record; of others it is told."""

    async def main(*, repartition: bool) -> tuple[Any, ...]:
        contexts: list[ErrorContext] = []
        topology, config = failing(repartition=repartition), config_of(tmp_path / str(repartition), contexts)
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic(name, count) for name, count in TOPICS.items()])
            await fill(log, TOPICS, [("in", b"a", b"long enough for it", 1), ("in", b"a", b"short", 2)])
            with await backfill(topology, config, log=log) as done:
                (letter,) = rows_of(done.read(LETTERS))
        (context,) = contexts
        return context.topic, context.partition, context.offset, context.source_raw_value, letter[1], headers_of(letter)["offset"]

    topic, *rest = asyncio.run(main(repartition=True))
    assert topic.startswith("app-")
    assert topic.endswith("-repartition")
    assert rest == [0, -1, b"short", b"short", b"-1"]
    assert asyncio.run(main(repartition=False)) == ("in", 0, 1, b"short", b"short", b"1")
