"""The bootstrap of a stopped app from a snapshot."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from ks_actors._counted import counted
from ks_actors._errors import IllegalGeneration, SnapshotFailed, SnapshotRefused
from ks_actors.config import ClientIds
from ks_actors.lifecycle import component_log, run_in_thread
from ks_actors.log import (
    Assigned,
    IsolationLevel,
    MemberAssignment,
    NewMember,
    Outgoing,
    cluster_of,
)
from ks_actors.records import Batch
from ks_actors.runtime.membership import GroupView
from ks_actors.runtime.shared import StateDirectory, check_cluster, prepare_topics
from ks_actors.runtime.snapshots._bootstrap_plan import BootstrapPlan, choose_snapshot
from ks_actors.runtime.snapshots._bootstrap_versions import by_time
from ks_actors.snapshots import without_login
from ks_actors.state import Ingest, SharedResources, attach
from ks_actors.topology import StoreKind, StorePlace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from ks_actors.log import Log, MemberInfo, Membership, OffsetAndMetadata, TransactionalProducer
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.snapshots import SnapshotManifest
    from ks_actors.state import StoreIngest
    from ks_actors.task import AppTopics, StoreSpecs
    from ks_actors.topology import StoreSpec

IfSeeded: TypeAlias = Literal["refuse", "skip", "overwrite"]
Read: TypeAlias = "Callable[[], Iterator[Batch]]"
_SLICE: Final = 1_000
_YIELD_SECONDS: Final = 0.0001
_log = component_log(__name__)


@final
class Bootstrap:
    """A bootstrap of a stopped application from a snapshot.

    The log receives a single transaction, under either guarantee. It has the rows of every store as
    changelog records, deletions of changelog keys that the snapshot lacks, and the positions as the
    group's offsets. So a crash at any time leaves all records or none, and a repetition gives the
    same result. The group must be empty: the bootstrap is its only member, and a new member makes
    the transaction fail. A user's topic that serves as a changelog receives no records: up to the
    group's offset, it already defines the table.

    Stores on disk are built here from the same rows, beside the existing ones, and replace them
    after the transaction has committed. After an earlier crash, or on another machine, tasks
    restore from their changelogs as usual.
    """

    def __init__(self, topics: AppTopics, stores: StoreSpecs, log: Log) -> None:
        self._topics = topics
        self._stores = stores
        self._config = topics.config
        self._log = log

    async def seed(self, uri: str, if_seeded: IfSeeded) -> SnapshotManifest | None:
        """Load the snapshot and return its manifest; None if skipped because the group has offsets.

        Raises SnapshotFailed after `snapshot_timeout_ms` or when another member joins the group,
        and SnapshotRefused when the snapshot or the group does not permit it.
        """
        seconds = self._config.snapshot_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds), AsyncExitStack() as stack:
                return await self._seed(uri, if_seeded, stack)
        except TimeoutError as late:
            raise SnapshotFailed(
                f"loading {without_login(uri)} took longer than {seconds:g} s "
                "(snapshot_timeout_ms); nothing has changed"
            ) from late
        except IllegalGeneration as error:
            name = self._config.application_id
            raise SnapshotFailed(
                f"group {name} got another member while {without_login(uri)} was loaded; nothing "
                "has changed: stop all instances"
            ) from error

    async def _seed(
        self, uri: str, if_seeded: IfSeeded, stack: AsyncExitStack
    ) -> SnapshotManifest | None:
        topics, config = self._topics, self._config
        snapshot = await run_in_thread(partial(choose_snapshot, uri, config.application_id))
        directory = StateDirectory(config.state_dir / config.application_id)
        cluster = cluster_of(self._log)
        await run_in_thread(partial(check_cluster, directory.path, cluster))
        topics.know_topics(await prepare_topics(self._log, topics))
        plan = BootstrapPlan(topics, self._stores, snapshot)
        offsets = plan.offsets(await self._ranges(plan.sources))
        # The lock proves that no instance on this machine uses the state that will be replaced.
        process_id = await run_in_thread(partial(directory.open, cluster))
        stack.callback(directory.close)
        membership = await self._join(process_id, stack)
        # Read the offsets only after the join: from then on no other member can change them
        # unnoticed.
        committed = await membership.committed(plan.sources)
        if committed and if_seeded == "skip":
            return None
        if committed and if_seeded != "overwrite":
            raise SnapshotRefused(
                f"the group {config.application_id} has committed offsets of "
                f"{counted(len(committed), 'partition')}, so the app has run before or was seeded: "
                "pass if_seeded='skip' to keep its state, or 'overwrite' to replace it with the "
                "snapshot (also after `ks-actors reset`)"
            )
        producer = await self._log.transactional_producer(
            f"{config.application_id}-seed",
            client_id=f"{config.client_id}-seed",
            timeout_ms=config.snapshot_timeout_ms,
            scope=topics.transaction_scope(),
        )
        stack.push_async_callback(producer.close)
        shared = SharedResources()
        stack.callback(shared.close)
        # The rows of the snapshot replace those of the database of all tasks, too.
        specs = self._stores.of_all_tasks()
        await run_in_thread(
            partial(attach, shared, directory.path, specs, layout=config.state_layout)
        )
        transfer = _Transfer(
            plan, offsets, self._log, producer, shared, directory, config.client_id
        )
        stack.push_async_callback(transfer.close)
        for task in plan.tasks:
            await transfer.load(task)
        await producer.commit(offsets, membership.group)
        # Replace databases only after the commit: their rows are in the changelogs then.
        await transfer.finish()
        _log.info("%s is loaded: %d rows", snapshot.place, transfer.rows)
        return snapshot.manifest

    async def _ranges(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        begins = await self._log.begin_offsets(partitions)
        ends = await self._log.end_offsets(partitions, IsolationLevel.READ_COMMITTED)
        return {partition: (begins[partition], ends[partition]) for partition in partitions}

    async def _join(self, process_id: str, stack: AsyncExitStack) -> Membership:
        """Join the group as its only member. Raises SnapshotRefused if it has other members."""
        config = self._config
        members: list[int] = []

        def assign(
            infos: Sequence[MemberInfo], _: Mapping[str, int]
        ) -> Mapping[str, MemberAssignment]:
            members.append(len(infos))
            return {info.member_id: MemberAssignment(()) for info in infos}

        membership = await self._log.join(
            config.application_id,
            NewMember(
                client_id=ClientIds.of(config, process_id).consumer,
                # The lock on the directory proves that the old member of this process id is dead.
                takes_over=True,
                topics=self._topics.source_topics,
                user_data=GroupView(process_id, config.max_poll_interval_ms).user_data(()),
                assignor=assign,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
            ),
        )
        stack.push_async_callback(membership.leave)
        while not isinstance(await membership.event(), Assigned):
            membership.revoked()
        if members[-1:] != [1]:
            raise SnapshotRefused(
                f"the group {config.application_id} has other members: stop all instances of the "
                "app before its state is replaced"
            )
        return membership


@final
class _Transfer:
    """The transfer of rows from a snapshot into changelogs and databases."""

    def __init__(
        self,
        plan: BootstrapPlan,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        log: Log,
        producer: TransactionalProducer,
        shared: SharedResources,
        directory: StateDirectory,
        client_id: str,
    ) -> None:
        self._plan = plan
        self._offsets = offsets
        self._log = log
        self._producer = producer
        self._shared = shared
        self._directory = directory
        self._client_id = client_id
        self._ingests: list[Ingest] = []
        self.rows: int = 0

    async def load(self, task: TaskId) -> None:
        """Send the rows of a task's stores, and write the rows of stores on disk."""
        specs = self._plan.specs(task)
        ingest: Ingest | None = None
        if any(_on_disk(spec) for spec in specs):
            path = self._directory.path / str(task)
            await run_in_thread(partial(path.mkdir, parents=True, exist_ok=True))
            ingest = await run_in_thread(
                partial(Ingest, str(task), path, self._shared, self._plan.all_specs(task))
            )
            self._ingests.append(ingest)
        for spec in specs:
            on_disk = (
                await run_in_thread(partial(ingest.store, spec))
                if ingest is not None and _on_disk(spec)
                else None
            )
            await self._load_store(task, spec, on_disk)

    async def _load_store(self, task: TaskId, spec: StoreSpec, on_disk: StoreIngest | None) -> None:
        place, changelog = self._plan.snapshot.place, self._plan.changelog(task, spec)
        stored = self._plan.snapshot.manifest.tasks[str(task)].stores[spec.name]
        read = partial(self._plan.snapshot.batches, str(task), spec.name)
        if spec.source_topic is not None:
            rows, end = await self._take(read, changelog, on_disk)
        elif spec.kind is StoreKind.VERSIONED:
            rows, end = await self._send_versions(read, changelog, on_disk)
        else:
            rows, end = await self._send_rows(read, changelog, on_disk)
        if rows != stored.rows:
            raise SnapshotRefused(
                f"{place} has {rows:,} rows of store {spec.name} of task {task}, but its manifest "
                f"lists {stored.rows:,}: take the snapshot again, or use another one"
            )
        if on_disk is not None:
            on_disk.end(end, observed=stored.observed, sequence=stored.sequence)
        self.rows += rows

    async def _take(
        self, read: Read, topic: TopicPartition, on_disk: StoreIngest | None
    ) -> tuple[int, int]:
        """Read the rows of a store that restores from a user's topic, without sending them.

        The topic has all these rows up to the group's offset. Return the number of rows and that
        offset.
        """
        return await _counted(_written(read(), on_disk)), self._offsets[topic].offset

    async def _send_rows(
        self, read: Read, changelog: TopicPartition, on_disk: StoreIngest | None
    ) -> tuple[int, int]:
        """Make the changelog equal to the rows; return their number and the changelog's end."""
        old, end, _ = await self._keys_in(changelog)
        rows = 0
        async for batch in _each(_written(read(), on_disk)):
            if old:
                old.difference_update(batch.keys)
            rows += len(batch)
            for start in range(0, len(batch), _SLICE):
                end = await self._send(changelog, batch.slice(start, start + _SLICE))
        gone, now = iter(old), time.time_ns() // 1_000_000
        while keys := list(islice(gone, _SLICE)):
            end = await self._send(changelog, Batch(keys, [None] * len(keys), [now] * len(keys)))
        return rows, end

    async def _send_versions(
        self, read: Read, changelog: TopicPartition, on_disk: StoreIngest | None
    ) -> tuple[int, int]:
        """Send versions to the changelog in time order; return their number and its end.

        The database gets the versions in the snapshot's order.
        """
        _, end, empty = await self._keys_in(changelog)
        if not empty:
            raise SnapshotRefused(
                f"{changelog} already has records: older versions of a key cannot be added after "
                "them. Run `ks-actors reset`, which deletes this changelog, then load "
                f"{self._plan.snapshot.place} with if_seeded='overwrite'"
            )
        rows = 0
        async for batch in _each(by_time(read)):
            end = await self._send(changelog, batch)
            rows += len(batch)
        if on_disk is not None:
            await _counted(_written(read(), on_disk))
        return rows, end

    async def _send(self, changelog: TopicPartition, batch: Batch) -> int:
        (end,) = await self._producer.send([Outgoing(changelog, batch)])
        return end

    async def _keys_in(self, changelog: TopicPartition) -> tuple[set[bytes], int, bool]:
        """Return a changelog's keys with values (mostly none), its end, and whether it is empty."""
        begins = await self._log.begin_offsets([changelog])
        ends = await self._log.end_offsets([changelog], IsolationLevel.READ_COMMITTED)
        at, end = begins[changelog], ends[changelog]
        keys: set[bytes] = set()
        empty = True
        if at < end:
            fetcher = self._log.fetcher(
                client_id=f"{self._client_id}-seed", isolation=IsolationLevel.READ_COMMITTED
            )
            try:
                fetcher.assign({changelog: at})
                while at < end:
                    for fetched in await fetcher.fetch(max_wait_ms=100):
                        at = fetched.next_offset
                        empty = empty and not fetched.batch.keys
                        for key, value in zip(
                            fetched.batch.keys, fetched.batch.values, strict=True
                        ):
                            (keys.discard if value is None else keys.add)(key)
            finally:
                await fetcher.close()
        return keys, end, empty

    async def finish(self) -> None:
        """Move the databases into place. On failure, stores restore from their changelogs."""
        for ingest in self._ingests:
            await run_in_thread(
                partial(ingest.finish, f"snapshot {self._plan.snapshot.place} is loaded")
            )

    async def close(self) -> None:
        """Delete the unfinished databases."""
        for ingest in self._ingests:
            await run_in_thread(ingest.__exit__)


def _on_disk(spec: StoreSpec) -> bool:
    """Return whether a store's rows belong in its task's database.

    Custom stores and stores with their own engine restore from their changelogs.
    """
    return spec.place is StorePlace.DATABASE


def _written(batches: Iterator[Batch], on_disk: StoreIngest | None) -> Iterator[Batch]:
    """Write the batches and yield them; timestamps below 0 (none) become 0."""
    for batch in batches:
        if on_disk is not None:
            on_disk.write(batch, lambda: time.sleep(_YIELD_SECONDS))
        yield (
            batch
            if min(batch.timestamps) >= 0
            else Batch(
                batch.keys,
                batch.values,
                [max(0, each) for each in batch.timestamps],
                batch.headers,
            )
        )


async def _each(batches: Iterator[Batch]) -> AsyncIterator[Batch]:
    """Yield batches that are made in a thread."""
    while (batch := await run_in_thread(partial(next, batches, None))) is not None:
        yield batch


async def _counted(batches: Iterator[Batch]) -> int:
    """Consume batches that are made in a thread; return their number of rows."""
    return sum([len(batch) async for batch in _each(batches)])
