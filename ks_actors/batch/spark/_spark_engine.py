"""Backfill stages on Spark: one Spark task per topology task, repartition by Spark's exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import pyarrow.dataset as ds

from ks_actors.batch.backfill import commit_snapshot, new_snapshot, parts_of
from ks_actors.batch.spark._spark_task import DDL, FIRST, StageTask, batch_of, done_of
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from ks_actors.batch._reading import LogAddress
    from ks_actors.batch.backfill import Recipe, Stage, TaskDone
    from ks_actors.records import Batch
    from ks_actors.snapshots import SnapshotManifest, SnapshotWriter

_AT_ONCE = 20_000
_IN_ORDER = [("high", "ascending"), ("source", "ascending"), ("number", "ascending")]


@final
class SparkRun:
    """A backfill as a job of the bridge; `run` is called in the job's thread.

    `shipped` is the pickled recipe. `directory` and the snapshot's location are shared by all Spark
    processes. Each stage writes a directory of Parquet files. The directory appears only when
    complete, however often Spark retries a task.
    """

    def __init__(
        self,
        recipe: Recipe,
        shipped: bytes,
        address: LogAddress,
        directory: Path,
        snapshot_uri: str | None,
        report: Callable[[list[TaskDone]], None],
    ) -> None:
        self._recipe = recipe
        self._shipped = shipped
        self._address = address
        self._directory = directory
        self._uri = snapshot_uri
        self._report = report
        self.done: list[TaskDone] = []

    def run(self, spark: Any) -> SnapshotManifest | None:
        """Run all stages in order; return the snapshot's manifest."""
        recipe = self._recipe
        parts = parts_of(recipe.topology, recipe.config, recipe.plan.counts)
        snapshot = None if self._uri is None else new_snapshot(parts, self._uri)
        try:
            for number, stage in enumerate(recipe.plan.stages):
                self._run_stage(spark, number, stage, snapshot)
                self._report(self.done)
            return None if snapshot is None else commit_snapshot(snapshot, self.done)
        except BaseException:
            if snapshot is not None:
                snapshot.abort()
            raise

    def _run_stage(
        self, spark: Any, number: int, stage: Stage, snapshot: SnapshotWriter | None
    ) -> None:
        name = () if snapshot is None else (self._recipe.config.application_id, snapshot.name)
        task = StageTask(self._shipped, number, self._address, self._uri, name)
        where = str(self._directory / f"stage-{number}")
        self._input(spark, number, stage).mapInArrow(task.__call__, DDL).write.parquet(where)
        rows = (
            spark.read.schema(DDL)
            .parquet(where)
            .where("topic is null")
            .select("source", "value")
            .orderBy("source")
            .toArrow()
        )
        self.done += map(done_of, rows.column("value").to_pylist())

    def _input(self, spark: Any, number: int, stage: Stage) -> Any:
        """Return the input of a stage: one partition per task, with at least one row, sorted."""
        count = len(stage.tasks)
        marks = spark.range(0, count, 1, count)
        topics = sorted({where.topic for task in stage.tasks for where in task.exchanged})
        if not topics:
            return marks
        # A marker row per task sorts first, so that a task without records runs, too.
        given = {"partition": "cast(id as int)", "high": f"cast({FIRST + 1} as bigint) - 1"}
        columns = (column.split() for column in DDL.split(", "))
        marks = marks.selectExpr(
            *(f"{given.get(name, f'cast(null as {kind})')} as {name}" for name, kind in columns)
        )
        before = [str(self._directory / f"stage-{each}") for each in range(number)]
        rows = spark.read.schema(DDL).parquet(*before)
        rows = rows.where(rows["topic"].isin(topics))
        return (
            marks.unionByName(rows)
            .repartitionById(count, "partition")
            .sortWithinPartitions("high", "source", "number")
        )


@final
class ParquetRows:
    """The output of a backfill on Spark. All calls block; reads load a whole partition."""

    def __init__(self, directory: Path, stages: int) -> None:
        self._stages = [directory / f"stage-{number}" for number in range(stages)]
        files = [str(file) for stage in self._stages for file in sorted(stage.glob("*.parquet"))]
        self._rows: Any = ds.dataset(files, format="parquet")

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions with output."""
        found = (
            self._rows.to_table(columns=["topic", "partition"], filter=ds.field("topic").is_valid())
            .group_by(["topic", "partition"])
            .aggregate([])
        )
        return sorted(TopicPartition(row["topic"], row["partition"]) for row in found.to_pylist())

    def read(self, where: TopicPartition) -> Generator[Batch, None, None]:
        """Yield the records of a partition in order."""
        found = self._rows.to_table(
            filter=(ds.field("topic") == where.topic) & (ds.field("partition") == where.partition)
        ).sort_by(_IN_ORDER)
        first = 0
        for rows in found.to_batches(max_chunksize=_AT_ONCE):
            yield batch_of(rows, first)
            first += rows.num_rows
