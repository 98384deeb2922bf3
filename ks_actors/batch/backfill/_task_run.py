"""Run one task over its part of history: the runtime's Task, fed from ranges, without actors."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - what is done travels, and is read at run time
from contextlib import ExitStack, closing
from math import inf
from typing import TYPE_CHECKING, Any, final

import msgspec

from ks_actors._errors import BackfillRefused, UnknownTopicOrPartition
from ks_actors.batch.backfill._plan import parts_of
from ks_actors.batch.backfill._result import TaskDone
from ks_actors.batch.backfill._snapshot import write_disk, write_memory
from ks_actors.records import Batch, TaskId, TopicPartition
from ks_actors.state import SharedResources
from ks_actors.task import (
    GLOBAL,
    UNKNOWN_PARTITION,
    Task,
    TaskRunner,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from ks_actors.batch._reading import LogRange
    from ks_actors.batch.backfill._plan import Plan, TaskPlan
    from ks_actors.batch.backfill._snapshot import Target
    from ks_actors.batch.backfill._work_loop import WorkLoop
    from ks_actors.config import StreamsConfig
    from ks_actors.log import OffsetAndMetadata, Outgoing
    from ks_actors.task import TaskParts
    from ks_actors.topology import StoreSpec, Topology

_SLICE_SECONDS = 0.2
_COMMIT_RECORDS = 50_000
_IN_FLIGHT_SECONDS = 600.0
_NOTHING = Batch([], [], [], None, ())


class Recipe(msgspec.Struct, frozen=True):
    """The configuration shared by all tasks of a backfill; it is sent to Spark tasks."""

    topology: Topology
    config: StreamsConfig
    plan: Plan
    wall_clock: bool
    """Whether to skip wall-clock punctuators instead of refusing them."""
    services: tuple[AbstractAsyncContextManager[Any], ...] = ()
    """The services to enter beside those of the topology, in the loop of the tasks."""


@final
class TaskRun:
    """Process one task's history. Blocks; use it from one thread.

    `run` yields the output, and sets `done` at the end. `read` yields the records of a range;
    `exchanged` yields the records of repartition topics. Stores are in memory, or below `directory`
    in a folder named after the task. With `snapshot` the stores are written to that snapshot at the
    end. Memory limits, for committed and uncommitted data, are as in an app, but per task.
    """

    def __init__(
        self,
        recipe: Recipe,
        work: TaskPlan,
        directory: Path | None,
        *,
        read: Callable[[LogRange], Generator[Batch, None, None]],
        exchanged: Mapping[TopicPartition, Generator[Batch, None, None]],
        snapshot: Target | None = None,
    ) -> None:
        self._recipe = recipe
        self._work = work
        self._directory: Path | None = directory
        self._read = read
        self._snapshot = snapshot
        self._shared: SharedResources = SharedResources.within(
            recipe.config.statestore_memory_max_bytes
        )
        most = recipe.config.statestore_uncommitted_max_bytes
        self._uncommitted: float = inf if most < 0 else most
        self._parts: TaskParts = parts_of(recipe.topology, recipe.config, recipe.plan.counts)
        self.specs: list[StoreSpec] = self._parts.stores.of_task(work.task)
        self._sources: dict[TopicPartition, Generator[Batch, None, None]] = {
            TopicPartition(one.topic, one.partition): read(one) for one in work.ranges
        }
        self._sources.update({where: exchanged[where] for where in work.exchanged})
        self._ends: dict[TopicPartition, int] = {
            TopicPartition(one.topic, one.partition): one.end for one in work.ranges
        }
        self._starts: dict[TopicPartition, int] = {
            TopicPartition(one.topic, one.partition): one.start for one in work.ranges
        }
        self._changed: dict[str, int] = {}
        self._since: int = 0
        self._runner = TaskRunner(work.task, str(work.task), self._parts, wait_s=_IN_FLIGHT_SECONDS)
        self._globals = TaskRunner(TaskId(-1, 0), GLOBAL, self._parts, wait_s=_IN_FLIGHT_SECONDS)
        self._globals_dropped: int = 0
        # Each task fills the global tables and gets the same dead letters; only the first task
        # writes them.
        self._letters: list[Outgoing] = []
        self._writes_letters: bool = work == next(
            task for stage in recipe.plan.stages for task in stage.tasks
        )
        self._task: Task

    def run(self, loop: WorkLoop) -> Generator[list[Outgoing], None, None]:
        """Process everything on a loop, and yield the output in batches.

        Raises any processing error, and BackfillRefused.
        """
        with ExitStack() as ending:
            ending.callback(self._close_state)
            for source in self._sources.values():
                # Generators hold fetchers and files open until they are closed.
                ending.callback(source.close)
            loop.run(self._start())
            try:
                written: list[Outgoing] | None = self._letters
                while written is not None:
                    _check_known(written)
                    yield written
                    written = loop.run(self._step())
                self._finish()
            except BaseException:
                # Calls in flight may use the stores and services, which are closed next.
                self._task.give_up()
                loop.settle()
                raise

    @property
    def processed(self) -> int:
        """The number of records processed so far."""
        return self._task.processed

    def probe(self, loop: WorkLoop) -> None:
        """Create the processors and nothing else.

        Raises BackfillRefused for wall-clock punctuators, and any error of a processor's init.
        """
        try:
            loop.run(self._start())
            self._task.close()
        finally:
            self._close_state()

    def _close_state(self) -> None:
        for runner in (self._runner, self._globals):
            runner.close_stores(clean=False)
        self._shared.close()

    # --- begin ------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._recipe.topology.global_topics:
            await self._fill_globals()
        runner = self._runner
        starts = {where: self._starts.get(where, 0) for where in self._sources}
        self._task = runner.start(
            self.specs, starts, directory=self._directory, shared=self._shared
        )
        self._check_clock()

    async def _fill_globals(self) -> None:
        """Fill the global stores from their topics before processing, as in an app."""
        runner = self._globals
        specs = [
            msgspec.structs.replace(spec, type="in_memory")
            for spec in self._parts.stores.complete(self._recipe.topology.global_stores)
        ]
        places = {
            TopicPartition(one.topic, one.partition): one for one in self._recipe.plan.globals
        }
        starts = {where: one.start for where, one in places.items()}
        task = self._task = runner.start(
            specs, starts, directory=self._directory, shared=self._shared
        )
        runner.note_empty()
        for where, one in places.items():
            with closing(self._read(one)) as batches:
                for batch in batches:
                    behind = batch.offsets[-1] + 1
                    task.add(where, batch, behind, behind)
                    # Batch by batch, so that memory holds one batch of a global table at a time.
                    while task.process(inf):
                        pass
                    if letters := task.take_output():
                        self._letters += letters
        if self._writes_letters:
            self._globals_dropped = task.dropped
        else:
            # Another task writes the same letters.
            self._letters.clear()
        stores = runner.stores
        assert stores is not None
        stores.publish(stores.freeze(), {})
        task.close()
        runner.share_stores()

    def _check_clock(self) -> None:
        if self._task.next_punctuation is not None and not self._recipe.wall_clock:
            nodes = ", ".join(
                name
                for name in self._parts.nodes(self._work.task)
                if hasattr(self._parts.topics.topology.nodes[name], "operator")
            )
            why = (
                f"a processor of task {self._work.task} (one of {nodes}) has a wall-clock "
                "punctuator, and a backfill has no wall clock. Use stream time, or allow "
                "'wall_clock' to skip its calls"
            )
            raise BackfillRefused([why])

    # --- go on ------------------------------------------------------------------------------------

    async def _step(self) -> list[Outgoing] | None:
        """Process one slice and return its output; None when the task is finished."""
        task = self._task
        more = self._feed()
        done = task.process(_SLICE_SECONDS)
        # A processor may schedule its first wall-clock call at any record.
        self._check_clock()
        self._since += done
        if not done and not more:
            # The input is used up: finish async calls, drain, commit, then take the last output.
            if task.in_flight and not task.can_drain:
                await self._runner.wait()
            elif not task.drained:
                task.drain(inf)
            elif self._since:
                await self._commit()
            else:
                written = task.take_output()
                return written or None
        elif self._since >= _COMMIT_RECORDS or (self._task.uncommitted_bytes > self._uncommitted):
            await self._commit()
        return task.take_output()

    def _feed(self) -> bool:
        """Feed the task's empty queues; return whether there was anything, a batch or an end."""
        fed = False
        for where in [
            where for where in self._sources if not self._task.group.queues[where].buffered
        ]:
            fed = True
            batch = next(self._sources[where], None)
            if batch is None:
                del self._sources[where]
                end = self._ends.setdefault(where, self._starts.get(where, 0))
                # An end offset without lag shows that the partition has no more records, so the
                # task stops waiting.
                self._task.add(where, _NOTHING, end, end)
            elif len(batch):
                behind = batch.offsets[-1] + 1
                if where not in self._starts:
                    self._ends[where] = behind
                # Announce one more record until the end is known, so that the task waits for it.
                self._task.add(where, batch, behind, behind + 1)
        return fed

    async def _commit(self) -> None:
        """Commit to the stores, so that uncommitted changes may go to disk.

        Asynchronous processors finish their running calls first, as those may use the stores. The
        commit neither forwards their results nor sends their batches. No run resumes from this
        commit, and its timing depends on the clock.
        """
        task, stores = self._task, self._runner.stores
        self._since = 0
        if stores is None:
            return
        while task.in_flight and not task.can_drain:
            await self._runner.wait()
        token = stores.freeze()
        for name, batch in stores.changelog(token):
            self._changed[name] = self._changed.get(name, 0) + len(batch)
        stores.persist_unlogged(token)
        stores.publish(token, {name: self._changed.get(name, 0) for name in stores.logged})
        # All steps at once: nothing else runs on this loop.
        if stores.wants_flush(idle=False):
            for _ in stores.flush_steps():
                pass

    def _finish(self) -> None:
        task, name = self._task, str(self._work.task)
        positions, written = self._positions(), []
        task.close()
        if (stores := self._runner.stores) is not None:
            if self._snapshot is not None:
                written += write_memory(
                    self._parts.topics, name, self.specs, stores, self._snapshot
                )
            self._runner.close_stores(clean=True)
            if self._snapshot is not None and self._directory is not None:
                written += write_disk(
                    self._parts.topics,
                    name,
                    self.specs,
                    self._directory / name,
                    self._snapshot,
                    self._shared,
                )
        self.done: TaskDone = TaskDone(
            self._work.task,
            positions,
            task.processed,
            task.dropped + self._globals_dropped,
            tuple(written),
        )

    def _positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets for the continuing app to commit.

        Repartition topics get their end offsets in the log, as the backfill read none of their
        records there.
        """
        resume = self._recipe.plan.resume
        found = self._task.positions()
        return {
            where: found[where]
            if where in self._starts
            else msgspec.structs.replace(found[where], offset=resume.get(where, 0))
            for where in found
        }


def _check_known(written: list[Outgoing]) -> None:
    unknown = sorted(
        {
            outgoing.partition.topic
            for outgoing in written
            if outgoing.partition.partition == UNKNOWN_PARTITION
        }
    )
    if unknown:
        raise UnknownTopicOrPartition(
            f"the topology writes to topics that do not exist: {', '.join(unknown)}; create them"
        )


def probe(recipe: Recipe, loop: WorkLoop) -> None:
    """Create the processors of each subtopology to check their requests before any work starts.

    Raises BackfillRefused with all reasons.
    """
    reasons: list[str] = []
    plan = msgspec.structs.replace(
        recipe.plan,
        globals=tuple(msgspec.structs.replace(one, end=one.start) for one in recipe.plan.globals),
    )
    for stage in plan.stages:
        for work in stage.tasks[:1]:
            run = TaskRun(
                msgspec.structs.replace(recipe, plan=plan),
                work,
                None,
                read=_none,
                exchanged=dict.fromkeys(work.exchanged, _none()),
            )
            try:
                run.probe(loop)
            except BackfillRefused as refused:
                reasons += refused.reasons
    if reasons:
        raise BackfillRefused(reasons)


def _none(*_: object) -> Generator[Batch, None, None]:
    yield from ()
