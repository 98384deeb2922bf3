"""Streaming queries of Spark's, which the bridge runs and sees to."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from actors import Actor, Ref, Restart, Spec, System
from ks_actors import App, Batch, BatchError, JobCancelled, JobFailed, JobTimeout, StreamsBuilder, StreamsConfig
from ks_actors.batch import QueryEnded, QueryEvent, QueryFailed, QueryProgress, QueryStarted, SparkBridge, register
from ks_actors.batch.spark._session import SparkSession
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.batch.conftest import SETTINGS
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT
from tests.waiting import PATIENCE_S


class Ear(Actor[Any]):
    """A listener that keeps its calls."""

    def __init__(self, heard: asyncio.Queue[QueryEvent]) -> None:
        self._heard = heard

    def receive(self, message: QueryEvent) -> None:
        self._heard.put_nowait(message)


class Heard:
    """The calls to a listener."""

    def __init__(self, ref: Ref[Any], queue: asyncio.Queue[QueryEvent]) -> None:
        self.ref: Ref[Any] = ref
        self.all: list[QueryEvent] = []
        self._queue = queue

    async def until(self, kind: type[Any]) -> Any:
        """Wait for an event.

        Leave out runs whose Python process Spark gave up: it waits for ten seconds, a time that no setting changes and a slow machine needs.
        """
        async with asyncio.timeout(PATIENCE_S):
            while True:
                event = await self._queue.get()
                if isinstance(event, QueryFailed) and "failed to connect back" in str(event.error):
                    while self.all and not isinstance(self.all.pop(), QueryStarted):
                        pass
                    continue
                self.all.append(event)
                if isinstance(event, kind):
                    return event

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.all if not isinstance(event, QueryProgress)]


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Heard]:
    async with System("test") as system:
        queue: asyncio.Queue[QueryEvent] = asyncio.Queue()
        yield Heard(await system.spawn(Spec(lambda: Ear(queue)), "ear"), queue)


def rates(into: Path) -> Any:
    """Return a function that makes an endless query."""

    def query(spark: Any) -> Any:
        return spark.readStream.format("rate").load().writeStream.format("parquet").option("path", str(into))

    return query


async def write(log: EmbeddedLog, *values: bytes) -> None:
    producer = await log.producer(client_id="test")
    await producer.send([Outgoing(TopicPartition("in", 0), Batch([None] * len(values), list(values), list(range(len(values)))))])
    await producer.close()


async def test_progress_and_end_arrive_as_messages(session: SparkSession, tmp_path: Path) -> None:
    """It has started, is so far, and has ended: by itself when there is nothing more to read."""
    register(session.spark)
    async with EmbeddedLog(tmp_path / "log") as log:
        await log.create_topics([NewTopic("in", 1)])
        await write(log, b"a", b"b", b"c")

    def query(spark: Any) -> Any:
        rows = spark.readStream.format("ks_actors").options(log=f"embedded://{tmp_path / 'log'}", topic="in").load()
        return rows.writeStream.format("parquet").option("path", str(tmp_path / "out")).trigger(availableNow=True)

    async with SparkBridge(SETTINGS) as bridge, listening() as heard:
        await bridge.start_query("copy", query, str(tmp_path / "checkpoint"), listener=heard.ref)
        assert await heard.until(QueryEnded) == QueryEnded("copy", None)
        assert heard.names() == ["QueryStarted", "QueryEnded"]
        told = [event for event in heard.all if isinstance(event, QueryProgress)]
        assert (told[-1].query, sum(event.rows for event in told)) == ("copy", 3)
        assert told[-1].details["runId"] == heard.all[0].run  # type: ignore[union-attr]  # it has just been looked at
        assert not await bridge.stop_query("copy")
        assert await bridge.run(lambda spark: spark.read.parquet(str(tmp_path / "out")).count()) == 3
        # Once more: it goes on from its checkpoint, where there is nothing new.
        await bridge.start_query("copy", query, str(tmp_path / "checkpoint"), listener=heard.ref)
        await heard.until(QueryEnded)
        assert await bridge.run(lambda spark: spark.read.parquet(str(tmp_path / "out")).count()) == 3


async def test_a_run_that_fails_is_followed_by_another_from_the_checkpoint(session: SparkSession, tmp_path: Path) -> None:
    """The listener gets the error; nothing is lost, and nothing there twice."""
    assert session.is_open
    (tmp_path / "in").mkdir()
    broken = tmp_path / "broken"

    def fragile(batches: Any) -> Any:
        for batch in batches:
            if broken.exists() and "3" in batch["value"].to_pylist():
                raise ValueError("3 is bad")
            yield batch

    def query(spark: Any) -> Any:
        rows = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(tmp_path / "in"))
        return rows.mapInArrow(fragile, "value string").writeStream.format("parquet").option("path", str(tmp_path / "out"))

    def put(number: int) -> None:
        (tmp_path / f"{number}.txt").write_text(f"{number}\n")
        (tmp_path / f"{number}.txt").rename(tmp_path / "in" / f"{number}.txt")

    put(1)
    broken.touch()
    async with SparkBridge(SETTINGS) as bridge, listening() as heard:
        restart = Restart(limit=5, within=600, backoff=(0.1, 0.1), jitter=0)
        await bridge.start_query("fragile", query, str(tmp_path / "checkpoint"), listener=heard.ref, restart=restart)
        await heard.until(QueryProgress)
        put(2)
        put(3)
        failed = await heard.until(QueryFailed)
        broken.unlink()
        assert (failed.query, type(failed.error)) == ("fragile", JobFailed)
        assert str(failed.error).startswith("query fragile failed: ValueError: 3 is bad")
        again = await heard.until(QueryStarted)
        assert (again.query, again.restarts) == ("fragile", failed.restarts + 1)
        put(4)
        rows: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(rows) < 4:
                await heard.until(QueryProgress)
                found = await bridge.run(lambda spark: spark.read.parquet(str(tmp_path / "out")).collect())
                rows = sorted(row.value for row in found)
        assert rows == ["1", "2", "3", "4"]
        assert await bridge.stop_query("fragile")
        assert await heard.until(QueryEnded) == QueryEnded("fragile", None)
        assert not await bridge.run(lambda spark: [query.name for query in spark.streams.active])


async def test_one_that_fails_too_often_ends(session: SparkSession, tmp_path: Path) -> None:
    """With its last error; its name is free again."""
    assert session.is_open

    def query(spark: Any) -> Any:
        rows = spark.readStream.format("rate").load().selectExpr("cast(raise_error('no way') as string) as value")
        return rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))

    async with SparkBridge(SETTINGS) as bridge, listening() as heard:
        restart = Restart(limit=1, within=600, backoff=(0.1, 0.1), jitter=0)
        for number in range(2):
            await bridge.start_query("doomed", query, str(tmp_path / f"checkpoint-{number}"), listener=heard.ref, restart=restart)
            ended = await heard.until(QueryEnded)
            assert ended.query == "doomed"
            assert isinstance(ended.error, JobFailed)
            assert "no way" in str(ended.error)
        assert heard.names() == ["QueryStarted", "QueryFailed", "QueryStarted", "QueryFailed", "QueryEnded"] * 2


async def test_one_that_waits_for_its_next_run_is_stopped_at_once(session: SparkSession, tmp_path: Path) -> None:
    """It has ended then, without an error; and one that is stopped before it ran never runs."""
    assert session.is_open

    def query(spark: Any) -> Any:
        rows = spark.readStream.format("rate").load().selectExpr("cast(raise_error('no way') as string) as value")
        return rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))

    async with SparkBridge(SETTINGS) as bridge, listening() as heard:
        restart = Restart(limit=1, within=600, backoff=(3_600, 3_600))
        await bridge.start_query("waits", query, str(tmp_path / "checkpoint"), listener=heard.ref, restart=restart)
        await heard.until(QueryFailed)
        assert await bridge.stop_query("waits")
        assert await heard.until(QueryEnded) == QueryEnded("waits", None)
        started = asyncio.ensure_future(bridge.start_query("never", rates(tmp_path / "never"), str(tmp_path / "other"), listener=heard.ref))
        await asyncio.sleep(0)
        assert await bridge.stop_query("never")
        with pytest.raises(JobCancelled, match="query never was stopped before it ran"):
            await started
    assert heard.names() == ["QueryStarted", "QueryFailed", "QueryEnded"]
    assert session.spark.streams.active == []


async def test_an_impossible_request_is_not_tried_again(session: SparkSession, tmp_path: Path) -> None:
    """The caller gets an error; there are no listeners for a query that never ran."""
    assert session.is_open
    place = str(tmp_path)
    async with SparkBridge(SETTINGS) as bridge, listening() as heard:
        with pytest.raises(JobFailed, match=r"query wrong failed: .*DATA_SOURCE_NOT_FOUND"):
            await bridge.start_query("wrong", lambda spark: spark.readStream.format("nowhere").load().writeStream, place, listener=heard.ref)
        with pytest.raises(BatchError, match=r"return the DataStreamWriter of DataFrame.writeStream, and do not start it"):
            await bridge.start_query("wrong", lambda spark: spark.readStream.format("rate").load(), place, listener=heard.ref)
        await bridge.start_query("right", rates(tmp_path / "out"), str(tmp_path / "checkpoint"), listener=heard.ref)
        with pytest.raises(BatchError, match="query right already runs"):
            await bridge.start_query("right", rates(tmp_path / "out"), str(tmp_path / "checkpoint"))
        assert not await bridge.stop_query("wrong")
        assert (await heard.until(QueryStarted)).query == "right"
    assert heard.names() == ["QueryStarted"]


async def test_names_that_are_nearly_the_same_are_two(session: SparkSession, tmp_path: Path) -> None:
    """With any characters in their names: each runs, and is stopped by itself."""
    assert session.is_open
    names = ["a-b", "a/b", "a%2Fb"]
    async with SparkBridge(SETTINGS) as bridge:
        for number, name in enumerate(names):
            await bridge.start_query(name, rates(tmp_path / f"out-{number}"), str(tmp_path / f"checkpoint-{number}"))
        for name in names:
            assert await bridge.stop_query(name)
    assert session.spark.streams.active == []


async def test_queries_end_with_the_app(session: SparkSession, tmp_path: Path) -> None:
    """The queries of an app's bridge are stopped when the app is closed, at any point."""
    assert session.is_open
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out", STRINGS_OUT)
    config = StreamsConfig(application_id="queried", state_dir=tmp_path / "state")
    bridge = SparkBridge(SETTINGS)
    async with listening() as heard, EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        async with App(builder.build(), config, log=log, services=[bridge]):
            for name in ("one", "two"):
                await bridge.start_query(name, rates(tmp_path / name), str(tmp_path / f"checkpoint-{name}"), listener=heard.ref)
            await heard.until(QueryProgress)
        assert {(await heard.until(QueryEnded)).query for _ in range(2)} == {"one", "two"}
    assert session.spark.streams.active == []


async def test_one_that_does_not_end_in_time_is_told(session: SparkSession, tmp_path: Path) -> None:
    """After `stop_ms`: a caller that waits for its end goes on, and the listener gets the reason."""
    assert session.is_open
    busy, may = threading.Event(), threading.Event()

    def hold(_: Any, __: int) -> None:
        busy.set()
        may.wait(PATIENCE_S)

    def query(spark: Any) -> Any:
        return spark.readStream.format("rate").load().writeStream.foreachBatch(hold)

    async with SparkBridge(SETTINGS) as bridge, listening() as heard:
        await bridge.start_query("stuck", query, str(tmp_path / "checkpoint"), listener=heard.ref, stop_ms=500)
        await asyncio.to_thread(busy.wait, PATIENCE_S)
        assert await bridge.stop_query("stuck")
        ended = await heard.until(QueryEnded)
        may.set()
        assert isinstance(ended.error, JobTimeout)
        assert str(ended.error) == "query stuck did not stop within 500 ms: Spark may still run it"
    for left in session.spark.streams.active:
        left.stop()


@pytest.mark.spark
def test_no_process_is_left_behind(tmp_path: Path) -> None:
    """A bridge that has started Spark ends it: its workers in Python, and a running query that calls back into Python."""
    code = f"""
import asyncio, subprocess, os, threading
from ks_actors.batch import SparkBridge
from tests.ks_actors.batch.conftest import SETTINGS

called = threading.Event()

def query(spark):
    return spark.readStream.format("rate").load().writeStream.foreachBatch(lambda rows, number: called.set())

async def main():
    async with SparkBridge(SETTINGS) as bridge:
        await bridge.start_query("rate", query, {str(tmp_path / "checkpoint")!r})
        rows = await bridge.run(lambda spark: spark.range(4).mapInArrow(lambda batches: batches, "id long").count())
        return await asyncio.to_thread(called.wait, 120), rows

print(asyncio.run(main()))
left = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "comm="], capture_output=True, text=True).stdout.split()
print([name for name in left if name != "ps"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=200)  # noqa: S603 - our own
    assert done.stdout == "(True, 4)\n[]\n", done.stderr


@pytest.mark.spark
@pytest.mark.nightly
def test_a_spark_that_dies_is_started_again(tmp_path: Path) -> None:
    """The job in the middle is told, the next one runs; a query takes one of its restarts, and goes on from its checkpoint."""
    code = f"""
import asyncio, os, signal, subprocess
from pathlib import Path
from pyspark import SparkContext
from actors import Restart
from ks_actors import JobFailed
from ks_actors.batch import QueryFailed, QueryProgress, QueryStarted, SparkBridge
from tests.ks_actors.batch.conftest import SETTINGS
from tests.ks_actors.batch.spark.test_queries import listening, rates

def kill(spark=None):
    process = SparkContext._gateway.proc
    process.kill()
    process.wait()
    return spark and spark.range(4).count()

async def main(place):
    async with SparkBridge(SETTINGS) as bridge, listening() as heard:
        try:
            await bridge.run(kill, name="killer")
        except JobFailed as failed:
            print(str(failed).partition("-")[0], str(failed).partition(": ")[2])
        print(await bridge.run(lambda spark: spark.range(4).count()))
        restart = Restart(limit=1, within=600, backoff=(0.1, 0.1), jitter=0)
        await bridge.start_query("rate", rates(place / "out"), str(place / "checkpoint"), listener=heard.ref, restart=restart)
        first = await heard.until(QueryProgress)
        await asyncio.to_thread(kill)
        print((await heard.until(QueryFailed)).error)
        print((await heard.until(QueryStarted)).restarts)
        print((await heard.until(QueryProgress)).batch >= first.batch)
        print(await bridge.stop_query("rate"), heard.names())

asyncio.run(main(Path({str(tmp_path)!r})))
left = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "comm="], capture_output=True, text=True).stdout.split()
print([name for name in left if name != "ps"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=280)  # noqa: S603 - our own
    again = "Spark ended meanwhile. The next one gets a new session"
    assert done.stdout.splitlines() == [
        f"job killer {again}",
        "4",
        f"query rate failed: {again}",
        "1",
        "True",
        "True ['QueryStarted', 'QueryFailed', 'QueryStarted']",
        "[]",
    ], done.stderr
