"""All stores of one task: they commit together and share one database."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, final
from weakref import ref

from ks_actors._errors import IllegalTransition, StateError, TaskCorrupted
from ks_actors.records import Batch
from ks_actors.serdes import rows_of_topic
from ks_actors.state._discard import without_copy
from ks_actors.state.core import SLICE, StoreParts, TaskMemory, no_record
from ks_actors.state.custom import (
    CustomStores,
    SuppliedEngines,
    by_engine,
    look_around,
    note_present,
)
from ks_actors.state.disk import (
    BEHIND,
    TOPIC_IDS,
    CheckpointFile,
    SharedResources,
    TopicIds,
    facts_row,
    offset_row,
    open_database,
    raise_if_full,
)
from ks_actors.state.disk import NAME as CHECKPOINT_FILE
from ks_actors.state.task_stores._commit_times import CommitTimes
from ks_actors.state.task_stores._commit_token import Token
from ks_actors.state.task_stores._kinds import codec_of, make_store
from ks_actors.state.task_stores._open_stores import Opened, Place, open_stores
from ks_actors.state.task_stores._store_set import StoreSet
from ks_actors.state.task_stores._unlogged import write_frozen
from ks_actors.state.task_stores._wipe import wipe
from ks_actors.system import Later
from ks_actors.topology import HEADED, StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ks_actors.records import Headers
    from ks_actors.state.core import Engine, StoreForTasks
    from ks_actors.state.task_stores._positions import At
    from ks_actors.topology import StoreSpec

if TYPE_CHECKING:
    from ks_actors.state import timed
else:
    timed = Later("ks_actors.state.timed")

RESTORING_TAIL: Final = 4
"""How many times more records a restoring task may replay after a crash than a running task.

Writing less often rewrites fewer rows.
"""


@final
class TaskStores(StoreSet):
    """The stores of one task; call `open`, then `store` with a name of the topology.

    `directory` is the task's own. Without one, and for stores of type in_memory, nothing is on disk
    and all state comes from the changelogs. `record_time` returns the timestamp (ms) of the current
    record, and `record_headers` its headers. `expired` is called with the number of puts that came
    too late for a window store.

    `topics` are the names of the changelog topics by store, for serdes and the checkpoint file; by
    default a store's name. `exact` requires that a crash leaves exactly the committed state. With
    `vectors`, changelogs carry positions (see Positions). `assigned` says that the group assigns
    tasks by their stores' progress, as found in the checkpoint file. `topic_ids` tell of topics
    that were deleted and created again.

    `open`, `close` and `give_up` block; nothing else does, except for calls of custom stores. The
    stores belong to one thread at a time.
    """

    def __init__(
        self,
        task: str,
        specs: Sequence[StoreSpec],
        *,
        directory: Path | None,
        shared: SharedResources | None,
        record_time: Callable[[], int],
        expired: Callable[[int], None],
        topics: Mapping[str, str] | None = None,
        exact: bool = False,
        vectors: bool = False,
        assigned: bool = True,
        record_headers: Callable[[], Headers] = no_record,
        topic_ids: TopicIds | None = None,
    ) -> None:
        super().__init__(task, specs, vectors=vectors)
        self._directory: Path | None = directory
        self._shared = shared
        self._record_time: Callable[[], int] = record_time
        self._record_headers: Callable[[], Headers] = record_headers
        self._expired: Callable[[int], None] = expired
        self._topics: Mapping[str, str] = topics or {}
        self._file: CheckpointFile = CheckpointFile(
            task, directory if assigned else None, self._topics
        )
        self.topic_ids: TopicIds = topic_ids or TopicIds(task, None, {}, {})
        # Only for serdes that take headers: functions that make rows without headers.
        self._rows_of: dict[str, Callable[[Batch], Batch]] = {
            spec.name: rows
            for spec in specs
            if spec.name in self.sources
            and (rows := rows_of_topic(spec.key, spec.value, self.sources[spec.name])) is not None
        }
        self._headed: frozenset[str] = frozenset(spec.name for spec in specs if spec.kind in HEADED)
        self._custom: CustomStores = CustomStores(
            task, directory, self._file, record_time, exact=exact
        )
        self.commit_times: CommitTimes = CommitTimes()
        self._memory: TaskMemory | None = None
        self._written: dict[str, int] = {}
        self._unlogged_records: int = 0
        self._tokens: int = 0
        self._supplied: SuppliedEngines = SuppliedEngines(task, specs, directory)
        self._frozen: Token | None = None
        self.restoring: bool = False  # assigned for processing, but still restoring
        # on disk, stores without changelog are ahead of the last commit
        self._ahead: bool = False
        self._write: bool = True
        self._steps: ref[Generator[None, None, None]] | None = None
        self._given_up: bool = False
        self._in_shared: frozenset[str] = frozenset()
        # Stores with unusable state on disk at the next open, each with the reason.
        self.unfit: Mapping[str, str] = {}

    # Opening and closing.

    def open(self) -> None:
        """Make the stores with their state on disk. Blocks.

        Raises StateLocked, TaskCorrupted and StateFull; the directory is then unlocked again.
        """
        self._stores, self._offsets, self._written, self._given_up = {}, {}, {}, False
        self.positions.forget()
        names, unfit = look_around(self.task, self._directory, self._specs)
        unfit |= self.topic_ids.read(there=TOPIC_IDS in names)
        in_database = self._directory is not None and bool(self._in_database)
        if self._supplied.wanted or in_database:
            self._shared = self._shared or SharedResources()
        if in_database and self._directory is not None and self._shared is not None:
            only = bool(without_copy(self._specs))
            self._engine = open_database(
                self.task, self._directory, self._shared, names, careful=only
            )
        self._in_shared = self._in_database if self.in_shared else frozenset()
        try:
            self._supplied.open()
            self._open_stores({**unfit, **self.unfit}, names)
            self.positions.leave(self.topic_ids.others, self._stores)
            # Last: the file tells the group of this state, so it may name only state that is really
            # open.
            self._file.write(self._written, self._lost)
            note_present(self._directory, self._specs)
            self.topic_ids.write()
        except BaseException as error:
            self._release_after(error)
            raise_if_full(error, f"task {self.task}: the state in {self._directory}")
            raise

    def _open_stores(self, unfit: Mapping[str, str], names: frozenset[str]) -> None:
        known = self._file.read(there=CHECKPOINT_FILE in names)
        place = Place(
            self.task, self._directory, self._file, self._custom, self.positions, known, names
        )
        open_stores(
            place,
            self._specs,
            self._engine,
            self._supplied.by_store,
            self._make,
            Opened(self._stores, self._offsets, self._written),
            topics=self._topics,
            unfit=unfit,
        )
        if self._engines and self._shared is not None:
            self._memory = TaskMemory(
                self._shared.memory,
                [store for store in self._stores.values() if store.engine is not None],
            )

    def _make(self, spec: StoreSpec, engine: Engine | None) -> StoreForTasks:
        codec = codec_of(spec, self._topics.get(spec.name, spec.name), self._record_headers)
        return make_store(StoreParts(spec, codec, engine, self._record_time, self._expired))

    def close(self, *, clean: bool) -> None:
        """Release everything; with `clean`, first write the committed state. Blocks.

        Uncommitted changes are lost either way. A database that has turned out to be damaged is
        deleted, so that the next opening restores its stores. Raises StateError.
        """
        self._stop_flush()
        engines = self._engines
        try:
            self._close(clean=clean and not _damage(engines))
        except TaskCorrupted:
            if not _damage(engines):
                raise
        if damage := _damage(engines):
            self.give_up(damage)
            return
        self._file.write(self._written, self._lost)

    @property
    def damaged(self) -> bool:
        """Whether the open stores' data on disk cannot be read any more."""
        return bool(_damage(self._engines))

    def _close(self, *, clean: bool) -> None:
        try:
            if clean and self._engines:
                self._write = True
                for _ in self._flush(last=True):
                    pass
                for engine in self._engines:
                    if not engine.shared:
                        engine.flush(wait=True)
        finally:
            # Even after a failed write: another member may need the lock.
            self._release()

    def _release(self) -> None:
        """Close all, even when a custom store or an engine fails. Raises the last such error."""
        engine, self._engine = self._engine, None
        with ExitStack() as closing:
            if engine is not None:
                closing.callback(engine.close)
            closing.callback(self._supplied.close)
            for store in reversed(self._stores.values()):
                closing.callback(store.close)
            if self._memory is not None:
                closing.callback(self._memory.leave)

    def _release_after(self, error: BaseException) -> None:
        """Close all after a failed opening, whose error is the one to raise."""
        try:
            self._release()
        except Exception as more:  # noqa: BLE001 - the user's code
            error.add_note(f"and its stores cannot be closed: {type(more).__name__}: {more}")
        self._stores = {}

    @property
    def _engines(self) -> list[Engine]:
        database = [] if self._engine is None else [self._engine]
        return [*database, *self._supplied.by_store.values()]

    def _lost(self, store: str) -> bool:
        """Return whether a store keeps nothing, or has a database that is flushed after a close."""
        forgetful = store in self._supplied.forgetful or self._custom.lost(store)
        return forgetful or store in self._in_shared

    def give_up(self, reason: str) -> None:
        """Delete the database, and the data of supplied engines. Custom stores stay. Blocks.

        Call it after `close` or a failed `open`. If a store in the database or in an engine has no
        changelog, raises StateError and deletes nothing.
        """
        if self._engines:
            raise IllegalTransition(f"task {self.task}: close its state before you delete it")
        if self._given_up or self._directory is None:
            return
        wipe(self.task, self._directory, self._specs, self._shared, self._file, reason)
        self._given_up = True

    # The stores.

    @property
    def stored_offset_sum(self) -> int | None:
        """The progress on disk: the sum of stored offsets; None for a task without disk state.

        May be read after `close`.
        """
        on_disk = self._directory is not None and any(
            spec.place is not StorePlace.MEMORY and spec.name not in self._supplied.forgetful
            for spec in self._specs
        )
        forgetful = self._supplied.forgetful
        kept = [at for name, at in self._written.items() if name not in forgetful]
        return sum(kept) if on_disk else None

    def compact_steps(self) -> Iterator[None]:
        """Compact all published changes, some of them per step.

        After commits, take these steps before `restore` continues: changes that are not compacted
        would count as newer than the restored records.
        """
        while any(store.uncompacted() for store in self._stores.values()):
            for store in self._stores.values():
                store.compact(SLICE)
            yield

    def restore(self, store: str, batch: Batch, next_offset: int) -> None:
        """Apply records of a store's changelog as committed.

        The columns are bytes; None deletes, and the last record of a key counts. Call `wants_flush`
        regularly while restoring: restored rows wait in memory.
        """
        restored = self._stores[store]
        if store in self.sources:
            self.positions.advance((store,), {self._file.partition(store): next_offset - 1})
            if None in batch.keys:
                # records without key are no rows, as in processing
                batch = batch.select([key is not None for key in batch.keys])
            if (rows := self._rows_of.get(store)) is not None:
                batch = rows(batch)
        elif batch.headers is not None:
            self.positions.restored(store, batch.headers)
            if self.positions.vectors and store in self._headed:
                headers = self.positions.unmarked(batch.headers)
                batch = Batch(batch.keys, batch.values, batch.timestamps, headers, batch.offsets)
        # Before the offset: an error must not skip the record.
        restored.restore(batch)
        # In memory only: the offset goes to disk together with the rows, never ahead of them.
        self._offsets[store] = next_offset
        if self._memory is not None and batch.keys:
            restored.row_weight.learn(batch.keys[-1], batch.values[-1])
            self._memory.measure()

    def begin_with(
        self, store: str, next_offset: int, *, observed: int = -1, sequence: int = 0
    ) -> None:
        """Set the next offset of an in-memory store before `restore` loads it from another source.

        `observed` and `sequence` are for stores with times: the latest put time and the last
        sequence number.
        """
        if observed >= 0:
            self._stores[store].recall(timed.FACTS.pack(observed, sequence))
        self._offsets[store] = next_offset

    # Commit.

    def freeze(self, position: At | None = None) -> Token:
        """Begin a new transaction and freeze the open one for commit; O(number of stores).

        Only one token can be in progress at a time. `position` is the task's position in its input.
        """
        if self._frozen is not None:
            raise IllegalTransition(
                f"task {self.task}: {self._frozen} is still being committed; publish or drop it "
                "first"
            )
        self._changing, self._changed_at = (
            # Before the freeze, because the freeze begins a new count of puts.
            frozenset(filter(self._puts, self._stores)),
            position or {},
        )
        for store in self._stores.values():
            store.freeze()
        self._tokens += 1
        self._frozen = Token(self._tokens)
        return self._frozen

    def _check(self, token: Token) -> None:
        if token is not self._frozen:
            raise IllegalTransition(
                f"task {self.task}: {token} is not being committed, but "
                f"{self._frozen or 'no state'} is"
            )

    def changelog(self, token: Token, *, batch_bytes: int = 0) -> Iterator[tuple[str, Batch]]:
        """Return store names and frozen records, the last value of each key, in slices.

        The stores may be used between slices. `batch_bytes` is the log's largest batch: such a log
        gets encoded batches where one pass can encode them. Other logs get columns. Raises
        SerializationError when a value cannot be written.
        """
        self._check(token)
        for name in self.logged:
            # If the changelog is a source topic, the topic already has the records.
            if name in self.sources:
                continue
            store = self._stores[name]
            marked = name in self._changing and self.positions.vectors
            batches = store.changelog(batch_bytes=batch_bytes, marked=marked)
            for batch in (
                self.positions.marked(name, batches, self._changed_at) if marked else batches
            ):
                yield name, batch

    def persist_unlogged(self, token: Token) -> None:
        """Write the frozen changes of stores without changelog, all or nothing.

        The written changes survive a crash. Call it before `publish`. Raises StateFull.
        """
        self._check(token)
        self._custom.commit_unlogged()
        stores = [
            store
            for store in self._stores.values()
            if not store.logged and store.engine is not None
        ]
        write_frozen(self._engines, stores, self.positions, self._changing, self._changed_at)
        token.persisted = self._ahead = True

    def publish(self, token: Token, offsets: Mapping[str, int]) -> None:
        """Mark the frozen transaction as committed.

        `offsets` are the end offsets of the stores' changelogs; a store without an entry keeps its
        offset.
        """
        self._check(token)
        # Only a share of the work: workers wait for this call, and the rest is done in
        # `flush_steps`.
        share = SLICE // max(1, len(self._stores))
        for store in self._stores.values():
            count = self.commit_times.publish(store, written=token.persisted and not store.logged)
            if not store.logged and store.engine is not None and not token.persisted:
                self._unlogged_records += count
            store.compact(share)
        self._offsets.update(offsets)
        self.positions.advance(self._changing, self._changed_at)
        self._frozen, self._changing, self._ahead = None, frozenset(), False
        self._custom.commit(self._offsets, self._written, self.commit_times)
        if self._custom.in_file:
            self._file.write(self._written, self._lost)
        if self._memory is not None:
            self._memory.measure()

    def drop(self) -> None:
        """Roll back to the last commit: discard the frozen transaction and all later puts.

        Raises TaskCorrupted when a custom store cannot roll back. Then close the task and open it
        again, to restore the store.
        """
        for store in self._stores.values():
            store.drop()
        self._frozen, self._changing = None, frozenset()
        self._custom.check()

    # Writing to disk.

    def _tail(self) -> float:
        """Return the replay due after a crash, as a fraction of the allowed replay."""
        logged = sum(
            offset - self._written.get(name, 0)
            for name, offset in self._offsets.items()
            if self._stores[name].engine is not None
        )
        if self._shared is None:
            return 0.0
        part = self._shared.part_of_tail(logged + self._unlogged_records)
        return part / RESTORING_TAIL if self.restoring else part

    def wants_flush(self, idle: bool) -> bool:
        """Return whether `flush_steps` is due.

        It is due if a crash would replay much, if memory is short, or if `idle` is set and there is
        anything to do.
        """
        # The caller still has unfinished steps; a second series would write the same rows.
        if self._steps is not None and self._steps() is not None:
            return False
        stores, shared = self._stores.values(), self._shared
        if shared is not None and self._memory is not None:
            unwritten = any(store.has_unwritten() for store in stores)
            self._write = (
                self._tail() >= 1
                or sum(store.unwritten_bytes for store in stores) >= shared.tail_bytes
                or (
                    idle
                    and (
                        unwritten
                        or any(
                            self._written.get(store.name) != self._offsets.get(store.name)
                            for store in stores
                            if store.engine
                        )
                    )
                )
            )
            if self._write:
                return True
            if self._memory.presses():
                self._write = unwritten
                return True
        memory_only = any(store.wants_eviction(idle=idle) for store in stores) or (
            self._engine is not None and self._engine.owes
        )
        self._write = not memory_only
        return memory_only

    @property
    def memory_is_short(self) -> bool | None:
        """Whether the stores of all tasks exceed the memory budget; None without a budget.

        If they do, even unchanged stores may have to evict rows.
        """
        return None if self._memory is None else self._memory.short

    @property
    def pressing(self) -> bool:
        """Whether memory is so far over the budget that restoring must wait for writes."""
        return self._memory is not None and self._memory.pressing

    @property
    def behind(self) -> bool:
        """Whether puts must wait for `flush_steps`: memory or replay is far over its limit."""
        return self.pressing or (self._memory is not None and self._tail() > BEHIND)

    def flush_steps(self) -> Iterator[None]:
        """Write the committed state in steps of about half a millisecond, the offsets last.

        Let others run between the steps. You may abandon the steps at any time and start again. If
        `wants_flush` found nothing to write, the steps only compact and evict. Raises StateFull;
        unwritten rows then stay in memory for the next try.
        """
        self._stop_flush()
        steps = self._flush()
        # A weak reference: a caller may simply drop the steps, and a new series may begin then.
        self._steps = ref(steps)
        return steps

    def point_steps(self) -> Iterator[None]:
        """Write the committed state, as `flush_steps` does, and evict nothing.

        At the end the database has exactly the committed state, unless a commit comes meanwhile.
        """
        self._stop_flush()
        self._write = True
        return self._flush(last=True)

    def checkpoint(self, directory: Path) -> None:
        """Copy the database into a new directory by hard links. Blocks.

        Write nothing meanwhile.
        """
        if self._engine is None:
            raise StateError(f"task {self.task} has no state on disk, or is not open")
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._engine.checkpoint(directory)

    def _stop_flush(self) -> None:
        steps = None if self._steps is None else self._steps()
        if steps is not None:
            steps.close()
        self._steps = None

    def _flush(self, *, last: bool = False) -> Generator[None, None, None]:
        write, self._write = self._write, True
        stores = list(self._stores.values())
        try:
            if self._engine is not None and self._engine.owes:
                self._engine.flush(wait=False)
            # All stores before any write: the offsets below must hold for each of them.
            while any(store.uncompacted() for store in stores):
                for store in stores:
                    store.compact(SLICE)
                yield
            if write:
                yield from self._write_all([store for store in stores if store.engine is not None])
            if not last:  # otherwise all memory is about to be released
                yield from self._evict(stores)
        finally:
            self._steps = None

    def _evict(self, stores: list[StoreForTasks]) -> Iterator[None]:
        memory = self._memory
        if memory is not None:
            memory.begin_eviction()
        try:
            for store in stores:
                yield from store.evict()
        finally:
            if memory is not None:
                memory.end_eviction()

    def _write_all(self, stores: list[StoreForTasks]) -> Iterator[None]:
        owners = by_engine(self._engines, stores)
        # No `publish` may come between the last compacted change and this line: the offsets would
        # be ahead of the data.
        offsets = {
            store.name: self._offsets[store.name] for store in stores if store.name in self._offsets
        }
        positions = {store.name: self.positions.of(store.name) for store in stores}
        self._unlogged_records = 0
        for store in stores:
            # All stores at the same moment, so that the offsets fit all of them.
            store.begin_write()
        for engine, own in owners:
            for store in own:
                yield from store.write_slices(engine)
        for engine, own in owners:
            self._write_progress(engine, own, offsets, positions)
        yield

    def _write_progress(
        self,
        engine: Engine,
        stores: list[StoreForTasks],
        offsets: Mapping[str, int],
        positions: Mapping[str, At],
    ) -> None:
        """Write the offsets, facts and positions that belong to the written rows."""
        offsets = {store.name: offsets[store.name] for store in stores if store.name in offsets}
        # `persist_unlogged` may have written newer facts and positions of stores without changelog:
        # keep those.
        current = [store for store in stores if store.logged or not self._ahead]
        known = ((store.name, store.facts()) for store in current)
        facts = (facts_row(name, found) for name, found in known if found is not None)
        rows = self.positions.rows(
            {store.name: positions[store.name] for store in current}, self.logged
        )
        engine.write(
            [*(offset_row(name, offset) for name, offset in offsets.items()), *facts, *rows]
        )
        # Only after the write: `close` and the checkpoint file report these offsets as being on
        # disk.
        self._written.update(offsets)
        engine.flush(wait=False)


def _damage(engines: Iterable[Engine]) -> str:
    """Return the first error by which an engine has found its data damaged; empty without one."""
    return next((engine.damage for engine in engines if engine.damage), "")
