"""The database that all tasks of an instance share (`state_layout`)."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import StateError, StateLocked, TaskCorrupted
from ks_actors.lifecycle import component_log
from ks_actors.state._discard import without_copy
from ks_actors.state.core import after
from ks_actors.state.disk._manifest import META, OFFSET, STORES, unpack_offset
from ks_actors.state.disk._only_copies import unlogged_in
from ks_actors.state.disk._rocksdb import ALL_TASKS, RocksEngine
from ks_actors.state.disk._rocksdb_errors import refuse
from ks_actors.state.disk._stored_offsets import DATABASE, DRAFT
from ks_actors.state.disk._task_engine import LAYOUT, TaskEngine, task_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ks_actors.state.disk._rocksdb import SharedResources
    from ks_actors.topology import StoreSpec

SHARED: Final = "shared"
"""The name of the database's directory, beside those of the tasks."""

DAMAGED: Final = "DAMAGED"
"""The name of the file in it that says that the database is to be deleted at the next start."""

FORMAT: Final = b"1"
LAST: Final = b"\xff"
"""A key after those of all tasks."""

FLUSH_S: Final = 1.0
SLICE: Final = 1_000
_log = component_log(__name__)


@final
class SharedDatabase:
    """One RocksDB database for the stores of all tasks below `root`, the application's directory.

    Each key begins with its task. Writes of any task are on disk in the order in which they were
    made, so a task's offsets are never ahead of its rows, whichever task flushes.

    A task's own database in its directory, of the other layout or from a snapshot, is newer than
    its rows here: `take` moves them in when the task opens. A `leaving` database takes in nothing,
    and gives each task that opens a database of its own.

    When a block turns out to be unreadable, RocksDB soon refuses all merges. So a task that finds
    damage gets a database of its own until the next start, which deletes this database; tasks that
    are still in it are restored then.

    After any other error, such as a full disk, all tasks have to be closed: rows in memory may
    never get to the disk. The database is opened again with the next task then; if that finds
    damage, it is deleted.

    Open, close, `take` and `give` block. Tasks may be used in different threads.
    """

    def __init__(
        self,
        root: Path,
        shared: SharedResources,
        specs: Iterable[StoreSpec] = (),
        *,
        leaving: bool = False,
    ) -> None:
        """Open the database, or create it.

        A damaged one is deleted, with a warning. Raises StateError if one of the `specs` would lose
        its only copy by that, StateLocked, and StateFull.
        """
        self.directory: Path = root / SHARED
        self.leaving: bool = leaving
        self.damage: str = ""
        self._marker: Path = self.directory / DAMAGED
        self._shared: SharedResources = shared
        self._lock: threading.Lock = threading.Lock()
        self._compacting: threading.Lock = threading.Lock()
        self._closing: bool = False
        self._open: set[str] = set()
        # Tasks whose rows here do not count any more, and could not be deleted.
        self._outside: set[str] = set()
        self._only: list[str] = without_copy(specs)
        try:
            self._discard_damaged()
        except TaskCorrupted as error:
            self._discard(str(error), self._only)
        self._engine: RocksEngine = self._opened_or_new()

    # Opening and closing.

    def _opened_or_new(self) -> RocksEngine:
        """Open the database; delete a damaged one, and create a new one."""
        try:
            return self._opened()
        except TaskCorrupted as error:
            self._discard(str(error), self._only)
            return self._opened()

    def _opened(self) -> RocksEngine:
        """Open the database.

        Raises TaskCorrupted when it has tables but not the layout's row, and when its tasks cannot
        be listed.

        RocksDB accepts a truncated MANIFEST, and deletes the tables that are not listed there. So
        look before it may do that: there may be a store without changelog.
        """
        fresh = not self._has_tables()
        if not fresh:
            looking = RocksEngine(ALL_TASKS, self.directory, self._shared, read_only=True)
            try:
                self._check(looking)
            finally:
                looking.close()
        engine = RocksEngine(
            ALL_TASKS,
            self.directory,
            self._shared,
            flush_s=FLUSH_S,
            ends=((LAYOUT, FORMAT), (LAST, b"")),
        )
        try:
            if engine.get(LAYOUT) is None:
                engine.write([(LAYOUT, FORMAT)], durable=True)
            self._check(engine)
            _tasks_in(engine)
        except BaseException:
            engine.close()
            raise
        return engine

    def _has_tables(self) -> bool:
        try:
            return any(self.directory.glob("*.sst"))
        except OSError as error:
            refuse(error, f"the state of {ALL_TASKS} in {self.directory}")

    def _check(self, engine: RocksEngine) -> None:
        found = engine.get(LAYOUT)
        if found is None:
            raise TaskCorrupted(
                f"the state of {ALL_TASKS} in {self.directory} is damaged: it has tables that are "
                "not in its MANIFEST, which was probably truncated"
            )
        if found != FORMAT:
            raise TaskCorrupted(
                f"the state of {ALL_TASKS} in {self.directory} is of format {found!r}, expected "
                f"{FORMAT!r}"
            )

    def _discard_damaged(self) -> None:
        """Delete a database that was found damaged in an earlier run."""
        if not self._marker.exists():
            return
        only: list[str] = []
        if self._has_tables() or (self.directory / "CURRENT").exists():
            self._engine = RocksEngine(ALL_TASKS, self.directory, self._shared, read_only=True)
            try:
                only = sorted({name for task in self.tasks() for name in self.unlogged(task)})
            finally:
                self._engine.close()
        if only:
            _log.warning(
                "the damaged database %s is kept, because it has the only copy of store %s, which "
                "has no changelog. Put back a copy of that directory; or move it away to start "
                "with an empty store",
                self.directory,
                ", ".join(only),
            )
        else:
            self._discard(self._marker.read_text(), ())

    def _discard(self, reason: str, only: Iterable[str]) -> None:
        if names := ", ".join(only):
            raise StateError(
                f"store {names} has no changelog, and its only copy, in {self.directory}, cannot "
                f"be used: {reason}. Put back a copy of that directory; or move it away to start "
                "with an empty store"
            )
        _log.warning(
            "the local state of all tasks, in %s, is deleted, and restored from changelogs: %s",
            self.directory,
            reason,
        )
        try:
            if self.directory.exists():
                shutil.rmtree(self.directory)
        except OSError as error:
            refuse(error, f"the state of {ALL_TASKS} in {self.directory}")
        self.damage = ""
        self._outside.clear()

    def close(self) -> None:
        """Flush the rows of all tasks and close. Delete a `leaving` database without rows."""
        self._closing, empty = True, False
        # RocksDB cannot be closed amid a merge.
        with self._compacting:
            with suppress(TaskCorrupted):  # noted in `damage`
                empty = self.leaving and not self.damage and not self.tasks()
            try:
                self._engine.close()
            except TaskCorrupted as error:
                self._note(str(error))
        if empty:
            shutil.rmtree(self.directory)

    # Tasks.

    def tasks(self) -> list[str]:
        """Return the tasks with rows, in order of their names; takes some µs per task.

        Raises TaskCorrupted.
        """
        try:
            return _tasks_in(self._engine)
        except TaskCorrupted as error:
            self._note(str(error))
            raise

    def has(self, task: str) -> bool:
        """Return whether there are rows of a task that count."""
        return task not in self._outside and self.look(task).get(STORES) is not None

    def look(self, task: str) -> TaskEngine:
        """Return the rows of a task that is not open, for reading; closing them is not needed."""
        return TaskEngine(task, self._engine, damaged=self._note)

    def offsets(self, task: str) -> dict[str, int]:
        """Return the next offset of the changelog of each store of a closed task."""
        if not self.has(task):
            return {}
        rows = self.look(task).scan(OFFSET, after(OFFSET))
        return {key[len(OFFSET) :].decode(): unpack_offset(data) for key, data in rows}

    def unlogged(self, task: str) -> list[str]:
        """Return the stores of a closed task that have rows and no changelog.

        Raises StateError if the rows cannot be read.
        """
        return unlogged_in(self.look(task), task) if task not in self._outside else []

    def take(
        self, task: str, directory: Path, own: RocksEngine | None, *, draft: bool = True
    ) -> TaskEngine | None:
        """Open the rows of a task, those of its `own` database if it has one.

        Return None, and leave `own` open, if the task has to use a database of its own. Otherwise
        `own` is deleted once its rows are on disk here; after a crash before that they are moved
        again. `directory` is made for the task's other files. Raises StateLocked, StateFull, and
        TaskCorrupted.
        """
        if self.damage and (own is not None or not self.has(task)):
            return None
        with self._lock:
            if task in self._open:
                raise StateLocked(
                    f"task {task}: the state in {self.directory} is in use by another app in this "
                    "process: stop it, or choose another directory"
                )
            if self.failed and not self._open:
                self._open_again()
            self._open.add(task)
        engine = TaskEngine(
            task,
            self._engine,
            damaged=self._note,
            closed=lambda: self._left(task, directory),
            tasks=lambda: len(self._open),
        )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if draft:
                _clear_draft(directory)
            if own is not None or engine.get(STORES) is None:
                # Rows without a list of stores are of a move that was interrupted.
                _clear(engine)
            if own is not None:
                _copy(own, engine)
                own.close()
                _drop(directory)
        except OSError as error:
            self._left(task, directory)
            refuse(error, f"task {task}: the state in {directory}")
        except BaseException:
            self._left(task, directory)
            raise
        return engine

    def give(self, task: str, directory: Path) -> None:
        """Move the rows of a task into a database of its own, for the layout by task.

        After a crash they are here, or there, or in both places, where the task's own count. Raises
        StateFull, and TaskCorrupted.
        """
        if not self.has(task):
            return
        if not (directory / DATABASE).exists():
            draft = directory / DRAFT
            try:
                _clear_draft(directory)
                own = RocksEngine(task, draft, self._shared)
                try:
                    _copy(self.look(task), own)
                finally:
                    own.close()
                draft.rename(directory / DATABASE)
            except OSError as error:
                refuse(error, f"task {task}: the state in {directory}")
        self.wipe(task)

    def wipe(self, task: str) -> None:
        """Delete the rows of a closed task; those of others stay. Raises StateFull.

        In a damaged database, they stay on disk, and do not count any more.
        """
        try:
            if not self.damage:
                self.look(task).wipe()
        except TaskCorrupted:
            pass  # noted in `damage`
        if self.damage:
            self._outside.add(task)

    def compact(self, tasks: Iterable[str]) -> None:
        """Free the disk of the deleted rows of tasks. Blocks; other threads run. Raises StateError.

        RocksDB itself would do it at some later merge.
        """
        for task in tasks:
            with self._compacting:
                if self._closing:
                    return
                self._engine.compact(*self.look(task).bounds)

    @property
    def failed(self) -> bool:
        """Whether there was an error after which all tasks have to be closed."""
        return self._engine.failed

    def _open_again(self) -> None:
        with self._compacting:
            try:
                self._engine.close()
            except StateError as error:
                _log.warning(
                    "the last changes of %s in %s are not on disk, and are read from changelogs: "
                    "%s",
                    ALL_TASKS,
                    self.directory,
                    error,
                )
            try:
                self._engine = self._opened_or_new()
            except StateError:
                self._only_read()
                raise

    def _only_read(self) -> None:
        """Open the database for reading, so that offsets are known until there is room again."""
        with suppress(StateError):  # the caller raises the first error
            self._engine = RocksEngine(ALL_TASKS, self.directory, self._shared, read_only=True)
            self._engine.failed = True

    def _left(self, task: str, directory: Path) -> None:
        with self._lock:
            self._open.discard(task)
            last = not self._open
        # The time tells how long the task has not been used: without it, the state only seems
        # older. The directory may be missing, or another user's.
        with suppress(OSError):
            os.utime(directory)
        # After an error, a flush would only raise it again: it was reported.
        if last and not self.damage and not self.failed:
            try:
                self._engine.flush(wait=True)
            except TaskCorrupted as error:
                # The task is closed: its next opening, or the next start, restores it.
                self._note(str(error))

    def _note(self, reason: str) -> None:
        """Note damage, for this run and for the next start."""
        if not self.damage:
            self.damage = reason
            try:
                self._marker.write_text(reason)
            except OSError as error:
                _log.warning(
                    "%s cannot be written, so the next start will use the damaged database again: "
                    "%s",
                    self._marker,
                    error,
                )


def _tasks_in(engine: RocksEngine) -> list[str]:
    found: list[str] = []
    low = after(META)
    while True:
        rows = engine.scan(low, LAST)
        row = next(rows, None)
        rows.close()
        if row is None:
            return found
        found.append(task_of(row[0]))
        low = after(found[-1].encode() + b"/")


def _clear(engine: TaskEngine) -> None:
    rows = engine.scan(b"", b"\xff")
    found = next(rows, None)
    rows.close()
    if found is not None:
        engine.wipe()


def _copy(source: RocksEngine, target: RocksEngine) -> None:
    """Copy all rows of a task, its list of stores and its offsets last, and flush them."""
    rows = source.scan(after(META), b"\xff")
    while found := list(islice(rows, SLICE)):
        target.write(found)
    target.write(list(source.scan(META, after(META))))
    target.flush(wait=True)


def _drop(directory: Path) -> None:
    """Delete a task's own database; after a crash, what is left of it does not count."""
    (directory / DATABASE).rename(directory / DRAFT)
    _clear_draft(directory)


def _clear_draft(directory: Path) -> None:
    draft = directory / DRAFT
    if draft.exists():
        shutil.rmtree(draft)
