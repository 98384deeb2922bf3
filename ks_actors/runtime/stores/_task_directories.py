"""The task directories on an instance's disk."""

from __future__ import annotations

import shutil
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, final

from ks_actors._errors import StateError
from ks_actors.lifecycle import component_log
from ks_actors.records import TaskId
from ks_actors.state import (
    SHARED,
    SharedResources,
    give_up,
    logged_on_disk,
    offset_sum,
    only_copies,
    without_copy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ks_actors.topology import StoreSpec

_DELETED = ".deleted"
_log = component_log(__name__)


@final
class TaskDirectories:
    """The task directories below the state directory, their offsets and when each was last used.

    `offsets` has the sum of changelog offsets that a task's state has reached, for tasks with
    closed stores. `stores` returns the stores of a task, or None if the topology does not have the
    task. `remember`, `look`, `set_aside` and `delete` block.
    """

    def __init__(
        self,
        path: Path,
        wall_time: Callable[[], int],
        stores: Callable[[TaskId], Iterable[StoreSpec] | None],
    ) -> None:
        self.offsets: dict[TaskId, int] = {}
        self._stores: Callable[[TaskId], Iterable[StoreSpec] | None] = stores
        self._path: Path = path
        self._wall_time: Callable[[], int] = wall_time
        self._unused_since: dict[TaskId, int] = {}
        self._shared: SharedResources | None = None
        self._deleting: set[Path] = set()
        # Tasks whose rows in the shared database are deleted, but still on disk.
        self._wiped: list[str] = []

    def remember(self, shared: SharedResources, max_age_ms: int) -> None:
        """Read the readable directories of earlier runs.

        Delete directories older than `max_age_ms` (-1: none).
        """
        now, self._shared = self._wall_time(), shared
        if shared.database is not None:
            # A task's directory may be lost, or deleted by a user; its rows in the shared database
            # still count.
            for name in shared.database.tasks():
                (self._path / name).mkdir(exist_ok=True)
        # A crash leaves no trace in the directories of tasks with rows in the shared database.
        written = 0 if shared.database is None else _written_ms(self._path / SHARED)
        # Left over from a crash between the rename and the deletion.
        self.delete(self._path.glob(f"*{_DELETED}"))
        for task, directory in self._directories():
            # The clock may be behind the files' times: then their age starts now.
            since = min(now, max(written, _changed_ms(directory)))
            reason = (
                f"it has not been used for {(now - since) // 1000} s, longer than "
                "state_cleanup_dir_max_age_ms"
            )
            if 0 <= max_age_ms < now - since and self._may_go(
                task, directory, reason, self._only_copies(task)
            ):
                self.delete(self.set_aside((task,)))
                continue
            self._unused_since[task] = since
            offsets = offset_sum(directory, shared)
            if offsets is not None:
                self.offsets[task] = offsets

    def _directories(self) -> list[tuple[TaskId, Path]]:
        found = []
        for directory in self._path.iterdir():
            try:
                task = TaskId.parse(directory.name)
            except ValueError:
                continue  # not a task directory
            if directory.is_dir():
                found.append((task, directory))
        return found

    @property
    def failed(self) -> bool:
        """Whether the database of all tasks has to be opened again."""
        shared = self._shared
        return shared is not None and shared.database is not None and shared.database.failed

    def used(self, task: TaskId) -> int | None:
        """Note that the stores of a task are opened; return their known offset sum."""
        self._unused_since.pop(task, None)
        return self.offsets.pop(task, None)

    def released(self, task: TaskId, offsets: int | None) -> None:
        """Note that a task's stores are closed; `offsets` is their sum on disk (None: no state)."""
        if offsets is not None:
            self.offsets[task] = offsets
            self._unused_since[task] = self._wall_time()

    def old(self, age_ms: float) -> list[TaskId]:
        """Return the tasks with directories that have been unused for at least `age_ms`."""
        now = self._wall_time()
        return [task for task, since in self._unused_since.items() if now - since >= age_ms]

    def look(self, tasks: Iterable[TaskId]) -> dict[TaskId, list[str] | StateError]:
        """Return the stores whose only copies are in the directories, or why these are unreadable.

        Blocks.
        """
        return {task: self._only_copies(task) for task in tasks}

    def set_old_aside(
        self, seconds: float, found: Mapping[TaskId, list[str] | StateError]
    ) -> list[Path]:
        """Rename directories that have been unused for at least `seconds`; return their new paths.

        `found` is the result of `look`. Directories that an earlier deletion has left are among the
        paths. The caller deletes them. A task that returns meanwhile begins with a new directory.
        """
        gone = []
        for task in self.old(seconds * 1000):
            if task not in found:
                continue  # it was not old enough to be looked at
            if self._may_go(
                task,
                self._path / str(task),
                f"it has not been used for {seconds:g} s (state_cleanup_delay_ms)",
                found[task],
            ):
                gone.append(task)
            else:
                del self._unused_since[task]  # the directory stays, so warn only once
        aside = [*self.left(), *self.set_aside(gone)]
        self._deleting.update(aside)
        return aside

    def left(self) -> list[Path]:
        """Return the renamed directories that nobody is deleting."""
        return [path for path in self._path.glob(f"*{_DELETED}") if path not in self._deleting]

    def _may_go(
        self, task: TaskId, directory: Path, reason: str, only: list[str] | StateError
    ) -> bool:
        """Log the loss of a directory and return whether to delete it.

        Keep it when it has the `only` copy of a store, even of a store that the topology does not
        have.
        """
        if not only and not self._has_state(task):
            return True
        stores = self._stores(task)
        if isinstance(only, StateError):
            # If the topology has the task, its stores are known, and are in changelogs.
            if stores is None:
                _log.warning(
                    "%s, the local state of task %s, which the topology does not have, is kept, "
                    "although %s: it cannot be read, so its stores may have no changelog. Delete "
                    "it if you do not need it (%s)",
                    directory,
                    task,
                    reason,
                    only,
                )
                return False
        elif only:
            _log.warning(
                "%s, the local state of task %s, is kept, although %s: it has the only copy of "
                "store %s, which has no changelog. Delete it if you do not need that",
                directory,
                task,
                reason,
                ", ".join(only),
            )
            return False
        if stores is None:
            _log.warning(
                "%s, the local state of task %s, which the topology does not have, is deleted: %s",
                directory,
                task,
                reason,
            )
            return True
        give_up(
            str(task),
            stores,
            directory,
            reason,
            fate="is deleted; its changelog has all of it",
        )
        return True

    def _only_copies(self, task: TaskId) -> list[str] | StateError:
        """Return the stores whose only copy is in a task's state, or why it cannot be read."""
        known, directory = list(self._stores(task) or ()), self._path / str(task)
        only = without_copy(known)
        try:
            if not self._has_state(task):
                return []
            if only:
                return only
            self._shared = self._shared or SharedResources()
            return only_copies(str(task), directory, self._shared, logged_on_disk(known))
        except StateError as error:
            return only or error

    def _has_state(self, task: TaskId) -> bool:
        """Return whether a task has a directory, or rows in the shared database, which outlast it.

        Raises StateError.
        """
        database = None if self._shared is None else self._shared.database
        return (self._path / str(task)).exists() or (
            database is not None and database.has(str(task))
        )

    def set_aside(self, tasks: Iterable[TaskId]) -> list[Path]:
        """Rename the directories of tasks at once; return their new paths, for `delete`."""
        found = []
        database = None if self._shared is None else self._shared.database
        for task in tasks:
            directory = self._path / str(task)
            if database is not None and database.has(str(task)):
                # Before the rename: a directory without rows is an empty task, at any start.
                database.wipe(str(task))
                self._wiped.append(str(task))
            if directory.exists():
                # A rename is atomic, so a task that returns never finds a half-deleted directory.
                found.append(directory.rename(self._aside(task)))
            self.used(task)
        return found

    def _aside(self, task: TaskId) -> Path:
        """Return a new name for a directory; an earlier deletion may have failed."""
        names = (
            f"{task}.{number}{_DELETED}" if number else f"{task}{_DELETED}" for number in count()
        )
        return next(path for name in names if not (path := self._path / name).exists())

    def delete(self, directories: Iterable[Path]) -> None:
        """Delete renamed directories; cleanups and the next start retry failed deletions.

        Free the disk of the deleted rows in the shared database, too.
        """
        database = None if self._shared is None else self._shared.database
        wiped, self._wiped = self._wiped, []
        if database is not None and wiped:
            try:
                database.compact(wiped)
            except StateError as error:
                _log.warning("could not free the disk of tasks that have left: %s", error)
        for directory in directories:
            try:
                shutil.rmtree(directory)
            except OSError as error:
                _log.warning("could not delete the directory of a task that has left: %s", error)
            finally:
                self._deleting.discard(directory)


def _changed_ms(directory: Path) -> int:
    """Return when the task was last written, in ms since the epoch.

    Ignores the database's own log, which is written at each open.
    """
    return max(directory.stat().st_mtime_ns // 1_000_000, _written_ms(directory / "rocksdb"))


def _written_ms(database: Path) -> int:
    """Return when a database's last table was written, in ms since the epoch; 0 without tables."""
    last = 0
    for table in database.glob("*.sst"):
        with suppress(FileNotFoundError):  # a merge in the background has just deleted it
            last = max(last, table.stat().st_mtime_ns)
    return last // 1_000_000
