"""A backfill as a job of a batch bridge, either a given one or a new one."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, final

from actors import Actor, Ref, Spec, System
from ks_actors._errors import JobFailed, KsActorsError
from ks_actors.batch.backfill import Backfill, tell
from ks_actors.batch.spark._bridge import BatchBridge, run_job
from ks_actors.batch.spark._messages import JobProgress
from ks_actors.batch.spark._session import check_packages
from ks_actors.batch.spark._settings import SparkSettings
from ks_actors.lifecycle import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from ks_actors.batch._reading import LogAddress
    from ks_actors.batch.backfill import BackfillProgress, Plan, Recipe, TaskDone
    from ks_actors.batch.spark._messages import BridgeMessage


@final
class _Watcher(Actor[JobProgress]):
    """Actor that forwards Spark's progress of a backfill to a callback."""

    def __init__(
        self, progress: Callable[[BackfillProgress], None], plan: Plan, done: list[TaskDone]
    ) -> None:
        self._progress = progress
        self._plan = plan
        self._done = done

    def receive(self, message: JobProgress) -> None:
        tell(self._progress, self._plan, tuple(self._done), spark=(message.done, message.known))


def ship(recipe: Recipe) -> bytes:
    """Return the pickled recipe for Spark's tasks. Blocks.

    Raises SparkUnavailable, and BatchError when pickling fails.
    """
    check_packages()
    from ks_actors.batch._shipping import packed_recipe  # noqa: PLC0415 - it needs pyspark

    return packed_recipe(recipe)


async def on_spark(
    recipe: Recipe,
    shipped: bytes,
    address: LogAddress,
    directory: Path,
    snapshot_uri: str | None,
    progress: Callable[[BackfillProgress], None] | None,
    spark: SparkSettings | Ref[BridgeMessage] | None,
    began: float,
) -> Backfill:
    """Run all stages on Spark; `shipped` is the pickled recipe, which is sent to the tasks.

    If a task raised an error of this package, raises that error, else JobFailed. Cancelling cancels
    the job.
    """
    engine = await in_thread(_engine)
    plan, loop = recipe.plan, asyncio.get_running_loop()

    def report(done: list[TaskDone]) -> None:
        loop.call_soon_threadsafe(tell, progress, plan, tuple(done))

    run = engine.SparkRun(recipe, shipped, address, directory, snapshot_uri, report)
    name = f"backfill-{recipe.config.application_id}-{uuid.uuid4().hex[:8]}"
    async with System("backfill") as system:
        bridge = (
            spark
            if isinstance(spark, Ref)
            else await system.spawn(BatchBridge.spec(spark or SparkSettings()), "batch")
        )
        watcher = (
            None
            if progress is None
            else await system.spawn(Spec(lambda: _Watcher(progress, plan, run.done)), "progress")
        )
        try:
            manifest = await run_job(bridge, name, run.run, progress=watcher)
        except JobFailed as failed:
            if isinstance(failed.__cause__, KsActorsError):
                raise failed.__cause__ from failed.__cause__.__cause__
            raise
    rows = await in_thread(engine.ParquetRows, directory, len(plan.stages))
    written = await in_thread(lambda: rows.partitions)
    sinks = plan.sinks | (frozenset(where.topic for where in written) - plan.repartitions)
    return Backfill(tuple(run.done), manifest, rows, sinks, directory, time.perf_counter() - began)


def _engine() -> ModuleType:
    """Import the module that needs pyspark; call it in a thread, as it takes a second.

    Raises SparkUnavailable.
    """
    check_packages()
    from ks_actors.batch.spark import _spark_engine  # noqa: PLC0415 - as it says

    return _spark_engine
