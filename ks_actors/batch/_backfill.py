"""A topology over history: its own operators, over exact ranges, in one process or on Spark."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, final

import msgspec

from ks_actors._config_kafka import open_configured
from ks_actors._errors import ConfigError
from ks_actors.batch._plan import make_plan, make_setup
from ks_actors.batch._reading import Bounds, SharedLog
from ks_actors.batch._rows import RowFiles
from ks_actors.batch._snapshot import commit_snapshot, new_snapshot
from ks_actors.batch._task_run import Recipe, TaskDone, TaskRun, probe

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping
    from types import TracebackType

    from ks_actors._batch import Batch
    from ks_actors._config import StreamsConfig
    from ks_actors.batch._plan import Choice, Stage, TaskPlan
    from ks_actors.log import Log, TopicPartition
    from ks_actors.runtime._setup import Setup
    from ks_actors.snapshots import SnapshotManifest, SnapshotWriter
    from ks_actors.topology import Topology

Engine = Literal["local", "spark"]


class BackfillProgress(msgspec.Struct, frozen=True):
    """How far a backfill is: tasks that are done, of all, and the records that they took, of the offsets there are."""

    tasks_done: int
    tasks: int
    records: int
    offsets: int


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
        from ks_actors.batch._parquet import write_parquet  # noqa: PLC0415 - it needs a package that others do without

        return write_parquet(directory, ((where, self.read(where)) for where in self.partitions))

    def close(self) -> None:
        """Delete what was written and nobody has taken; the snapshot stays. Blocks."""
        shutil.rmtree(self._directory, ignore_errors=True)


async def backfill(
    topology: Topology,
    config: StreamsConfig,
    *,
    until: int | Mapping[str, Mapping[int, int]] | None = None,
    snapshot_uri: str | None = None,
    log: Log | None = None,
    allow: Collection[Choice] = (),
    progress: Callable[[BackfillProgress], None] | None = None,
    directory: Path | None = None,
) -> Backfill:
    """Run a topology over all that its topics hold until then, by its own operators, one task after the other, and return what came of it.

    `until` is a time (ms): each partition is read to before the first record that is as late; or offsets by topic and partition, of which those that
    are not named are read to their ends; None is what there is now. Records of a task that reads several partitions are taken in the order of their
    times. With `snapshot_uri` the state goes into a snapshot there, with the positions that a stream goes on from; nothing else is changed, in the
    log or elsewhere. `log` takes the place of the config's. `allow` names what may differ from a stream; see BackfillRefused. What is written, and
    state, is on disk below `directory` (default: the system's for temporary files) meanwhile.

    Raises BackfillRefused before anything is processed, what processing raises, OffsetOutOfRange, MissingSourceTopics, TopologyError.
    """
    began = time.perf_counter()
    own = open_configured(config) if log is None else None
    used = own or log
    assert used is not None
    if own is not None:
        await own.start()
    place = Path(await asyncio.to_thread(partial(tempfile.mkdtemp, prefix="ks-actors-backfill-", dir=directory)))
    try:
        plan = await make_plan(used, topology, config, _bounds(until), allow, snapshot=snapshot_uri is not None)
        recipe = Recipe(topology, config, plan, "wall_clock" in allow)
        await asyncio.to_thread(probe, recipe)
        local = _Local(recipe, SharedLog(used, asyncio.get_running_loop()), place, snapshot_uri, progress)
        return await asyncio.to_thread(local.run, began)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        raise
    finally:
        if own is not None:
            await own.close()


def _bounds(until: int | Mapping[str, Mapping[int, int]] | None) -> Bounds:
    if until is None or isinstance(until, int):
        if until is not None and until < 0:
            raise ConfigError(f"until: is {until}, a time is not negative")
        return Bounds(until_ms=until)
    return Bounds(ends=until)


@final
class _Local:
    """The tasks of a backfill one after the other, in one thread."""

    def __init__(
        self, recipe: Recipe, log: SharedLog, directory: Path, snapshot_uri: str | None, progress: Callable[[BackfillProgress], None] | None
    ) -> None:
        self._recipe = recipe
        self._log = log
        self._directory = directory
        self._progress = progress
        self._setup: Setup = make_setup(recipe.topology, recipe.config, recipe.plan.counts)
        self._snapshot: SnapshotWriter | None = None if snapshot_uri is None else new_snapshot(self._setup, snapshot_uri)
        self._files = RowFiles(directory / "rows")
        self._done: list[TaskDone] = []

    def run(self, began: float) -> Backfill:
        """Run all stages."""
        plan = self._recipe.plan
        manifest: SnapshotManifest | None = None
        try:
            for stage in plan.stages:
                self._run_stage(stage)
            if self._snapshot is not None:
                manifest = commit_snapshot(self._snapshot, self._done)
        except BaseException:
            if self._snapshot is not None:
                self._snapshot.abort()
            raise
        sinks = frozenset(where.topic for where in self._files.partitions) - plan.repartitions
        return Backfill(tuple(self._done), manifest, self._files, sinks, self._directory, time.perf_counter() - began)

    def _run_stage(self, stage: Stage) -> None:
        for work in stage.tasks:
            self._done.append(self._run_task(work))
            if self._progress is not None:
                plan = self._recipe.plan
                tasks = sum(len(each.tasks) for each in plan.stages)
                self._progress(BackfillProgress(len(self._done), tasks, sum(done.processed for done in self._done), plan.records))

    def _run_task(self, work: TaskPlan) -> TaskDone:
        state = self._directory / "state"
        # Tasks of several subtopologies may write to one topic: each is a source of its own, in the order of the stages.
        writer = self._files.writer(len(self._done), str(work.task))
        run = TaskRun(
            self._recipe,
            work,
            state,
            read=self._log.read,
            exchanged={where: self._files.read(where) for where in work.exchanged},
            snapshot=None if self._snapshot is None else self._snapshot.place,
        )
        for written in run.run():
            writer.write(written)
        self._files.add(writer)
        shutil.rmtree(state / str(work.task), ignore_errors=True)
        return run.done
