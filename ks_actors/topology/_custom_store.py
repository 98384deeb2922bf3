"""Custom stores: their contract and their context (KIP-892, in Python's form)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ks_actors.log import TopicPartition
    from ks_actors.records import Batch, TaskId


class StateStore(ABC):
    """Base class of custom stores; `stores.custom` adds one to a topology.

    It can have any methods that its processors call. The supplier makes a store for each task, and
    a new one whenever the task starts over. All methods are called from one thread at a time.
    `commit` and the restore function run on the app's event loop, so keep them quick.

    `persistent` says that committed data is still there when the store is made again on the same
    directory. `manages_offsets` says that `committed_offset` then returns the offsets of the last
    `commit`, and that later writes are gone: such a store is as exact as the framework's own. For
    any other store, rows that a rollback finds changed are deleted and restored from the changelog.
    Under exactly-once, rows left by a crash are also deleted and restored.
    """

    persistent: bool = False
    manages_offsets: bool = False

    @abstractmethod
    def init(self, context: StateStoreContext) -> None:
        """Open the store, and `context.register` its restore function."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:  # noqa: ARG002 - for overrides
        """Keep all writes since the last commit: they are committed in the log.

        `offsets` is the changelog's end at this commit; it is empty without a changelog. A
        persistent store writes the data to disk; a store that manages offsets writes them
        atomically with the data. The default calls `flush`, which is older than `commit`.
        """
        self.flush()

    def committed_offset(self, partition: TopicPartition) -> int | None:  # noqa: ARG002 - overrides
        """Return a partition's offset in the last commit whose data are on disk.

        Returns None when there is no such commit, or when the store does not manage offsets.
        """
        return None

    def approximate_num_uncommitted_bytes(self) -> int:
        """Return about how many bytes of memory the next commit would free.

        Returns 0 when that is unknown.
        """
        return 0

    def query(self, query: Any, *, committed: bool) -> Any:  # noqa: ARG002 - for overrides
        """Answer a query of `App.query` (KIP-796), of any class that the store knows.

        Return NotImplemented for other queries, as the default does. `committed` asks for committed
        data only: a store that cannot tell which data is committed may raise, and the caller gets
        the error. Later writes must not change the answer. Called on the app's event loop, in
        standbys and during restore too, never while a worker thread runs the task.
        """
        return NotImplemented

    def flush(self) -> None:  # noqa: B027 - stores with nothing to flush need not override it
        """Do nothing. Deprecated: override `commit`.

        A store that overrides only this method has it called at commits, with a DeprecationWarning.
        """

    @abstractmethod
    def close(self) -> None:
        """Release all resources. If the store manages its offsets, forget uncommitted writes."""


@final
class StateStoreContext:
    """The access of a custom store to its task.

    `directory` belongs to the store and exists already; it is None for a store without disk.
    `changelog` is None for a store without changelog.
    """

    def __init__(
        self,
        name: str,
        task: TaskId | str,
        directory: Path | None,
        changelog: TopicPartition | None,
        record_time: Callable[[], int],
        log_change: Callable[[bytes, bytes | None, int], None],
    ) -> None:
        self.name: str = name
        self.task: TaskId | str = task
        self.directory: Path | None = directory
        self.changelog: TopicPartition | None = changelog
        self.restore: Callable[[Batch], None] | None = None
        self._record_time = record_time
        self._log_change = log_change

    def register(self, restore: Callable[[Batch], None]) -> None:
        """Register the function that restores records of the changelog; call this in `init`.

        The function gets committed records as columns of bytes; a value of None deletes.
        """
        self.restore = restore

    def record_time(self) -> int:
        """Return the timestamp (ms) of the current record."""
        return self._record_time()

    def log_change(self, key: bytes, value: bytes | None, timestamp: int | None = None) -> None:
        """Log a change for the changelog: the next commit writes the last value of each key there.

        None deletes. A store with a changelog has to call `log_change` at each change, because only
        logged changes are restored. Raises StateError without a changelog.
        """
        if self.changelog is None:
            raise StateError(
                f"store {self.name} has no changelog to log a change to: it was added with "
                "logging=False"
            )
        self._log_change(key, value, self._record_time() if timestamp is None else timestamp)
