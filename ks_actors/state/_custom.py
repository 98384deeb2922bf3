"""A store of the user's own among those of a task."""

from __future__ import annotations

import shutil
import warnings
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast, final

from ks_actors._errors import SerializationError, StateError, StoreClosed, TaskCorrupted
from ks_actors.records import Batch
from ks_actors.state._discard import give_up
from ks_actors.state.core import RECORD_BYTES, SLICE, Measured
from ks_actors.topology import StateStore, StateStoreContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping
    from pathlib import Path

    from ks_actors.log import TopicPartition
    from ks_actors.state._commit_times import CommitTimes
    from ks_actors.state.disk import Engine, Row
    from ks_actors.topology import StoreSpec

Change = tuple[bytes | None, int]


@final
class CustomStore(Measured):
    """Does for the user's store what the framework's own do by themselves: its changelog, its offsets, and its end.

    What it is told of changes waits here for the changelog, the last one of each key. The data is the user's: it cannot be taken back. After a
    rollback a store that manages its offsets is made anew, as of its last commit; another one is `spoiled`, when it was changed.
    """

    engine: Engine | None = None
    prefix: bytes = b""
    segment_ms: int = 0
    unwritten_bytes: int = 0
    overdue: bool = False

    def __init__(self, spec: StoreSpec, task: str, directory: Path | None, changelog: tuple[str, int], record_time: Callable[[], int]) -> None:
        self.name: str = spec.name
        self.logged: bool = spec.logging
        self.offset: int | None = None
        self.spoiled: bool = False
        self.kept: bool = False  # what is committed is still there when the store is closed
        self._spec: StoreSpec = spec
        self._task: str = task
        self._directory: Path | None = directory
        self._changelog: TopicPartition = cast("TopicPartition", changelog)
        self._record_time: Callable[[], int] = record_time
        self._open: StateStore | None = None
        self._context: StateStoreContext | None = None
        self._dirty: dict[bytes, Change] = {}
        self._frozen: dict[bytes, Change] = {}
        self._size: int = 0

    @property
    def user(self) -> StateStore:
        """The user's store; raises StoreClosed."""
        if self._open is None:
            raise StoreClosed(f"store {self.name} is closed, as its task is")
        return self._open

    # Opening and closing.

    def open(self, checkpoint: int | None, *, exact: bool, unfit: str | None = None) -> None:
        """Make the store, with what is on disk; `checkpoint` is the offset that a file has of it. What cannot be trusted is given up, and restored.

        That is what has no offset, what is `unfit`, for the reason given, and, if it is to be `exact`, what a store that does not manage offsets has
        left in a crash. Raises StateError when such a store has no changelog.
        """
        if unfit is not None:
            self._give_up(unfit)
        had = self._has_files()
        store = self._make()
        if not store.persistent:
            return
        offset = store.committed_offset(self._changelog) if store.manages_offsets and self.logged else None
        if offset is None and not (exact and not store.manages_offsets and self._left_open()):
            offset = checkpoint
            if offset is not None and store.manages_offsets:
                store.commit({self._changelog: offset})  # of an earlier layout
        if offset is None and self.logged:
            store.close()
            self._open = None
            if had:
                self._give_up("it has no offset, or one that is not true after a crash")
            elif self._directory is not None:
                shutil.rmtree(self._directory)
            self._make()
        self.offset = offset
        self.kept = True
        self._mark(there=True)

    def _make(self) -> StateStore:
        directory = self._directory
        store = self._spec.supplier()
        if not isinstance(store, StateStore):
            raise StateError(f"store {self.name}: its supplier made {store!r}, which is no StateStore")
        if type(store).flush is not StateStore.flush:
            warnings.warn(
                f"store {self.name}: {type(store).__name__}.flush is deprecated, override commit (KIP-892)", DeprecationWarning, stacklevel=2
            )
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        changelog = self._changelog if self.logged else None
        self._context = StateStoreContext(self.name, self._task, directory, changelog, self._record_time, self._note)
        store.init(self._context)
        if self.logged and self._context.restore is None:
            store.close()
            raise StateError(f"store {self.name} has a changelog, but nothing that restores it: call context.register in init, or add it without one")
        self._open = store
        return store

    def _has_files(self) -> bool:
        return self._directory is not None and self._directory.exists() and any(self._directory.iterdir())

    def _give_up(self, reason: str) -> None:
        give_up(self._task, [self._spec], self._directory, reason)
        if self._directory is not None and self._directory.exists():
            shutil.rmtree(self._directory)

    def _marker(self) -> Path | None:
        return None if self._directory is None else self._directory.with_name(f".{self._directory.name}.open")

    def _left_open(self) -> bool:
        marker = self._marker()
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
        """Close the store; delete what it has when that cannot be trusted: it is changed, and does not know its offset."""
        if self._open is None:
            return
        store = self._open
        if self.spoiled or ((self._dirty or self._frozen) and store.persistent and not store.manages_offsets):
            store.close()
            self._give_up("it was changed by what is not committed, and cannot take that back")
            self.offset, self.kept = None, False
        else:
            store.close()
        self._open = None
        self._mark(there=False)

    @property
    def in_file(self) -> bool:
        """Whether its offset is to be in the checkpoint file after each commit."""
        return self._open is not None and self._open.persistent and not self._open.manages_offsets

    # Commit.

    def _note(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        if type(key) is not bytes or not (value is None or type(value) is bytes):
            raise SerializationError(f"store {self.name}: a change has a key and a value in bytes, or no value; got {key!r:.200} and {value!r:.200}")
        self._dirty[key] = (value, timestamp)
        self._size += len(key) + (0 if value is None else len(value))

    def uncommitted_bytes(self) -> int:
        """Return about how much memory the open transaction takes, here and in the store."""
        return len(self._dirty) * RECORD_BYTES + self._size + max(0, self.user.approximate_num_uncommitted_bytes())

    @property
    def changed(self) -> bool:
        """Whether the open transaction has changed it, as far as that is known: without changelog nothing is noted."""
        return bool(self._dirty) or not self.logged

    def freeze(self) -> None:
        """Begin a new transaction."""
        self._frozen, self._dirty, self._size = self._dirty, {}, 0

    def changelog(self) -> Iterator[Batch]:
        """Return what is frozen, in slices."""
        rows = list(self._frozen.items())
        for start in range(0, len(rows), SLICE):
            part = rows[start : start + SLICE]
            yield Batch([key for key, _ in part], [value for _, (value, _) in part], [time for _, (_, time) in part])

    def keep(self, *, written: bool) -> int:  # noqa: ARG002 - as of the others
        """Take what is frozen as committed."""
        count, self._frozen = len(self._frozen), {}
        return count

    def commit(self, offset: int | None) -> None:
        """Have the store commit, with the offset that its changelog is at."""
        self.user.commit({} if offset is None or not self.logged else {self._changelog: offset})
        self.offset = offset

    def drop(self) -> None:
        """Go back to what is committed, or be `spoiled`."""
        if not (self._dirty or self._frozen) and self.logged:
            return
        store = self.user
        self._dirty, self._frozen, self._size = {}, {}, 0
        if not (store.manages_offsets and store.persistent):
            self.spoiled = self.spoiled or self.logged
            return
        store.close()
        self.spoiled = self.logged and self._make().committed_offset(self._changelog) != self.offset

    def restore(self, batch: Batch) -> None:
        """Hand records of the changelog to the store."""
        assert self._context is not None
        assert self._context.restore is not None
        if len(batch):
            self._context.restore(batch)

    # What there is nothing of: the data is not here.

    def resident_rows(self) -> int:
        """Return how many changes wait here."""
        return len(self._dirty) + len(self._frozen)

    def waiting_rows(self) -> int:
        """Return 0."""
        return 0

    def frozen_rows(self) -> list[Row]:
        """Return none."""
        return []

    def settle(self, count: int) -> bool:  # noqa: ARG002 - as of the others
        """Do nothing."""
        return True

    def unsettled(self) -> int:
        """Return 0."""
        return 0

    def wants_tidying(self, *, idle: bool) -> bool:  # noqa: ARG002 - as of the others
        """Return False."""
        return False

    def has_unwritten(self) -> bool:
        """Return False."""
        return False

    def begin_write(self) -> None:
        """Do nothing."""

    def write_slices(self, engine: Engine) -> Iterator[None]:  # noqa: ARG002 - as of the others
        """Do nothing."""
        return iter(())

    def tidy(self) -> Iterator[None]:
        """Do nothing."""
        return iter(())

    def facts(self, *, frozen: bool = False) -> bytes | None:  # noqa: ARG002 - as of the others
        """Return nothing."""
        return None

    def recall(self, facts: bytes) -> None:
        """Do nothing."""

    def end_reading(self, reason: str) -> None:
        """Do nothing: what it has answered is whole."""


@final
class CustomReader:
    """Has the user's store answer queries. Raises StoreClosed, and what the store does."""

    def __init__(self, store: CustomStore) -> None:
        self.name: str = store.name
        self._store = store

    def ask(self, query: Any, *, committed: bool) -> Any:
        """Return the store's answer, NotImplemented for a query that it does not know."""
        return self._store.user.query(query, committed=committed)


def shown(store: Any) -> Any:
    """Return what processors get of a store of a task."""
    return store.user if type(store) is CustomStore else store


@final
class CustomStores:
    """The stores of the user's own among those of one task; each has a directory of its own below the task's."""

    def __init__(
        self, task: str, directory: Path | None, partition: Callable[[str], tuple[str, int]], record_time: Callable[[], int], *, exact: bool
    ) -> None:
        self._task: str = task
        self._directory: Path | None = directory
        self._partition: Callable[[str], tuple[str, int]] = partition
        self._record_time: Callable[[], int] = record_time
        self._exact: bool = exact
        self._stores: dict[str, CustomStore] = {}

    def open(
        self,
        spec: StoreSpec,
        checkpoint: Mapping[tuple[str, int], int],
        offsets: MutableMapping[str, int],
        written: MutableMapping[str, int],
        unfit: str | None = None,
    ) -> CustomStore:
        """Make one, and open it; note where its changelog is to be read from. For `unfit` see CustomStore.open."""
        name, directory = spec.name, self._directory
        own, changelog = None if directory is None else directory / name, self._partition(name)
        store = self._stores[name] = CustomStore(spec, self._task, own, changelog, self._record_time)
        store.open(checkpoint.get(changelog), exact=self._exact, unfit=unfit)
        if store.offset is not None:
            offsets[name] = written[name] = store.offset
        return store

    def commit(self, offsets: Mapping[str, int], written: MutableMapping[str, int], times: CommitTimes) -> None:
        """Have those commit whose changelog has gone on; note in `written` what is on disk."""
        for name, store in self._stores.items():
            offset = offsets.get(name)
            if store.logged and offset != store.offset:
                began = perf_counter()
                store.commit(offset)
                times.add(name, perf_counter() - began)
                if offset is not None and store.kept:
                    written[name] = offset

    def commit_unlogged(self) -> None:
        """Have those commit that have no changelog."""
        for store in self._stores.values():
            if not store.logged:
                store.commit(None)

    @property
    def in_file(self) -> bool:
        """Whether there is one whose offset is to be in the checkpoint file after each commit."""
        return any(store.in_file for store in self._stores.values())

    def lost(self, name: str) -> bool:
        """Whether a store of that name is one of these, and nothing of it is on disk."""
        return name in self._stores and not self._stores[name].kept

    def check(self) -> None:
        """Raise TaskCorrupted when one could not go back to what is committed."""
        spoiled = [name for name, store in self._stores.items() if store.spoiled]
        if spoiled:
            raise TaskCorrupted(f"task {self._task}: store {', '.join(spoiled)} cannot take back what was not committed, and is to be restored")
