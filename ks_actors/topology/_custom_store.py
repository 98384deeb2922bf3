"""Stores of the user's own: what they have to do, and what they can ask for (KIP-892, in Python's form)."""

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
    """A store of the user's own; `stores.custom` adds it to a topology. It can have any methods that its processors call.

    Each task has one, made by the supplier, and made anew whenever the task starts over. All is
    called from one thread at a time, and `commit` and what restores on the app's event loop: so
    they had better be quick.

    `persistent` says that what is committed is still there when the store is made anew on the same
    directory. `manages_offsets` says that `committed_offset` then tells the offsets that were given
    to the last `commit`, and that nothing is there which was written since: such a store is as
    exact as the framework's own. Of another one, what a rollback finds changed is deleted and
    restored from its changelog; so is what a crash leaves under exactly once.
    """

    persistent: bool = False
    manages_offsets: bool = False

    @abstractmethod
    def init(self, context: StateStoreContext) -> None:
        """Open the store, and `context.register` what restores it."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:  # noqa: ARG002 - for those who override it
        """Keep all that was written since the last commit: it is committed in the log; the changelog is at these offsets then.

        Without a changelog there are none. A persistent store brings it to disk; one that manages
        its offsets, in one go with them. By default it is flushed, as before there were commits.
        """
        self.flush()

    def committed_offset(self, partition: TopicPartition) -> int | None:  # noqa: ARG002 - for those who override it
        """Return the offset that the last commit gave for a partition, of what is on disk; None when there is none, or it is not managed here."""
        return None

    def approximate_num_uncommitted_bytes(self) -> int:
        """Return about how many bytes of memory the next commit would set free; 0 when that cannot be told, or nothing is held."""
        return 0

    def query(self, query: Any, *, committed: bool) -> Any:  # noqa: ARG002 - for those who override it
        """Answer a question of `App.query` (KIP-796), of any class that the store knows; return NotImplemented for others, as it is by default.

        `committed` asks for what is committed only: a store that cannot tell it from the rest may
        raise, whoever asks is told. The answer must not change with the store. Called on the app's
        event loop, in standbys and while the store is restored too, never while a thread is at the
        task.
        """
        return NotImplemented

    def flush(self) -> None:  # noqa: B027 - who has nothing to flush overrides nothing
        """Do nothing.

        Deprecated: override `commit`; a store that overrides only this one has it called at
        commits, with a DeprecationWarning.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of everything.

        What was not committed is to be forgotten, if the store manages its offsets.
        """


@final
class StateStoreContext:
    """What a store of the user's own can ask of its task.

    `directory` is its own, and there already; None where nothing is on disk. `changelog` is None
    without one.
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
        """Say what takes in records of the changelog, as committed: columns of bytes, a value of None deletes.

        To be called by `init`.
        """
        self.restore = restore

    def record_time(self) -> int:
        """Return the timestamp (ms) of the record that is being processed."""
        return self._record_time()

    def log_change(self, key: bytes, value: bytes | None, timestamp: int | None = None) -> None:
        """Note a change for the changelog: at the next commit the last value of each key is written there. None deletes.

        A store with a changelog has to call it for each change, as it makes it: what is not noted
        is not restored. Raises StateError without one.
        """
        if self.changelog is None:
            raise StateError(f"store {self.name} has no changelog to note a change in: it was added with logging=False")
        self._log_change(key, value, self._record_time() if timestamp is None else timestamp)
