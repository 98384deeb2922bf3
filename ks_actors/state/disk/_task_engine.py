"""A task's part of a database that several tasks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, final

from ks_actors._errors import TaskCorrupted
from ks_actors.state.core import after
from ks_actors.state.disk._manifest import META
from ks_actors.state.disk._rocksdb import RocksEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path


LAYOUT = META + b"layout"
"""The key of the row that tells a shared database from a database of one task.

It comes before the rows of all tasks.
"""


_END = b"\xff"
"""A key after those of a task: its stores have at most 254 numbers."""


def prefix_of(task: str) -> bytes:
    """Return the bytes in front of all keys of a task.

    No such prefix begins another one, because names of tasks have no slash.
    """
    return task.encode() + b"/"


def task_of(key: bytes) -> str:
    """Return the task of a key in a shared database."""
    return key.partition(b"/")[0].decode()


@final
class TaskEngine(RocksEngine):
    """The rows of one task in a shared database, under their keys without the task.

    `damaged` is called with the error when the database turns out to be damaged, and `closed` at
    the end. The database must stay open until then.
    """

    shared: bool = True

    def __init__(
        self,
        task: str,
        database: RocksEngine,
        *,
        damaged: Callable[[str], object] = lambda _: None,
        closed: Callable[[], object] = lambda: None,
        tasks: Callable[[], int] = lambda: 1,
    ) -> None:
        # Not the base's: it opens a database.
        self._task: str = task
        self._whole: RocksEngine = database
        self._prefix = prefix_of(task)
        self._directory: Path = database._directory
        self._database: Any = database._database
        self._data: Any = database._data
        self._get: Any = database._get
        self._logged: Any = database._logged
        self._counting: Any = database._counting
        self._bytes: int = 0
        self._damaged: Callable[[str], object] = damaged
        self._closed: Callable[[], object] = closed
        self._tasks: Callable[[], int] = tasks
        self.damage: str = ""

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """The first key of the task in the database, and the first key after the task's."""
        return self._prefix, after(self._prefix)

    def get(self, key: bytes) -> bytes | None:
        """Return a value; raises TaskCorrupted when it cannot be read."""
        try:
            value: bytes | None = self._get(self._prefix + key)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)
        return value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of many keys; raises TaskCorrupted when one cannot be read."""
        return super().get_many(map(self._prefix.__add__, keys))

    def scan(
        self, low: bytes, high: bytes, *, reverse: bool = False
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over a snapshot from `low` to before `high`, in byte order or in reverse."""
        prefix = self._prefix
        # The snapshot is taken now, not at the first row.
        return _cut(super().scan(prefix + low, prefix + high, reverse=reverse), len(prefix))

    def wipe(self) -> None:
        """Delete all rows of the task, so that they stay deleted after a crash. Raises StateError.

        Their space on disk is free after RocksDB's next merge of these tables.
        """
        self.write((), [(b"", _END)], durable=True)

    def flush(self, *, wait: bool) -> None:
        """Flush the writes of all tasks.

        With `wait` False, do it in the background, for all tasks that ask within a second at once.
        """
        try:
            self._whole.flush(wait=wait)
        except TaskCorrupted as found:
            self.damage = self.damage or str(found)
            self._damaged(str(found))
            raise

    @property
    def owes(self) -> bool:
        """Whether a `flush` that was put off can run now, whichever task it is for."""
        return self._whole.owes

    def estimated_keys(self) -> int:
        """Return the approximate number of keys: an equal share of those of all open tasks."""
        return super().estimated_keys() // max(1, self._tasks())

    def close(self) -> None:
        """Give the task's rows back to the database. The last task flushes the rows of all."""
        self._get = self._data = self._database = None
        self._closed()

    def _refuse(self, error: Exception) -> NoReturn:
        if self._database is not None:  # use of a closed task says nothing about the database
            self._whole.failed = True
        try:
            super()._refuse(error)
        except TaskCorrupted as found:
            self._damaged(str(found))
            raise


def _cut(
    rows: Generator[tuple[bytes, bytes], None, None], size: int
) -> Generator[tuple[bytes, bytes], None, None]:
    for key, value in rows:
        yield key[size:], value
