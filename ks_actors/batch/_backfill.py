"""Backfills: a topology's own operators over exact offset ranges, in one process or on Spark."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final, get_args
from urllib.parse import quote

from actors import Ref
from ks_actors._errors import ConfigError, JobCancelled, LogClosed
from ks_actors.batch._reading import Bounds, LogAddress, SharedLog, address_of
from ks_actors.batch.backfill import (
    Backfill,
    Recipe,
    RowFiles,
    Target,
    TaskRun,
    WorkLoop,
    commit_snapshot,
    make_plan,
    new_snapshot,
    parts_of,
    probe,
    tell,
)
from ks_actors.batch.spark import SparkSettings, on_spark, ship
from ks_actors.config import SCHEME, opened, servers
from ks_actors.lifecycle import in_thread, run_in_thread
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.topology import check_serdes, check_services, check_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from contextlib import AbstractAsyncContextManager

    from ks_actors.batch.backfill import BackfillProgress, Choice, Stage, TaskDone, TaskPlan
    from ks_actors.batch.spark import BridgeMessage
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log
    from ks_actors.snapshots import SnapshotManifest, SnapshotWriter
    from ks_actors.topology import Topology

Engine: TypeAlias = Literal["local", "spark"]
"""The engine that runs the tasks of a backfill."""


async def backfill(
    topology: Topology,
    config: StreamsConfig,
    *,
    until: int | Mapping[str, Mapping[int, int]] | None = None,
    snapshot_uri: str | None = None,
    log: Log | None = None,
    allow: Collection[Choice] = (),
    engine: Engine = "local",
    spark: SparkSettings | Ref[BridgeMessage] | None = None,
    progress: Callable[[BackfillProgress], None] | None = None,
    directory: Path | None = None,
    services: Iterable[AbstractAsyncContextManager[Any]] = (),
) -> Backfill:
    """Run a topology over the history of its topics, with its own operators, and return the result.

    `until` bounds the history. A time (ms) ends each partition before its first record at or after
    that time, but does not bound global tables, which are filled from their whole topics as in an
    app. A mapping gives end offsets by topic and partition; partitions that it omits are read to
    their ends. None reads to the current ends. A task that reads several partitions takes their
    records in timestamp order.

    With `snapshot_uri` the state is written to a snapshot at that location, with the positions from
    which a stream continues. A backfill changes nothing else, in the log or elsewhere. A cancelled
    backfill leaves nothing behind. `log` replaces the config's log. `allow` lists the permitted
    differences from a stream; see BackfillRefused.

    The `local` engine runs the tasks one by one in a thread of this process, in one event loop of
    its own. The services of the topology, then `services`, are entered in that loop before the
    first processor is made, and exited at the end. `spark` runs each task in a Spark task and gives
    the same result; `spark` is either settings or a running bridge. Each Spark task enters the
    services in a loop of its own. Services are pickled with the topology, so they must be picklable
    before they are entered. This process enters them once, too, to check the processors. Spark's
    processes read the log directly, so the log must be in Kafka, at the address in the config, or
    in a directory.

    Output and state are on disk below `directory` until the end (default: the system's directory
    for temporary files). All Spark machines must share that directory and the location of the
    snapshot. `progress` is called after each task (on Spark after each stage), and about once per
    second in between.

    Raises BackfillRefused before anything is processed. Also raises any processing error,
    OffsetOutOfRange, MissingSourceTopics and TopologyError. With Spark, raises SparkUnavailable,
    JobFailed, JobCancelled, and BatchError for functions and services that cannot be pickled.
    """
    began = time.perf_counter()
    bounds = _bounds(until)
    entered = tuple(services)
    _check_choices(engine, spark, progress, entered)
    check_topology(topology, of="backfill")
    check_serdes(topology, key=config.default_key_serde, value=config.default_value_serde)
    address = _address(config, log) if engine == "spark" else None
    async with opened(config, log) as used:
        place = Path(
            await in_thread(partial(tempfile.mkdtemp, prefix="ks-actors-backfill-", dir=directory))
        )
        try:
            plan = await make_plan(
                used, topology, config, bounds, allow, snapshot=snapshot_uri is not None
            )
            recipe = Recipe(topology, config, plan, "wall_clock" in allow, entered)
            if address is not None:
                # Pickle before a service is entered: open connections cannot be pickled.
                shipped = await in_thread(ship, recipe)
                here = WorkLoop()
                await run_in_thread(partial(_probe, recipe, here), here.give_up)
                return await on_spark(
                    recipe, shipped, address, place, snapshot_uri, progress, spark, began
                )
            shared = SharedLog(used, asyncio.get_running_loop())
            local = _Local(recipe, shared, place, snapshot_uri, progress)
            return await run_in_thread(partial(local.run, began), local.give_up)
        except BaseException:
            # Only after an error; otherwise the result owns the directory until its `close`.
            await in_thread(partial(shutil.rmtree, place, ignore_errors=True))
            raise


def _address(config: StreamsConfig, log: Log | None) -> LogAddress:
    """Return the address of the log for Spark's processes.

    Raises ConfigError for a log in memory, and for a log that the settings do not name.
    """
    given = getattr(log, "bootstrap_servers", None)
    if given is not None and config.log != f"{SCHEME}{servers(given)}":
        raise ConfigError(
            f"log: is {log!r}, but Spark's tasks open the log that the settings name, with their "
            f"options: give StreamsConfig(bootstrap_servers={given!r})"
        )
    if isinstance(log, EmbeddedLog):
        address = LogAddress(
            "memory://"
            if log.directory is None
            else f"embedded://{quote(str(log.directory.absolute()))}"
        )
    else:
        address = address_of(config)
    address.open()  # Check the address now; this does not start the log.
    return address


def _bounds(until: object) -> Bounds:
    if until is None:
        return Bounds()
    if isinstance(until, int) and not isinstance(until, bool):
        if until < 0:
            raise ConfigError(f"until: is {until}: give 0 or more")
        return Bounds(until_ms=until)
    if not isinstance(until, Mapping) or not all(
        isinstance(topic, str) and isinstance(ends, Mapping) and _are_offsets(ends)
        for topic, ends in until.items()
    ):
        raise ConfigError(
            f"until: is {until!r}: give a time in ms as an int, int(moment.timestamp() * 1000) for "
            'a datetime, or end offsets by topic and partition, {"orders": {0: 100}}'
        )
    return Bounds(ends=until)


def _are_offsets(ends: Mapping[Any, Any]) -> bool:
    return all(type(one) is int and one >= 0 for end in ends.items() for one in end)


def _check_choices(engine: Any, spark: Any, progress: Any, services: Iterable[Any]) -> None:
    """Raise ConfigError for invalid arguments, and for arguments without effect."""
    if engine not in get_args(Engine):
        raise ConfigError(f"engine: is {engine!r}: give 'local' or 'spark'")
    if spark is not None and engine != "spark":
        raise ConfigError(f"spark: has no effect with engine={engine!r}: give engine='spark', too")
    if spark is not None and not isinstance(spark, SparkSettings | Ref):
        raise ConfigError(
            f"spark: is {spark!r}: give SparkSettings, or the ref of a running BatchBridge"
        )
    if progress is not None and not callable(progress):
        raise ConfigError(f"progress: is {progress!r}: give a function of a BackfillProgress")
    check_services(services, of="backfill")


def _probe(recipe: Recipe, here: WorkLoop) -> None:
    with here as loop:
        _check_processors(recipe, loop)


def _check_processors(recipe: Recipe, loop: WorkLoop) -> None:
    """Enter the services, and make the processors once. Raises JobCancelled."""
    try:
        loop.enter(recipe.topology, recipe.services)
        probe(recipe, loop)
    except asyncio.CancelledError:
        raise _cancelled(recipe, "before its first task") from None


def _cancelled(recipe: Recipe, where: str) -> JobCancelled:
    return JobCancelled(f"the backfill of {recipe.config.application_id} was cancelled {where}")


_TELL_SECONDS = 1.0


@final
class _Local:
    """The tasks of a backfill, run one by one in a single thread."""

    def __init__(
        self,
        recipe: Recipe,
        log: SharedLog,
        directory: Path,
        snapshot_uri: str | None,
        progress: Callable[[BackfillProgress], None] | None,
    ) -> None:
        self._recipe = recipe
        self._log = log
        self._directory = directory
        self._progress = progress
        parts = parts_of(recipe.topology, recipe.config, recipe.plan.counts)
        self._snapshot: SnapshotWriter | None = (
            None if snapshot_uri is None else new_snapshot(parts, snapshot_uri)
        )
        self._files = RowFiles(directory / "rows")
        self._done: list[TaskDone] = []
        self._reported_at: float = 0.0
        self._loop = WorkLoop()

    def give_up(self) -> None:
        """Make `run` raise JobCancelled, whatever it waits for. Any thread may call this."""
        self._loop.give_up()
        self._log.give_up()

    def run(self, began: float) -> Backfill:
        """Enter the services, and run all stages."""
        with self._loop as loop:
            _check_processors(self._recipe, loop)
            return self._run_stages(began)

    def _run_stages(self, began: float) -> Backfill:
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
        written = frozenset(where.topic for where in self._files.partitions) - plan.repartitions
        sinks = plan.sinks | written
        return Backfill(
            tuple(self._done),
            manifest,
            self._files,
            sinks,
            self._directory,
            time.perf_counter() - began,
        )

    def _run_stage(self, stage: Stage) -> None:
        for work in stage.tasks:
            self._done.append(self._run_task(work))
            tell(self._progress, self._recipe.plan, self._done)

    def _tell(self, run: TaskRun) -> None:
        """Report the progress of a task, at most once per second."""
        if (now := time.monotonic()) - self._reported_at >= _TELL_SECONDS:
            self._reported_at = now
            tell(self._progress, self._recipe.plan, self._done, run.processed)

    def _run_task(self, work: TaskPlan) -> TaskDone:
        state = self._directory / "state"
        # Tasks of several subtopologies may write to one topic: each is a source, in stage order.
        writer = self._files.writer(len(self._done), str(work.task))
        run = TaskRun(
            self._recipe,
            work,
            state,
            read=self._log.read,
            exchanged={where: self._files.read(where) for where in work.exchanged},
            snapshot=None if self._snapshot is None else Target(self._snapshot.place),
        )
        try:
            with closing(run.run(self._loop)) as all_written:
                for written in all_written:
                    if self._loop.given_up.is_set():
                        raise _cancelled(self._recipe, f"in task {work.task}")
                    writer.write(written)
                    self._tell(run)
        except (LogClosed, asyncio.CancelledError):
            if self._loop.given_up.is_set():
                raise _cancelled(self._recipe, f"in task {work.task}") from None
            raise
        finally:
            writer.close()
        # This is not reached after an error: a later stage must never read part of a task's output.
        self._files.add(writer)
        # Delete the state now, so that the disk holds the state of one task at a time.
        shutil.rmtree(state / str(work.task), ignore_errors=True)
        return run.done
