"""The actor that takes snapshots."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, assert_never

from actors import Actor, Mailbox, Signal, Started, Stopping
from ks_actors._errors import SnapshotFailed, StoreClosed
from ks_actors.lifecycle import component_log
from ks_actors.runtime import messages as m
from ks_actors.runtime.messages import SnapshotsMessage
from ks_actors.runtime.snapshots._snapshot_files import (
    checkpoint_directory,
    left_out,
    positions_of,
    shape_of,
    topology_fingerprint,
    write_checkpoint_rows,
)
from ks_actors.snapshots import SnapshotWriter, delete_old_snapshots, without_login
from ks_actors.state import log_batch
from ks_actors.task import Role
from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors import Ref, Reply
    from ks_actors.config import StreamsConfig
    from ks_actors.runtime.shared import Metrics
    from ks_actors.snapshots import SnapshotManifest, StoreSnapshot
    from ks_actors.state import Rows, SharedResources
    from ks_actors.task import AppTopics, StoreRegistry, StoreSpecs
    from ks_actors.topology import StoreSpec

T = TypeVar("T")
P = ParamSpec("P")
SNAPSHOTS_MAILBOX = Mailbox(capacity=1_000, overflow="fail_system")
IN_ORDER = (
    StoreKind.KEY_VALUE,
    StoreKind.TIMESTAMPED_KEY_VALUE,
    StoreKind.KEY_VALUE_WITH_HEADERS,
)
_ROWS = 500
_LOOK_SECONDS = 0.01
_log = component_log(__name__)


class _Gone(Exception):
    """The task is no longer here."""


class Snapshots(Actor[SnapshotsMessage]):
    """The actor that takes snapshots of all tasks processed here, and deletes old snapshots.

    It takes a snapshot every `snapshot_interval_ms` and on request, never two at once. The state
    manager makes a checkpoint of each task: its committed state at one moment, linked into a
    directory. A thread writes the task's rows from there while the task goes on. A failure is
    logged and counted, and the unfinished snapshot is deleted; nothing else is affected. Copies are
    made below `directory`, which the start empties: any files there come from killed processes.
    """

    def __init__(
        self,
        topics: AppTopics,
        *,
        stores: StoreSpecs,
        wall_time: Callable[[], int],
        registry: StoreRegistry,
        shared: SharedResources,
        directory: Path,
        state: Ref[m.StateManagerMessage],
        metrics: Metrics,
    ) -> None:
        self._topics = topics
        self._config: StreamsConfig = topics.config
        self._stores = stores
        self._wall_time = wall_time
        self._registry = registry
        self._shared = shared
        self._directory = checkpoint_directory(directory)
        self._state = state
        self._metrics = metrics
        self._asked: list[Reply[SnapshotManifest]] = []
        self._busy: bool = False
        # The function that a thread runs now.
        self._running: str = ""
        self._numbers = itertools.count()
        self._stop = threading.Event()

    async def signal(self, signal: Signal) -> None:
        """Empty the directory and start the timer; at the end, abort the running snapshot."""
        if isinstance(signal, Started):
            await self.ctx.blocking(partial(shutil.rmtree, self._directory, ignore_errors=True))
            if self._config.snapshot_interval_ms:
                self.ctx.timers.every(
                    "snapshot", self._config.snapshot_interval_ms / 1000, m.SnapshotTimer()
                )
        elif isinstance(signal, Stopping):
            self._stop.set()

    def receive(self, message: SnapshotsMessage) -> None:
        """Take a snapshot unless another is under way."""
        match message:
            case m.TakeSnapshot():
                if message.reply.wanted():
                    self._asked.append(message.reply)
                    self._begin()
            case m.SnapshotTimer():
                if self._registry.stateless or any(
                    registered.role is Role.ACTIVE for registered in self._registry
                ):
                    self._begin()
            case m.SnapshotTaken():
                self._busy = False
                for reply in self._take_requests():
                    reply.tell(message.manifest)
            case m.SnapshotNotTaken():
                self._busy = False
                self._metrics.snapshots_failed += 1
                _log.warning("no snapshot was taken: %s", message.error)
                for reply in self._take_requests():
                    reply.fail(message.error)
            case _:
                assert_never(message)

    def _take_requests(self) -> list[Reply[SnapshotManifest]]:
        asked, self._asked = self._asked, []
        return asked

    def _begin(self) -> None:
        if not self._busy:
            self._busy = True
            self.ctx.pipe(self._take(), m.SnapshotTaken, m.SnapshotNotTaken)

    async def _take(self) -> SnapshotManifest:
        began = self.ctx.time()
        seconds = self._config.snapshot_timeout_ms / 1000
        stop = threading.Event()
        writer: SnapshotWriter | None = None
        try:
            async with asyncio.timeout(seconds):
                writer = await self._in_thread(self._writer)
                manifest = await self._write(writer, lambda: stop.is_set() or self._stop.is_set())
                # Delete old snapshots last, so that a failure never deletes the only good snapshot.
                await self._delete_old(manifest)
        except Exception as error:
            # A thread cannot be cancelled: it checks this between two blocks.
            stop.set()
            if writer is not None:
                await self._give_up(writer)
            if isinstance(error, SnapshotFailed):
                raise
            reason = (
                f"it was not complete within {seconds:g} s (snapshot_timeout_ms)"
                if isinstance(error, TimeoutError)
                else repr(error)
            )
            raise SnapshotFailed(
                without_login(f"the snapshot for {self._config.snapshot_uri} failed: {reason}")
            ) from error
        self._metrics.snapshot_taken(manifest, self.ctx.time() - began)
        return manifest

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a shared thread.

        Raises SnapshotFailed while an abandoned function still runs, as the threads are shared.
        """
        if self._running:
            raise SnapshotFailed(f"work for an earlier snapshot is still running: {self._running}")

        def run() -> T:
            try:
                return function(*args, **kwargs)
            finally:
                self._running = ""

        self._running = getattr(function, "__qualname__", repr(function))
        return await self.ctx.blocking(run)

    def _writer(self) -> SnapshotWriter:
        uri, now = self._config.snapshot_uri, self._wall_time()
        assert uri is not None
        return SnapshotWriter(
            uri,
            self._config.application_id,
            created_ms=now,
            topology=topology_fingerprint(self._stores.by_subtopology),
        )

    async def _write(self, writer: SnapshotWriter, stop: Callable[[], bool]) -> SnapshotManifest:
        for registered in self._registry:
            if registered.role is Role.ACTIVE:
                directory = self._directory / f"{registered.task}-{next(self._numbers)}"
                checkpoint = await self._state.ask(
                    m.TakeCheckpoint, registered.task, directory
                ).within(self._config.snapshot_timeout_ms / 1000)
                if checkpoint is not None:
                    await self._write_task(checkpoint, writer, stop)
        for task, positions in self._registry.stateless.items():
            writer.add(str(task), positions=positions_of(positions, {}))
        if writer.is_empty:
            raise SnapshotFailed(
                f"this instance processes no task, so snapshot {writer.name} would be empty"
            )
        return await self._in_thread(writer.commit)

    async def _write_task(
        self, checkpoint: m.Checkpoint, writer: SnapshotWriter, stop: Callable[[], bool]
    ) -> None:
        specs = self._stores.of_task(checkpoint.task)
        stores: list[StoreSnapshot] = []
        try:
            if checkpoint.directory is not None:
                stores += await self._in_thread(
                    write_checkpoint_rows,
                    checkpoint,
                    specs,
                    writer,
                    self._shared,
                    self._topics.changelog,
                    self._topics.topic_ids,
                    stop,
                )
            for spec in specs:
                if spec.name in checkpoint.rows:
                    stores.append(
                        await self._write_rows(checkpoint, spec, checkpoint.rows[spec.name], writer)
                    )
        except _Gone as gone:
            _log.info("task %s is not in snapshot %s: %s", checkpoint.task, writer.name, gone)
            return
        finally:
            if checkpoint.directory is not None:
                await self._in_thread(
                    partial(shutil.rmtree, checkpoint.directory, ignore_errors=True)
                )
        writer.add(
            str(checkpoint.task),
            *stores,
            positions=positions_of(checkpoint.positions, checkpoint.metadata),
            left_out=left_out(specs, stores),
        )

    async def _write_rows(
        self, checkpoint: m.Checkpoint, spec: StoreSpec, rows: Rows, writer: SnapshotWriter
    ) -> StoreSnapshot:
        """Write a store that is in memory, reading some rows at a time on the event loop."""
        store = self._store(checkpoint, spec)
        shape = shape_of(spec)
        out = writer.store(str(checkpoint.task), shape)
        batches = []
        try:
            for _ in rows.steps:
                await asyncio.sleep(0)
            while found := list(itertools.islice(rows, _ROWS)):
                batch = log_batch(store, found)
                # Other kinds of stores iterate in time order: collect their rows and sort them at
                # the end.
                if spec.kind not in IN_ORDER:
                    batches.append(batch)
                else:
                    await self._in_thread(out.write, batch)
                await asyncio.sleep(0)
        except StoreClosed as closed:
            self._store(checkpoint, spec)
            raise SnapshotFailed(
                f"store {spec.name} of task {checkpoint.task} was closed while it was read: "
                f"{closed}"
            ) from closed
        if batches:
            # The rows are in memory anyway, so a copy in memory is affordable.
            await self._in_thread(out.write_unsorted, batches)
        offset, (observed, sequence) = (
            checkpoint.next_offsets[spec.name],
            checkpoint.facts[spec.name],
        )
        changelog = self._topics.changelog(spec.name)
        return await self._in_thread(
            partial(
                out.close,
                changelog=changelog,
                next_offset=offset,
                observed=observed,
                sequence=sequence,
                changelog_id=self._topics.topic_ids.get(changelog, ""),
            )
        )

    def _store(self, checkpoint: m.Checkpoint, spec: StoreSpec) -> Any:
        registered = self._registry.get(checkpoint.task)
        # A task that has left and come back has other stores, with newer rows.
        if registered is None or registered.stores is not checkpoint.stores:
            raise _Gone("it has moved to another instance meanwhile")
        return registered.stores.store(spec.name)

    async def _delete_old(self, manifest: SnapshotManifest) -> None:
        config = self._config
        assert config.snapshot_uri is not None
        delete = partial(
            delete_old_snapshots,
            config.snapshot_uri,
            config.application_id,
            keep=config.snapshot_keep,
            now_ms=self._wall_time(),
            spare=(manifest.name,),
        )
        try:
            gone = await self._in_thread(delete)
        except Exception as error:  # noqa: BLE001 - the snapshot exists; the next one tries again
            _log.warning("could not delete old snapshots: %s", without_login(str(error)))
        else:
            _log.info(
                "snapshot %s of %d tasks is complete%s",
                manifest.name,
                len(manifest.tasks),
                f"; deleted: {', '.join(gone)}" if gone else "",
            )

    async def _give_up(self, writer: SnapshotWriter) -> None:
        try:
            async with asyncio.timeout(self._config.snapshot_timeout_ms / 1000):
                # The abandoned thread may still write files that the abort deletes.
                while self._running:  # noqa: ASYNC110 - a thread sets it; a wait is rare
                    await asyncio.sleep(_LOOK_SECONDS)
                await self._in_thread(writer.abort)
        except Exception as error:  # noqa: BLE001 - it has no manifest, and goes after a day
            _log.warning(
                "could not delete the partly written snapshot %s: %s",
                writer.name,
                without_login(str(error)),
            )
