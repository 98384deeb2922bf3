"""Custom engines below stores: their contract, and the types of stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ks_actors._errors import TopologyError
from ks_actors.processors.api import check_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


class StoreEngineContext(NamedTuple):
    """The place of a store engine: its store, its task, and a directory of its own.

    The directory exists already; it is None where state has no directory, as in a test driver.
    """

    store: str
    task: str
    directory: Path | None


class StoreEngine(ABC):
    """Base class of the storage below one store: a sorted map of bytes.

    `Materialized(store_type=…)` and the other options of that name take a function that makes one,
    and so does the setting `default_dsl_store`. Any kind of store can have an engine: key-value,
    window, session or versioned, with or without headers. The store keeps recently read and written
    rows in memory, reads the rest from the engine, and writes committed rows to it from time to
    time. So an engine never sees uncommitted data, and has nothing to roll back. Offsets are rows
    like the others: after a crash the missing rows are restored from the changelog.

    Keys and values are opaque bytes, ordered as Python orders them. Calls come from
    one thread at a time, but not always the same one: stores are opened in a thread of their own,
    and then used mostly on the app's event loop, so keep calls quick. If there is no room, raise
    `StateFull` or an OSError that says so: the work is tried again. If the data cannot be used,
    raise `TaskCorrupted`: the data is deleted and restored. Any other error goes to the app's
    uncaught handler.

    `persistent` says that flushed rows are there when the engine is opened again on the same
    directory. An engine that is not persistent, or whose directory is new or empty, must begin
    empty, wherever it keeps its data.
    """

    persistent: bool = False

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return a value, or None."""

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of many keys, None where there is none. By default one by one."""
        return [self.get(key) for key in keys]

    @abstractmethod
    def scan(self, low: bytes, high: bytes, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows from `low` to before `high`, in the order of keys or in reverse.

        Later writes do not change the result of a scan. A generator that is not read to its end is
        closed.
        """

    @abstractmethod
    def write(
        self,
        rows: Sequence[tuple[bytes, bytes | None]],
        ranges: Sequence[tuple[bytes, bytes]],
    ) -> None:
        """Delete the `ranges` (their ends are exclusive), then write the rows; None deletes.

        All or nothing, also after a crash; and no write survives a crash without the earlier
        writes.
        """

    def approximate_num_entries(self) -> int:
        """Return about how many rows there are, 0 when that is unknown."""
        return 0

    def flush(self) -> None:  # noqa: B027 - an engine that keeps nothing flushes nothing
        """Make all writes survive a crash. Called after each round of writes, and at the end."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Called once; also after a failure."""


StoreEngineSupplier = Callable[[StoreEngineContext], StoreEngine]
"""A function that opens the engine of a store, called when a task opens its stores."""

StoreType = Literal["rocksdb", "in_memory"] | StoreEngineSupplier
"""The place of a store's rows: RocksDB, memory, or an engine of one's own."""

STORE_NAMES: Final = ("rocksdb", "in_memory")
"""The names of the framework's own types."""


def check_store_type(value: Any, *, role: str, of: str) -> None:
    """Raise TopologyError unless the value is a StoreType, or None."""
    if value is None or (isinstance(value, str) and value in STORE_NAMES):
        return
    if isinstance(value, type):
        if issubclass(value, StoreEngine):
            return
    elif callable(value):
        check_function(value, 1, role=role, of=of)
        return
    raise TopologyError(
        f"{role} of {of} is {value!r:.100}: give 'rocksdb', 'in_memory', a function that makes a "
        "StoreEngine, or None"
    )


def type_words(value: StoreType | None) -> str:
    """Return a store type in words."""
    if value is None:
        return "the default"
    if isinstance(value, str):
        return value
    return f"engine {getattr(value, '__qualname__', type(value).__qualname__)}"
