"""Topics as DataFrames."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In
from pyspark.sql.types import StructType

from ks_actors import Batch
from ks_actors._errors import ConfigError
from ks_actors.batch._reading import Bounds, LogRange, plan_ranges
from ks_actors.batch.source._data_source import KsActorsSource, TopicReader
from ks_actors.batch.source._source_options import read_options
from ks_actors.log import GroupMetadata, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog

TOPICS = {"events": 3}


def records(partition: int, count: int = 10) -> Batch:
    return Batch(
        [f"k{number % 4}".encode() for number in range(count)],
        [None if number == 9 else f"{partition}-{number}".encode() for number in range(count)],
        [1_000 * number for number in range(count)],
        [(("n", str(number).encode()), ("none", None)) if number == 3 else () for number in range(count)],
    )


@pytest.fixture
def url(filled: Callable[..., str]) -> str:
    return filled(TOPICS, {("events", partition): records(partition) for partition in range(3)})


def frame(spark: Any, url: str, **options: Any) -> Any:
    return spark.read.format("ks_actors").options(log=url, topic="events", **options).load()


def test_a_topic_is_read_with_all_columns_in_order_a_task_per_partition(spark: Any, url: str) -> None:
    """Every record with its place, time, bytes and headers, as it was written."""
    found = frame(spark, url)
    assert found.rdd.getNumPartitions() == 3
    rows = found.collect()
    assert [(row.partition, row.offset) for row in rows] == [(partition, offset) for partition in range(3) for offset in range(10)]
    row = rows[13]
    assert (row.topic, row.key, row.value) == ("events", b"k3", b"1-3")
    assert [(each.key, each.value) for each in row.headers] == [("n", b"3"), ("none", None)]
    assert (row.timestamp.second, rows[19].value, rows[12].headers) == (3, None, [])


def test_ranges_are_exact_by_offset_and_by_time(spark: Any, url: str) -> None:
    """Offsets name the records; times begin at the first record at or after them, and end before it; large ranges are split."""
    by_offset = frame(spark, url, starting_offsets=json.dumps({"events": {"0": 4}}), ending_offsets=json.dumps({"events": {"0": 6, "1": 0, "2": 1}}))
    assert [(row.partition, row.offset) for row in by_offset.collect()] == [(0, 4), (0, 5), (2, 0)]
    by_time = frame(spark, url, starting_timestamp_ms=7_500, ending_timestamp_ms=9_000, max_records_per_task=1)
    assert [(row.partition, row.offset) for row in by_time.collect()] == [(0, 8), (1, 8), (2, 8)]
    split = frame(spark, url, max_records_per_task=4)
    assert split.rdd.getNumPartitions() == 9
    assert split.count() == 30


def test_columns_and_serdes_are_chosen(spark: Any, url: str) -> None:
    """Only the wanted columns are made, decoded by the named serdes."""
    found = frame(spark, url, columns="key,offset", key_serde="ks_actors.serdes.STRING")
    assert found.columns == ["key", "offset"]
    assert found.dtypes == [("key", "string"), ("offset", "bigint")]
    assert [tuple(row) for row in found.limit(3).collect()] == [("k0", 0), ("k1", 1), ("k2", 2)]


def test_filters_are_pushed_down(spark: Any, url: str) -> None:
    """Partitions that are not asked for are not read; keys and offsets are left out where they are read."""
    pruned = frame(spark, url).where("partition = 1 and offset >= 8")
    assert pruned.rdd.getNumPartitions() == 1
    assert [(row.partition, row.offset) for row in pruned.collect()] == [(1, 8), (1, 9)]
    by_key = frame(spark, url).where("key = X'6b33' and partition in (0, 2)")
    assert by_key.rdd.getNumPartitions() == 2
    assert [(row.partition, row.value) for row in by_key.collect()] == [(0, b"0-3"), (0, b"0-7"), (2, b"2-3"), (2, b"2-7")]
    decoded = frame(spark, url, key_serde="ks_actors.serdes.STRING").where("key in ('k1', 'k2') and offset < 3 and value is not null")
    assert [(row.partition, row.key) for row in decoded.collect()] == [(partition, key) for partition in range(3) for key in ("k1", "k2")]


def test_a_time_begins_where_the_first_record_is_as_late(spark: Any, url: str) -> None:
    """Earlier records are not read; Spark checks each of the later ones."""
    found = frame(spark, url, max_records_per_task=1).where("timestamp > timestamp'1970-01-01 00:00:07.5Z'")
    assert found.rdd.getNumPartitions() == 6
    assert [(row.partition, row.offset) for row in found.collect()] == [(partition, offset) for partition in range(3) for offset in (8, 9)]


def test_topics_and_times_narrow_the_records_read(filled: Callable[..., str]) -> None:
    """For a table of the latest, times do not: the latest of all may be older. Keys that a serde may write differently are Spark's to compare."""
    topics = ("events", "others")
    url = filled(dict.fromkeys(topics, 1), {(topic, 0): records(0) for topic in topics})
    late = GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC))
    schema = StructType().add("key", "binary")

    def read(*filters: Filter, **options: str) -> tuple[list[Filter], list[tuple[str, int, int]]]:
        reader = KsActorsSource({"log": url, "topic": "events,others", **options}).reader(schema)
        left = list(reader.pushFilters(list(filters)))
        return left, [(piece.what.topic, piece.what.start, piece.what.end) for piece in reader.partitions()]  # type: ignore[attr-defined]

    assert read(EqualTo(("topic",), "others"), late) == ([late], [("others", 7, 10)])
    assert read(In(("topic",), ("others", None)), late, latest="true") == ([late], [("others", 0, 10)])
    assert read(late, starting_timestamp_ms="8000") == ([late], [("events", 8, 10), ("others", 8, 10)])
    odd: list[Filter] = [EqualTo(("key",), value) for value in ([1], {"a": 1}, math.nan, datetime(1970, 1, 1, tzinfo=UTC))]
    assert read(*odd)[0] == odd
    assert read(EqualTo(("key",), bytearray(b"k3")), In(("partition",), (1, 2))) == ([], [])


async def test_a_range_by_time_begins_at_the_end_where_nothing_is_as_late() -> None:
    """The same holds where the first record at or after that time is not committed yet."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1)])
        producer = await log.transactional_producer("other", client_id="other", timeout_ms=60_000)
        await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"a", b"b"], [b"1", b"2"], [3, 7]))])
        assert await plan_ranges(log, ["in"], Bounds(from_ms=5)) == [LogRange("in", 0, 0, 0)]
        await producer.commit({}, GroupMetadata("", -1, ""))
        assert [one.start for one in await plan_ranges(log, ["in"], Bounds(from_ms=5))] == [1]
        assert [one.start == one.end for one in await plan_ranges(log, ["in"], Bounds(from_ms=8))] == [True]
        await producer.close()


def test_the_latest_of_each_key_is_a_table(spark: Any, url: str) -> None:
    """Of each key the last record; keys that were deleted are not there."""
    found = frame(spark, url, latest="true").where("partition = 0").collect()
    assert [(row.key, row.value, row.offset) for row in found] == [(b"k2", b"0-6", 6), (b"k3", b"0-7", 7), (b"k0", b"0-8", 8)]


def test_a_store_is_read_from_its_changelog(spark: Any, filled: Callable[..., str]) -> None:
    """By the app's name and the store's, the latest of each key."""
    url = filled(
        {"app-counts-changelog": 1},
        {("app-counts-changelog", 0): Batch([b"a", b"b", b"a"], [bytes(7) + b"\1", bytes(8), bytes(7) + b"\2"], [1, 2, 3])},
    )
    options = {"key_serde": "ks_actors.serdes.STRING", "value_serde": "ks_actors.serdes.LONG", "columns": "key,value"}
    found = spark.read.format("ks_actors").options(log=url, store="counts", application_id="app", **options).load()
    assert [tuple(row) for row in found.collect()] == [("b", 0), ("a", 2)]


def test_a_versioned_store_has_the_version_of_the_latest_time(filled: Callable[..., str]) -> None:
    """The snapshot written last; without a kind of store it is that one."""
    batch = Batch([b"a", b"a", b"b", b"b", b"c", b"c"], [b"new", b"old", b"new", None, None, b"old"], [200, 100, 200, 100, 200, 100])
    url = filled({"app-rates-changelog": 1}, {("app-rates-changelog", 0): batch})
    options = {"log": url, "store": "rates", "application_id": "app"}
    schema = StructType().add("key", "binary").add("value", "binary")

    def rows(options: dict[str, str]) -> list[dict[str, bytes]]:
        reader = KsActorsSource(options).reader(schema)
        return [row for piece in reader.partitions() for found in reader.read(piece) for row in found.to_pylist()]

    assert rows({**options, "store_kind": "versioned"}) == [{"key": b"a", "value": b"new"}, {"key": b"b", "value": b"new"}]
    assert rows(options) == [{"key": b"a", "value": b"old"}, {"key": b"c", "value": b"old"}]


def test_a_stream_reads_new_records(spark: Any, url: str, tmp_path: Path) -> None:
    """Every record once, with exact offsets."""
    stream = spark.readStream.format("ks_actors").options(log=url, topic="events", columns="partition,offset").load()
    query = (
        stream.writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert {tuple(row) for row in spark.table("seen").collect()} == {(partition, offset) for partition in range(3) for offset in range(10)}
    assert spark.table("seen").count() == 30


def test_a_stream_goes_on_when_its_beginning_is_gone(url: str, tmp_path: Path) -> None:
    """Offsets after it are not asked for any more."""
    options = {"log": url, "topic": "events", "starting_offsets": json.dumps({"events": {"0": 2}})}
    stream = KsActorsSource(options).streamReader(StructType().add("key", "binary"))
    begin = stream.initialOffset()
    assert begin == {"events": {"0": 2, "1": 0, "2": 0}}

    async def cut() -> None:
        async with EmbeddedLog(tmp_path / "log") as log:
            await log.delete_records({TopicPartition("events", 0): 5})

    asyncio.run(cut())
    assert stream.latestOffset(begin, None) == {"events": {"0": 10, "1": 10, "2": 10}}


@pytest.mark.parametrize("name", ["starting_offsets", "ending_offsets"])
@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ({"events": {"7": 0}}, "events has no partition 7; it has 3, counted from 0"),
        ({"event": {"0": 1}}, "this source reads no topic 'event'; it reads events"),
    ],
)
def test_offsets_of_what_is_not_read_are_refused(url: str, name: str, offsets: dict[str, dict[str, int]], said: str) -> None:
    """A topic or partition that is misspelt would be read as a whole, by a batch and by a stream."""
    source = KsActorsSource({"log": url, "topic": "events", name: json.dumps(offsets)})
    schema = StructType().add("key", "binary")
    batch = source.reader(schema)
    assert isinstance(batch, TopicReader)
    for read in (batch.partitions, source.streamReader(schema).initialOffset):
        with pytest.raises(ConfigError, match=f"{name}: {said}"):
            read()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "t"}, "log: is required"),
        ({"log": "embedded:///x", "topic": "t", "store": "s", "application_id": "a"}, "give exactly one of them"),
        ({"log": "embedded:///x", "store": "s"}, "application_id: is required"),
        ({"log": "embedded:///x", "topic": "t", "column": "key"}, "column: is not an option"),
        ({"log": "embedded:///x", "topic": "t", "columns": "key,size"}, "'size' does not exist"),
        ({"log": "embedded:///x", "topic": "t", "starting_timestamp_ms": "soon"}, "is not a whole number"),
        ({"log": "embedded:///x", "topic": "t", "starting_offsets": "7"}, "expected a value"),
        ({"log": "embedded:///x", "topic": "t", "value_serde": "ks_actors.serdes.UUID"}, "value_type: is required"),
        ({"log": "embedded:///x", "topic": "t", "value_serde": "ks_actors.serdes.LONGER"}, "is not a serde that can be imported"),
        ({"log": "embedded:///x", "topic": "t", "value_serde": "ks_actors.serdes.__name__"}, "is not a serde, but"),
    ],
)
def test_options_that_are_wrong_are_told(options: dict[str, str], said: str) -> None:
    """Before anything is read, and all at once."""
    with pytest.raises(ConfigError, match=said):
        read_options(options)
