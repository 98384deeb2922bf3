"""Functions of Spark in the middle of a topology."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from ks_actors import BatchError, JobCancelled, JobFailed, ProcessingFailed, Record, StreamsConfig, log_and_continue, serdes
from ks_actors.batch import SparkBridge, backfill
from ks_actors.batch.spark._session import SparkSession
from ks_actors.batch.spark._spark_bridge import _Life
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology
from tests.ks_actors.batch.conftest import SETTINGS
from tests.ks_actors.batch.histories import fill
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, Load, feed_all, in_virtual_time
from tests.waiting import soon

RECORDS = [TestRecord(f"k{index % 3}", f"{index}", index * 1_000) for index in range(30)]


def shouted(_: Any, rows: Any) -> Any:
    """Do something that needs no task."""
    return rows.select("key", f.concat("value", f.lit("!")).alias("value"), "timestamp")


def by_spark(function: Any, records: list[Record[Any, Any]], **types: str) -> list[Record[Any, Any]]:
    async def main() -> list[Record[Any, Any]]:
        async with SparkBridge(SETTINGS) as bridge:
            return await bridge.function(function, **types)(records)

    return asyncio.run(main())


def run_through(function: Any, records: list[TestRecord[Any, Any]] = RECORDS, **config: Any) -> list[TestRecord[Any, Any]]:
    async def test(harness: AppHarness) -> list[TestRecord[Any, Any]]:
        await feed_all(harness, "in", records)
        return await harness.read("out")

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).batch(SparkBridge(SETTINGS).function(function), max_records=20).to("out", STRINGS_OUT)
    return run_app(test, builder.build(), topics={"in": 1, "out": 1}, **config)


def test_rows_of_spark_go_on_in_the_stream(session: SparkSession) -> None:
    """In order, with the keys and times that they come back with: the app has Spark started, and asks it."""
    assert session.is_open
    out = run_through(shouted)
    assert [(row.key, row.value, row.timestamp) for row in out] == [(each.key, f"{each.value}!", each.timestamp) for each in RECORDS]


def test_rows_without_a_time_have_the_latest_of_their_batch(session: SparkSession) -> None:
    """Rows without headers get none, and as many rows come back as the query gives."""
    assert session.is_open
    records = [Record(f"k{index % 2}", index, index * 10, (("h", b"1"),)) for index in range(10)]
    rows = by_spark(lambda _, rows: rows.groupBy("key").agg(f.sum("value").alias("value")).orderBy("key"), records)
    assert rows == [Record("k0", 20, 90), Record("k1", 25, 90)]


def test_headers_and_times_come_back(session: SparkSession) -> None:
    """As they went; a time may be a number of ms, or null: then it is the latest."""
    assert session.is_open
    records: list[Record[Any, Any]] = [Record(b"k", 1.5, 7, (("h", b"1"), ("h", None))), Record(None, None, 5)]
    assert by_spark(lambda _, rows: rows, records) == records
    assert by_spark(lambda _, rows: rows.toArrow(), records) == records
    times = "case when value is null then null else cast(40 as bigint) end as timestamp"
    assert [row.timestamp for row in by_spark(lambda _, rows: rows.selectExpr("key", "value", times), records)] == [40, 7]


class Flight(msgspec.Struct):
    carrier: str
    delay: int | None


@dataclasses.dataclass
class Late:
    carrier: str
    at: dt.datetime


def test_structs_are_rows_in_rows(session: SparkSession) -> None:
    """Those of msgspec, dataclasses and dicts; they come back as dicts."""
    assert session.is_open
    flights = [Record(1, Flight("UA", 5), 0), Record(2, Flight("AA", None), 1)]
    rows = by_spark(lambda _, rows: rows.where("value.delay is null"), flights, key_type="bigint", value_type="struct<carrier: string, delay: int>")
    assert rows == [Record(2, {"carrier": "AA", "delay": None}, 1)]
    at = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    assert by_spark(lambda _, rows: rows.selectExpr("key", "value.carrier as value"), [Record(1, Late("B6", at), 3)]) == [Record(1, "B6", 3)]


def python_in_a_task(batches: Any) -> Any:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"key": batch["key"], "value": [f"<{value}>" for value in batch["value"].to_pylist()]})


def test_python_runs_in_tasks_of_spark(session: SparkSession) -> None:
    """By mapInArrow, as in any job."""
    assert session.is_open
    records = [Record("k", str(index), index) for index in range(4)]
    rows = by_spark(lambda _, rows: rows.repartition(2).mapInArrow(python_in_a_task, "key string, value string"), records)
    assert sorted(row.value for row in rows) == ["<0>", "<1>", "<2>", "<3>"]


@pytest.mark.parametrize(
    ("function", "records", "types", "said"),
    [
        (lambda _, rows: rows.drop("key"), [Record(1, 1, 1)], {}, "have the columns value, timestamp, headers: return key and value"),
        (lambda _, rows: rows.withColumn("more", f.lit(1)), [Record(1, 1, 1)], {}, "and nothing else; put several columns into one by struct"),
        (lambda _, rows: rows.count(), [Record(1, 1, 1)], {}, "returned 1: return a DataFrame, or an Arrow table"),
        (lambda _, rows: rows.withColumn("timestamp", f.lit("x")), [Record(1, 1, 1)], {}, "are of type (large_)?string: return timestamps"),
        (lambda _, rows: rows, [Record(1, "a", 1), Record(1, 2, 1)], {}, "these records cannot be a column of their own type.* as value_type"),
        (lambda _, rows: rows, [Record("x", 1, 1)], {"key_type": "int"}, "the keys of these records cannot be of type int32"),
        (lambda spark, _: spark.table("nowhere"), [Record(1, 1, 1)], {}, "TABLE_OR_VIEW_NOT_FOUND"),
    ],
)
def test_impossible_requests_are_errors(
    session: SparkSession, function: Any, records: list[Record[Any, Any]], types: dict[str, str], said: str
) -> None:
    """With the remedy."""
    assert session.is_open
    with pytest.raises(BatchError, match=said):
        by_spark(function, records, **types)


def test_a_failure_in_spark_is_one_of_the_records(session: SparkSession) -> None:
    """The handler decides about them; without one the app ends, with the cause."""
    assert session.is_open

    def fails(_: Any, rows: Any) -> Any:
        return rows.selectExpr("key", "cast(raise_error('bad row') as string) as value")

    assert run_through(fails, processing_exception_handler=log_and_continue) == []
    with pytest.raises(ProcessingFailed, match=r"job fails-.* failed: .*bad row") as failed:
        run_through(fails)
    assert (failed.value.offset, type(failed.value.__cause__)) == (0, JobFailed)


def counted(bridge: SparkBridge) -> Topology:
    builder = StreamsBuilder()
    asked = builder.stream("in", STRINGS).batch(bridge.function(lambda _, rows: rows.repartition(2, "value")), max_records=25, max_wait_ms=100)
    counts = asked.group_by_key(Grouped(serdes.STRING, serdes.STRING)).count(Materialized("counts", serdes.STRING, serdes.LONG))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


@pytest.mark.parametrize("seed", range(2))
@in_virtual_time
async def test_crashes_between_lose_and_double_nothing(session: SparkSession, seed: int) -> None:
    """Exactly once: the job that Spark was running when the app crashed is given to it again."""
    assert session.is_open

    topology = counted(SparkBridge(SETTINGS))
    async with AppHarness(topology, seed=seed, topics={"in": 2, "out": 1}, commit_interval_ms=200, processing_guarantee=EOS) as harness:
        load = Load(harness, harness.kit.random)
        for _ in range(2):
            await load.send(60)
            await asyncio.sleep(harness.kit.random.random())
            await harness.crash()
            await harness.restart()
        await load.check(EOS)


def test_it_is_the_same_over_history(session: SparkSession, tmp_path: Path) -> None:
    """A backfill in this process asks Spark, too; on Spark it cannot, and says so."""
    assert session.is_open
    builder = StreamsBuilder()
    builder.stream("in", Consumed(serdes.STRING, serdes.STRING)).batch(SparkBridge(SETTINGS).function(shouted)).to("out", STRINGS_OUT)
    topology = builder.build()

    async def main() -> list[bytes | None]:
        async with EmbeddedLog(tmp_path / "log") as log:
            await log.create_topics([NewTopic("in", 2), NewTopic("out", 2)])
            await fill(log, {"in": 2}, [("in", b"k", b"%d" % index, index) for index in range(50)])
            config = StreamsConfig(application_id="history")
            with await backfill(topology, config, log=log) as done:
                values = [value for where in done.partitions for batch in done.read(where) for value in batch.values]
            with pytest.raises(BatchError, match="with engine='local'"):
                await backfill(topology, config, log=log, engine="spark", spark=SETTINGS)
            return values

    assert sorted(value or b"" for value in asyncio.run(main())) == sorted(b"%d!" % index for index in range(50))


def test_a_bridge_is_open_as_long_as_somebody_uses_it(session: SparkSession) -> None:
    """The last one to leave closes it, and running jobs are cancelled. Between, nothing can be asked; later, it can be opened again."""
    assert session.is_open
    bridge = SparkBridge(SETTINGS)

    async def main() -> None:
        with pytest.raises(BatchError, match="this SparkBridge is not open"):
            await bridge.run(lambda _: 1)
        async with bridge as first:
            async with bridge as second:
                assert first is second is bridge
                ref = bridge.ref
            assert bridge.ref is ref
            assert await bridge.run(lambda spark: spark.range(3).count()) == 3
            job = asyncio.ensure_future(bridge.run(lambda spark: spark.sql("select count(*) from range(10000000000000)").collect(), name="long"))
            await asyncio.sleep(0)
        with pytest.raises(JobCancelled):
            await job
        with pytest.raises(BatchError, match="not open"):
            _ = bridge.ref

    asyncio.run(main())
    asyncio.run(main())


async def test_a_cancelled_call_cancels_its_job(session: SparkSession) -> None:
    """The bridge has room for others then."""
    assert session.is_open
    async with SparkBridge(SETTINGS) as bridge:
        long = [asyncio.ensure_future(bridge.run(lambda spark: spark.sql("select count(*) from range(10000000000000)").collect())) for _ in range(2)]
        after = asyncio.ensure_future(bridge.run(lambda _: "done"))
        await asyncio.sleep(0)
        for each in long:
            each.cancel()
        assert await soon(after) == "done"
        assert all(isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*long, return_exceptions=True))


def test_other_loops_share_the_open_bridge_of_one(session: SparkSession) -> None:
    """They enter it through the loop in which it is open, so it stays open, and its functions can be called from any loop."""
    assert session.is_open
    bridge = SparkBridge(SETTINGS)

    async def inside() -> Any:
        async with bridge:
            return await bridge.function(shouted)([Record("k", "v", 1)])

    async def main() -> Any:
        async with bridge:
            ref = bridge.ref
            found = await asyncio.to_thread(lambda: asyncio.run(inside()))
            assert bridge.ref is ref
            return found

    assert asyncio.run(main()) == [Record("k", "v!", 1)]
    with pytest.raises(BatchError, match="not open"):
        _ = bridge.ref


def test_a_bridge_whose_loop_has_stopped_is_refused() -> None:
    """Nobody would ever answer."""
    bridge = SparkBridge(SETTINGS)
    bridge._life = _Life(asyncio.new_event_loop())
    with pytest.raises(BatchError, match="open in an event loop that has stopped"):
        asyncio.run(bridge.__aenter__())
    bridge._life.loop.close()
