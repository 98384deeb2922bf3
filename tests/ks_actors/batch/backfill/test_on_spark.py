"""A backfill on Spark gives the same results as one in this process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from ks_actors import BatchError, ConfigError, ProcessingFailed, Processor, ProcessorContext, Record, StreamsConfig, Topology, serdes
from ks_actors.batch import BackfillProgress, SparkSettings, backfill
from ks_actors.batch.spark._session import SparkSession
from ks_actors.dsl import Consumed, Materialized, Produced, Repartitioned, StreamsBuilder
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from tests.differential.topologies import REBUILT
from tests.ks_actors.batch.backfill.test_backfill import LINE_TOPICS, LINES, SETTINGS, TEXT, cases, records_of, settings_of, words
from tests.ks_actors.batch.conftest import SETTINGS as SPARK
from tests.ks_actors.batch.histories import Input, fill, filled_back, topics_of

NO_SPARK = SparkSettings(master="spark://127.0.0.1:1")  # nothing is there
ALLOW = ("order_after_rekey", "incomplete_snapshot")
# Windows, a join behind repartition topics, a global table, tables that are joined and regrouped: of each a few tasks, as each takes Spark a second.
KINDS = ("hopping", "ss_left_repartition", "sg_left", "tt_join_groupby")


@pytest.mark.everyday
@pytest.mark.parametrize("name", KINDS)
def test_spark_gives_the_results_of_one_process(name: str, session: SparkSession, tmp_path: Path) -> None:
    """Record for record and key for key, with two partitions, through repartition topics too: the order in which records meet is the same."""
    assert session.is_open
    case = cases(name)[0]
    topology: Topology = REBUILT[name].build(case["params"])
    records = records_of(case)
    topics = topics_of(topology, REBUILT[name].outputs, 2, records)
    expected = filled_back(topology, settings_of(case), topics, records, tmp_path / "local", allow=ALLOW)
    got = filled_back(
        topology, settings_of(case), topics, records, tmp_path / "spark", durable=tmp_path / "log", allow=ALLOW, engine="spark", spark=SPARK
    )
    assert got == expected


def test_many_records_take_their_way_through_sparks_exchange(session: SparkSession, tmp_path: Path) -> None:
    """More than fit into one batch of Arrow, from partitions of which one is empty, with progress told."""
    assert session.is_open
    lines: list[Input] = [(topic, key, value, time) for _ in range(8) for topic, key, value, time in LINES]
    told: list[BackfillProgress] = []
    topics = {**LINE_TOPICS, "lines": 3}
    expected = filled_back(words(), SETTINGS, topics, lines, tmp_path / "local")
    options: dict[str, Any] = {"engine": "spark", "spark": SPARK, "progress": told.append}
    assert filled_back(words(), SETTINGS, topics, lines, tmp_path / "spark", durable=tmp_path / "log", **options) == expected
    # Where Spark takes its time it may be asked before it knows of a task of its own.
    assert list(dict.fromkeys((each.tasks_done, each.tasks) for each in told if each.tasks_done and not each.spark_known)) == [(3, 6), (6, 6)]
    assert all(each.spark_done <= each.spark_known for each in told)


def test_a_task_whose_process_is_killed_is_done_again(session: SparkSession, tmp_path: Path) -> None:
    """Its output is not there twice, nor is its state."""
    assert session.is_open
    killed = tmp_path / "killed"

    def once(key: str, value: str) -> str:
        if key == "k3" and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).map_values(once)
    stream.group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG)).to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    records: list[Input] = [("in", f"k{number % 5}".encode(), b"v", number) for number in range(3_000)]
    topics = {"in": 2, "out": 2}
    got = filled_back(builder.build(), SETTINGS, topics, records, tmp_path / "spark", durable=tmp_path / "log", engine="spark", spark=SPARK)
    assert killed.exists()
    assert filled_back(builder.build(), SETTINGS, topics, records, tmp_path / "local") == got


def on_spark(topology: Topology, records: list[Input], directory: Path) -> None:
    async def main() -> None:
        async with EmbeddedLog(directory / "log") as log:
            await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
            await fill(log, {"in": 1}, records)
            config = StreamsConfig.of(SETTINGS)
            uri = str(directory / "snapshots")
            (await backfill(topology, config, log=log, engine="spark", spark=SPARK, snapshot_uri=uri, directory=directory)).close()

    asyncio.run(main())


def test_an_error_of_a_task_is_raised_here_with_its_record(session: SparkSession, tmp_path: Path) -> None:
    """As by the local engine; nothing is left of it."""
    assert session.is_open
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(lambda value: str(int(value))).to("out", Produced(serdes.STRING, serdes.STRING))
    with pytest.raises(ProcessingFailed) as failed:
        on_spark(builder.build(), [("in", b"k", b"1", 0), ("in", b"k", b"no number", 1)], tmp_path)
    assert (failed.value.topic, failed.value.partition, failed.value.offset) == ("in", 0, 1)
    assert isinstance(failed.value.__cause__, ValueError)
    assert {path.name for path in tmp_path.iterdir()} <= {"log", "snapshots"}
    assert [path for path in (tmp_path / "snapshots").rglob("*") if path.is_file()] == []


def test_a_function_that_cannot_travel_is_refused(session: SparkSession, tmp_path: Path) -> None:
    """With the reason for it."""
    assert session.is_open
    lock = threading.Lock()
    builder = StreamsBuilder()
    builder.stream("in", Consumed(serdes.STRING, serdes.STRING)).filter(lambda _, __: lock.locked()).to("out", Produced(serdes.STRING, serdes.STRING))
    with pytest.raises(BatchError, match=r"the topology cannot be sent to Spark's tasks: cannot pickle '_thread.lock' object"):
        on_spark(builder.build(), [], tmp_path)


class Client:
    """A client that can travel before it is opened, and not after; only in the loop that has opened it, it can be used."""

    def __init__(self) -> None:
        self.lock: threading.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self.lock, self._loop = threading.Lock(), asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.lock = self._loop = None

    async def get(self, value: str) -> str:
        assert self._loop is asyncio.get_running_loop()
        return f"{value}!"


def test_services_are_open_in_the_tasks_of_spark(session: SparkSession, tmp_path: Path) -> None:
    """Those that are given, from before the first processor is made: functions that hold one use the one that is open there, as in one process."""
    assert session.is_open
    client = Client()

    class Careful(Processor[Any, Any, Any, Any]):
        def init(self, context: ProcessorContext[Any, Any]) -> None:
            assert client.lock is not None
            self._context = context

        def process(self, record: Record[Any, Any]) -> None:
            self._context.forward(record)

    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).process(Careful).map_values(client.get).repartition(Repartitioned(serdes.STRING, serdes.STRING))
    stream.map_values(client.get).to("out", Produced(serdes.STRING, serdes.STRING))
    records: list[Input] = [("in", b"%d" % number, b"v", number) for number in range(20)]
    topics = {"in": 2, "out": 2}
    expected, _ = filled_back(builder.build(), SETTINGS, topics, records, tmp_path / "local", services=[client])
    assert {row[1] for rows in expected.values() for row in rows} == {b"v!!"}
    got, _ = filled_back(
        builder.build(), SETTINGS, topics, records, tmp_path / "spark", durable=tmp_path / "log", engine="spark", spark=SPARK, services=[client]
    )
    assert got == expected
    assert client.lock is None


def test_a_service_that_cannot_travel_is_refused_before_spark_starts(tmp_path: Path) -> None:
    """By its name, with what to do, and before it is entered."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        yield

    service = opened()
    with pytest.raises(
        BatchError, match=r"the service <.*_AsyncGeneratorContextManager.*> cannot be sent to Spark's tasks: .*, or backfill with engine='local'"
    ):
        filled_back(
            words(), SETTINGS, LINE_TOPICS, [], tmp_path / "spark", durable=tmp_path / "log", engine="spark", spark=NO_SPARK, services=[service]
        )


def test_a_log_in_memory_is_out_of_sparks_reach() -> None:
    """It is said before anything is started."""

    async def main() -> None:
        async with EmbeddedLog() as log:
            await backfill(words(), StreamsConfig.of(SETTINGS), log=log, engine="spark")

    with pytest.raises(ConfigError, match="is not a log that another process can read"):
        asyncio.run(main())
