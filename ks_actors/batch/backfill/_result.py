"""The result of a backfill."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, final

import msgspec

from ks_actors._errors import BatchError
from ks_actors.log import OffsetAndMetadata
from ks_actors.records import TaskId, TopicPartition
from ks_actors.snapshots import StoreSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path
    from types import TracebackType

    from ks_actors.batch.backfill._plan import Plan
    from ks_actors.records import Batch
    from ks_actors.snapshots import SnapshotManifest


class BackfillProgress(msgspec.Struct, frozen=True):
    """Progress of a backfill: finished and total tasks, processed records and total offsets.

    In one process `records` includes those of the running task. On Spark, `spark_done` and
    `spark_known` count Spark's own tasks, finished and known so far; the latter grows with each
    stage.
    """

    tasks_done: int
    tasks: int
    records: int
    offsets: int
    spark_done: int = 0
    spark_known: int = 0


class Written(Protocol):
    """The stored output of a backfill."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions with output."""
        ...

    def read(self, where: TopicPartition, /) -> Generator[Batch, None, None]:
        """Yield the records of a partition in order."""
        ...


@final
class Backfill:
    """The result of a backfill: the positions to continue from, the snapshot, and the output.

    The output is in a temporary directory until `close` or the end of a `with` block. `partitions`
    lists the partitions with output, and `read` yields their records in order.
    """

    def __init__(
        self,
        tasks: tuple[TaskDone, ...],
        snapshot: SnapshotManifest | None,
        written: Written,
        sinks: frozenset[str],
        directory: Path,
        seconds: float,
    ) -> None:
        self.tasks: tuple[TaskDone, ...] = tasks
        self.snapshot: SnapshotManifest | None = snapshot
        self.seconds: float = seconds
        self._written = written
        self._sinks = sinks
        self._directory = directory
        self._closed: bool = False

    def __enter__(self) -> Backfill:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        """Raise BatchError after `close`, which deletes the output."""
        if self._closed:
            raise BatchError(
                "this backfill is closed, and its output is deleted: use it within its `with` "
                "block, before `close`"
            )

    @property
    def records(self) -> int:
        """The number of processed records, including those of repartition topics."""
        return sum(task.processed for task in self.tasks)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each source partition."""
        return {where: at.offset for task in self.tasks for where, at in task.positions.items()}

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions with output, except those of repartition topics."""
        self._check_open()
        return [where for where in self._written.partitions if where.topic in self._sinks]

    def read(self, where: TopicPartition) -> Generator[Batch, None, None]:
        """Yield the output of a partition. Blocks."""
        self._check_open()
        return self._written.read(where)

    def to_parquet(self, directory: Path) -> dict[str, int]:
        """Write the output to `<topic>/<partition>.parquet`; return the number of records by topic.

        Files of an earlier run are replaced, or removed if their partition has no output in this
        run. Blocks; needs pyarrow.
        """
        from ks_actors.batch.tables import write_parquet  # noqa: PLC0415 - optional package

        written = ((where, self.read(where)) for where in self.partitions)
        return write_parquet(directory, written, self._sinks)

    def close(self) -> None:
        """Delete the output; the snapshot stays. Blocks."""
        self._closed = True
        shutil.rmtree(self._directory, ignore_errors=True)


def tell(
    progress: Callable[[BackfillProgress], None] | None,
    plan: Plan,
    done: Sequence[TaskDone],
    more: int = 0,
    spark: tuple[int, int] = (0, 0),
) -> None:
    """Report progress to the callback, if any.

    `more` counts the records of the running task, `spark` has Spark's finished and known tasks.
    """
    if progress is not None:
        tasks = sum(len(stage.tasks) for stage in plan.stages)
        progress(
            BackfillProgress(
                len(done), tasks, sum(each.processed for each in done) + more, plan.records, *spark
            )
        )


class TaskDone(msgspec.Struct, frozen=True):
    """The result of a finished task: offsets to commit, and processed and dropped records.

    `stores` lists the stores written to a snapshot.
    """

    task: TaskId
    positions: Mapping[TopicPartition, OffsetAndMetadata]
    processed: int
    dropped: int
    stores: tuple[StoreSnapshot, ...] = ()
