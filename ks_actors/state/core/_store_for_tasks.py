"""The contract between a task and each of its stores, and the arguments of new ones."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.records import Batch
    from ks_actors.state.core._codec import Codec
    from ks_actors.state.core._engine import Engine, EngineRow
    from ks_actors.state.core._row_weight import RowWeight
    from ks_actors.topology import StoreSpec


class StoreParts(NamedTuple):
    """The arguments of a new store of any kind but custom ones.

    `record_time` returns the timestamp (ms) of the current record. `expired` is called with the
    number of puts that came too late. `engine` is None for a store in memory.
    """

    spec: StoreSpec
    codec: Codec
    engine: Engine | None
    record_time: Callable[[], int]
    expired: Callable[[int], None]


class StoreForTasks(Protocol):
    """One store of a task, of any kind, as the task commits, restores, writes and closes it.

    The stores of a task commit together. Puts belong to the open transaction. `freeze` ends that
    transaction and begins the next; then `publish` marks the frozen transaction as committed, or
    `drop` rolls back all uncommitted changes. Committed changes wait in memory, commit by commit:
    `compact` merges the changes into one set of rows, and `begin_write` and `write_slices` write
    the set to disk. A store belongs to one thread at a time.

    A custom store has a wrapper with the same contract, but without rows. Methods that are not
    abstract have the behavior of such a wrapper.
    """

    name: str
    logged: bool
    """Whether the store has a changelog."""
    engine: Engine | None
    """The database of the task; None for a store that is in memory or custom, or closed."""
    prefix: bytes
    """The prefix of the store's rows in the database."""
    segment_ms: int
    """The length of the segments of its rows on disk (ms); 0 without segments."""
    unwritten_bytes: int
    """The approximate bytes of committed rows that are missing in the database."""
    resident_records: int
    """The number of rows that `evict` leaves in memory. Set it before you call `evict`."""
    row_weight: RowWeight
    """The typical size of the store's rows."""

    # Memory.

    @abstractmethod
    def resident_rows(self) -> int:
        """Return the number of rows in memory, in O(1)."""
        ...

    def waiting_rows(self) -> int:
        """Return the number of rows to write or to compact."""
        return 0

    def memory_bytes(self) -> int:
        """Return the store's approximate size in memory (bytes)."""
        return self.row_weight.total(self.resident_rows(), self.waiting_rows())

    @abstractmethod
    def uncommitted_bytes(self) -> int:
        """Return the approximate bytes of the open transaction, in O(1)."""
        ...

    # Commit.

    @abstractmethod
    def freeze(self) -> None:
        """Begin a new transaction and freeze the open one for commit, in O(1)."""
        ...

    @abstractmethod
    def changelog(self, *, batch_bytes: int = 0, marked: bool = False) -> Iterator[Batch]:
        """Return the frozen changes for the changelog, the last value of each key, in slices.

        The store may be used between slices. `batch_bytes` is the log's largest batch: slices for
        such a log may be encoded. With `marked` the last slice is columns, because the caller adds
        headers to its last record. Raises SerializationError when a value cannot be written.
        """
        ...

    def frozen_rows(self) -> list[EngineRow]:
        """Return the database's rows of all frozen changes."""
        return []

    @abstractmethod
    def publish(self, *, written: bool) -> int:
        """Mark the frozen transaction as committed; return its number of records.

        `written` says that the database already has the changes.
        """
        ...

    @abstractmethod
    def drop(self) -> None:
        """Roll back to the last commit: forget the frozen transaction and all later puts."""
        ...

    # Restoring.

    @abstractmethod
    def restore(self, batch: Batch) -> None:
        """Apply records of the changelog as committed.

        Keys and values are bytes; None deletes, and the last record of a key counts.
        """
        ...

    def facts(self, *, frozen: bool = False) -> bytes | None:  # noqa: ARG002 - there are no rows
        """Return the facts to persist besides rows and offset; None for a store without times.

        They include the frozen transaction if `frozen` is set.
        """
        return None

    def recall(self, facts: bytes) -> None:  # noqa: ARG002 - there are no rows
        """Restore the state that `facts` returned before the close."""
        return  # not abstract

    # Writing to disk.

    def uncompacted(self) -> int:
        """Return the number of committed changes that are not yet compacted."""
        return 0

    def compact(self, count: int) -> bool:  # noqa: ARG002 - there are no rows
        """Compact about `count` committed changes; return whether that was all."""
        return True

    def has_unwritten(self) -> bool:
        """Return whether committed rows are missing in the database."""
        return False

    def begin_write(self) -> None:
        """Select the compacted changes for writing."""
        return  # not abstract

    def write_slices(self, engine: Engine) -> Iterator[None]:  # noqa: ARG002 - there are no rows
        """Write the changes, one slice per step; a slice that fails remains unwritten.

        Raises StateFull.
        """
        return iter(())

    def wants_eviction(self, *, idle: bool) -> bool:  # noqa: ARG002 - there are no rows
        """Return whether many changes wait for work in memory; if `idle`, whether any do."""
        return False

    def evict(self) -> Iterator[None]:
        """Evict rows that exceed `resident_records` or have expired, a slice per step."""
        return iter(())

    # The end.

    def end_reading(self, reason: str) -> None:  # noqa: ARG002 - there are none
        """End all queries of this store: further reads raise StoreClosed."""
        return  # not abstract

    @abstractmethod
    def close(self) -> None:
        """Release the memory; every later use raises StoreClosed."""
        ...
