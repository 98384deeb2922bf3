"""Custom stores: user-defined stores of a task."""

from __future__ import annotations

import shutil
import warnings
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast, final

from ks_actors._errors import SerializationError, StateError, StoreClosed, TaskCorrupted
from ks_actors.records import Batch
from ks_actors.state._discard import give_up
from ks_actors.state.core import NO_LIMIT, RECORD_BYTES, SLICE, RowWeight, StoreForTasks
from ks_actors.state.custom._directory import OPEN, directory_of, marker_of
from ks_actors.topology import StateStore, StateStoreContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping
    from pathlib import Path

    from ks_actors.log import TopicPartition
    from ks_actors.state.core import Engine
    from ks_actors.state.disk import CheckpointFile
    from ks_actors.state.task_stores import CommitTimes
    from ks_actors.topology import StoreSpec

Change = tuple[bytes | None, int]


@final
class CustomStore(StoreForTasks):
    """The wrapper of a custom store: its changelog, its offsets and its end of life.

    Changes that the custom store reports wait here for the changelog, the last one of each key. The
    data belongs to the custom store and cannot be rolled back here. On a rollback, a store that
    manages its offsets is opened again at its last commit. Any other changed store becomes
    `spoiled`.
    """

    engine: Engine | None = None
    prefix: bytes = b""
    segment_ms: int = 0
    unwritten_bytes: int = 0
    resident_records: int = NO_LIMIT

    def __init__(
        self,
        spec: StoreSpec,
        task: str,
        directory: Path | None,
        file: CheckpointFile,
        record_time: Callable[[], int],
    ) -> None:
        self.name: str = spec.name
        self.logged: bool = spec.logging
        self.row_weight: RowWeight = RowWeight()
        self.offset: int | None = None
        self.spoiled: bool = False
        self.kept: bool = False  # the committed state is still on disk after a close
        self._spec: StoreSpec = spec
        self._task: str = task
        self._directory: Path | None = directory
        self._file: CheckpointFile = file
        self._changelog: TopicPartition = cast("TopicPartition", file.partition(spec.name))
        self._record_time: Callable[[], int] = record_time
        self._open: StateStore | None = None
        self._context: StateStoreContext | None = None
        self._dirty: dict[bytes, Change] = {}
        self._frozen: dict[bytes, Change] = {}
        self._size: int = 0

    @property
    def user(self) -> StateStore:
        """The custom store itself; raises StoreClosed."""
        if self._open is None:
            raise StoreClosed(f"store {self.name} is closed, as its task is")
        return self._open

    # Opening and closing.

    def open(self, checkpoint: int | None, *, exact: bool, unfit: str | None = None) -> None:
        """Make the store with its state on disk; delete untrusted state, to be restored.

        `checkpoint` is the store's offset from the checkpoint file. State is untrusted if it has no
        offset, or is `unfit` for the given reason. With `exact`, it is also untrusted if a crash
        left the store open and the store does not manage offsets. An offset without any files
        belongs to a deleted directory, and does not count. Raises StateError when a store with
        untrusted state has no changelog.
        """
        if unfit is not None:
            self._give_up(unfit)
        had = self._has_files()
        store = self._make()
        if not store.persistent:
            return
        # The offset that made the state unfit must not come back, wherever it is kept.
        offset = self._offset(store, checkpoint if had else None, exact) if unfit is None else None
        if offset is None and self.logged:
            store.close()
            self._open = None
            if had:
                self._give_up("it has no offset, or one that is not valid after a crash")
            elif self._directory is not None:
                shutil.rmtree(self._directory)
            self._make()
        self.offset = offset
        self.kept = True
        self._mark(there=True)

    def _offset(self, store: StateStore, checkpoint: int | None, exact: bool) -> int | None:
        """Return the offset of the state on disk; None if it is unknown."""
        if not self.logged:
            return None
        if not store.manages_offsets:
            return None if exact and self._left_open() else checkpoint
        offset = store.committed_offset(self._changelog)
        if offset is None and checkpoint is not None:
            store.commit({self._changelog: checkpoint})  # migrates an earlier layout
            return checkpoint
        return offset

    def _make(self) -> StateStore:
        directory = self._directory
        store = self._spec.supplier()
        if not isinstance(store, StateStore):
            raise StateError(
                f"store {self.name}: its supplier made {store!r}, which is not a StateStore"
            )
        if type(store).flush is not StateStore.flush:
            warnings.warn(
                f"store {self.name}: {type(store).__name__}.flush is deprecated, "
                "override commit (KIP-892)",
                DeprecationWarning,
                stacklevel=2,
            )
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        changelog = self._changelog if self.logged else None
        self._context = StateStoreContext(
            self.name, self._task, directory, changelog, self._record_time, self._note
        )
        try:
            store.init(self._context)
        except BaseException:
            # The store may hold locks and files already, so close it; report the first error.
            with suppress(Exception):
                store.close()
            raise
        if self.logged and self._context.restore is None:
            store.close()
            raise StateError(
                f"store {self.name} has a changelog, but no function that restores it: call "
                "context.register in init, or add the store with logging=False"
            )
        self._open = store
        return store

    def _has_files(self) -> bool:
        return (
            self._directory is not None
            and self._directory.exists()
            and any(self._directory.iterdir())
        )

    def _give_up(self, reason: str) -> None:
        give_up(self._task, [self._spec], self._directory, reason)
        self._file.forget(self.name)
        if self._directory is not None and self._directory.exists():
            shutil.rmtree(self._directory)

    def _marker(self) -> Path | None:
        return None if self._directory is None else marker_of(self._directory, OPEN)

    def _left_open(self) -> bool:
        marker = self._marker()
        # The marker exists while the store is open, so it is still there after a crash.
        return marker is not None and marker.exists()

    def _mark(self, *, there: bool) -> None:
        marker = self._marker()
        if marker is None:
            return
        if there:
            marker.touch()
        else:
            marker.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the store; delete changed state that has no offset of its own.

        If the custom store raises an error, the store counts as left open by a crash.
        """
        store, self._open = self._open, None
        if store is None:
            return
        spoiled = self.spoiled or (
            (self._dirty or self._frozen) and store.persistent and not store.manages_offsets
        )
        try:
            store.close()
        finally:
            if spoiled:
                self.offset, self.kept = None, False
                self._give_up("it has uncommitted changes that it cannot undo")
        self._mark(there=False)

    @property
    def in_file(self) -> bool:
        """Whether the checkpoint file needs the store's offset after each commit."""
        return self._open is not None and self._open.persistent and not self._open.manages_offsets

    # Commit.

    def _note(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        if type(key) is not bytes or not (value is None or type(value) is bytes):
            raise SerializationError(
                f"store {self.name}: a change needs a key in bytes, and a value in bytes or None; "
                f"got {key!r:.200} and {value!r:.200}"
            )
        self._dirty[key] = (value, timestamp)
        self._size += len(key) + (0 if value is None else len(value))

    def uncommitted_bytes(self) -> int:
        """Return the approximate bytes of the open transaction, here and in the custom store."""
        return (
            len(self._dirty) * RECORD_BYTES
            + self._size
            + max(0, self.user.approximate_num_uncommitted_bytes())
        )

    @property
    def changed(self) -> bool:
        """Whether the open transaction has changed the store.

        Always true without a changelog, because such a store reports no changes.
        """
        return bool(self._dirty) or not self.logged

    def freeze(self) -> None:
        """Begin a new transaction and freeze the open one for commit."""
        self._frozen, self._dirty, self._size = self._dirty, {}, 0

    def changelog(
        self,
        *,
        batch_bytes: int = 0,  # noqa: ARG002 - always columns
        marked: bool = False,  # noqa: ARG002 - always columns
    ) -> Iterator[Batch]:
        """Return the frozen changes, in slices."""
        rows = list(self._frozen.items())
        for start in range(0, len(rows), SLICE):
            part = rows[start : start + SLICE]
            yield Batch(
                [key for key, _ in part],
                [value for _, (value, _) in part],
                [time for _, (_, time) in part],
            )

    def publish(self, *, written: bool) -> int:  # noqa: ARG002 - as in other stores
        """Mark the frozen transaction as committed; return its number of changes."""
        count, self._frozen = len(self._frozen), {}
        return count

    def commit(self, offset: int | None) -> None:
        """Have the custom store commit, with the offset of its changelog."""
        self.user.commit({} if offset is None or not self.logged else {self._changelog: offset})
        self.offset = offset

    def drop(self) -> None:
        """Roll back to the last commit, or become `spoiled`."""
        if not (self._dirty or self._frozen) and self.logged:
            return
        store = self.user
        self._dirty, self._frozen, self._size = {}, {}, 0
        if not (store.manages_offsets and store.persistent):
            self.spoiled = self.spoiled or self.logged
            return
        self._open = None
        store.close()
        self.spoiled = self.logged and self._make().committed_offset(self._changelog) != self.offset

    def restore(self, batch: Batch) -> None:
        """Pass records of the changelog to the custom store."""
        assert self._context is not None
        assert self._context.restore is not None
        if len(batch):
            self._context.restore(batch)

    def resident_rows(self) -> int:
        """Return how many changes wait here."""
        return len(self._dirty) + len(self._frozen)


@final
class CustomReader:
    """A reader that passes queries to the custom store.

    Raises StoreClosed, and any error of the custom store.
    """

    def __init__(self, store: CustomStore) -> None:
        self.name: str = store.name
        self._store = store

    def ask(self, query: Any, *, committed: bool) -> Any:
        """Return the store's answer; NotImplemented for an unknown query."""
        return self._store.user.query(query, committed=committed)


def shown(store: StoreForTasks) -> Any:
    """Return a task's store as processors see it."""
    return store.user if type(store) is CustomStore else store


@final
class CustomStores:
    """The custom stores of one task, each with a directory of its own below the task's."""

    def __init__(
        self,
        task: str,
        directory: Path | None,
        file: CheckpointFile,
        record_time: Callable[[], int],
        *,
        exact: bool,
    ) -> None:
        self._task: str = task
        self._directory: Path | None = directory
        self._file: CheckpointFile = file
        self._record_time: Callable[[], int] = record_time
        self._exact: bool = exact
        self._stores: dict[str, CustomStore] = {}

    def make(self, spec: StoreSpec) -> CustomStore:
        """Return a new store, not yet open."""
        directory = self._directory
        own = None if directory is None else directory_of(directory, spec.name)
        store = self._stores[spec.name] = CustomStore(
            spec, self._task, own, self._file, self._record_time
        )
        return store

    def open(
        self, name: str, checkpoint: Mapping[tuple[str, int], int], unfit: str | None
    ) -> int | None:
        """Open a store; return the offset to restore from. See CustomStore.open for `unfit`."""
        store = self._stores[name]
        known = checkpoint.get(self._file.partition(name))
        store.open(known, exact=self._exact, unfit=unfit)
        return store.offset

    def commit(
        self, offsets: Mapping[str, int], written: MutableMapping[str, int], times: CommitTimes
    ) -> None:
        """Commit the stores with an advanced changelog; note in `written` the offsets on disk."""
        for name, store in self._stores.items():
            offset = offsets.get(name)
            if store.logged and offset != store.offset:
                began = perf_counter()
                store.commit(offset)
                times.add(name, perf_counter() - began)
                if offset is not None and store.kept:
                    written[name] = offset

    def commit_unlogged(self) -> None:
        """Commit the stores without changelog."""
        for store in self._stores.values():
            if not store.logged:
                store.commit(None)

    @property
    def in_file(self) -> bool:
        """Whether any store needs its offset in the checkpoint file after each commit."""
        return any(store.in_file for store in self._stores.values())

    def lost(self, name: str) -> bool:
        """Whether the named store is a custom one with nothing on disk."""
        return name in self._stores and not self._stores[name].kept

    def check(self) -> None:
        """Raise TaskCorrupted when a store could not roll back to the last commit."""
        spoiled = [name for name, store in self._stores.items() if store.spoiled]
        if spoiled:
            raise TaskCorrupted(
                f"task {self._task}: store {', '.join(spoiled)} cannot undo its uncommitted "
                "changes, and must be restored"
            )
