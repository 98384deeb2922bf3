"""A backfill on Spark gives the same results as one in this process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ks_actors import BatchError, ConfigError, Consumed, Materialized, ProcessingFailed, Produced, StreamsBuilder, StreamsConfig, Topology, serdes
from ks_actors.batch import BackfillProgress, backfill
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from tests.differential.topologies import REBUILT

from .conftest import SETTINGS as SPARK
from .histories import Input, fill, filled_back, topics_of
from .test_backfill import LINE_TOPICS, LINES, SETTINGS, TEXT, cases, records_of, settings_of, words

if TYPE_CHECKING:
    from pathlib import Path

    from ks_actors.batch.spark._session import SparkSession

ALLOW = ("order_after_rekey", "incomplete_snapshot")
# Windows, a join behind repartition topics, a global table, tables that are joined and regrouped: of each a few tasks, as each takes Spark a second.
KINDS = ("hopping", "ss_left_repartition", "sg_left", "tt_join_groupby")


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


def test_a_log_in_memory_is_out_of_sparks_reach() -> None:
    """It is said before anything is started."""

    async def main() -> None:
        async with EmbeddedLog() as log:
            await backfill(words(), StreamsConfig.of(SETTINGS), log=log, engine="spark")

    with pytest.raises(ConfigError, match="is not a log that another process can read"):
        asyncio.run(main())
