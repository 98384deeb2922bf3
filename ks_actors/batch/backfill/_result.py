"""What comes of a backfill."""

from __future__ import annotations

import shutil
from collections.abc import Mapping  # noqa: TC003 - a finished task travels between processes, and is read at run time
from typing import TYPE_CHECKING, Protocol, final

import msgspec

from ks_actors.log import OffsetAndMetadata  # noqa: TC001 - as above
from ks_actors.records import TaskId, TopicPartition  # noqa: TC001 - as above
from ks_actors.snapshots import StoreSnapshot  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path
    from types import TracebackType

    from ks_actors.batch.backfill._plan import Plan
    from ks_actors.records import Batch
    from ks_actors.snapshots import SnapshotManifest


class BackfillProgress(msgspec.Struct, frozen=True):
    """How far a backfill is: tasks that are done, of all, and the records that they took, of the offsets there are.

    In one process `records` has those of the task that runs, too. On Spark `spark_done` and `spark_known` are Spark's own tasks, those that are done
    of those that it knows of by now: there are more of them, stage by stage.
    """

    tasks_done: int
    tasks: int
    records: int
    offsets: int
    spark_done: int = 0
    spark_known: int = 0


class Written(Protocol):
    """What a backfill has written to topics, kept until it is taken from here."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that something was written to."""
        ...

    def read(self, where: TopicPartition, /) -> Generator[Batch, None, None]:
        """Yield the records of a partition in their order."""
        ...


@final
class Backfill:
    """What came of a backfill: `positions` that a stream goes on from, the `snapshot` of the state there, and what was written to topics.

    That is in a directory of its own until `close`, or the end of a `with` block; `partitions` are those that have something, `read` gives their
    records, in order.
    """

    def __init__(
        self, tasks: tuple[TaskDone, ...], snapshot: SnapshotManifest | None, written: Written, sinks: frozenset[str], directory: Path, seconds: float
    ) -> None:
        self.tasks: tuple[TaskDone, ...] = tasks
        self.snapshot: SnapshotManifest | None = snapshot
        self.seconds: float = seconds
        self._written = written
        self._sinks = sinks
        self._directory = directory

    def __enter__(self) -> Backfill:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    @property
    def records(self) -> int:
        """How many records were processed, those of repartition topics included."""
        return sum(task.processed for task in self.tasks)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where each partition that the topology reads is to be read on."""
        return {where: at.offset for task in self.tasks for where, at in task.positions.items()}

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of topics, repartition topics left out, that something was written to."""
        return [where for where in self._written.partitions if where.topic in self._sinks]

    def read(self, where: TopicPartition) -> Generator[Batch, None, None]:
        """Yield what was written to a partition. Blocks."""
        return self._written.read(where)

    def to_parquet(self, directory: Path) -> dict[str, int]:
        """Write what was written to topics to `<topic>/<partition>.parquet`; return how many records each topic has. Blocks; needs pyarrow."""
        from ks_actors.batch.tables import write_parquet  # noqa: PLC0415 - it needs a package that others do without

        return write_parquet(directory, ((where, self.read(where)) for where in self.partitions))

    def close(self) -> None:
        """Delete what was written and nobody has taken; the snapshot stays. Blocks."""
        shutil.rmtree(self._directory, ignore_errors=True)


def tell(
    progress: Callable[[BackfillProgress], None] | None, plan: Plan, done: Sequence[TaskDone], more: int = 0, spark: tuple[int, int] = (0, 0)
) -> None:
    """Call back with how far it is, if anybody wants to know; `more` are the records of a task that runs, `spark` tells of Spark's tasks."""
    if progress is not None:
        tasks = sum(len(stage.tasks) for stage in plan.stages)
        progress(BackfillProgress(len(done), tasks, sum(each.processed for each in done) + more, plan.records, *spark))


class TaskDone(msgspec.Struct, frozen=True):
    """What a task was at when its history was over: what is to be committed for each partition, how many records it took, and left out.

    `stores` are those that were written to a snapshot.
    """

    task: TaskId
    positions: Mapping[TopicPartition, OffsetAndMetadata]
    processed: int
    dropped: int
    stores: tuple[StoreSnapshot, ...] = ()
