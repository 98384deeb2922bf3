"""State on disk without a changelog: it must be neither deleted nor overlooked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors._errors import StateError, TaskCorrupted
from ks_actors.state.core import after
from ks_actors.state.disk._checkpoint_file import NAME, read_checkpoint
from ks_actors.state.disk._manifest import MARK, STORES, Manifest, read_offset
from ks_actors.state.disk._rocksdb import RocksEngine
from ks_actors.state.disk._rocksdb_errors import refuse
from ks_actors.state.disk._stored_offsets import DATABASE, DRAFT

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from ks_actors.state.disk._rocksdb import SharedResources

ENGINES: Final = "engines"
"""The name of the directory of all supplied engines, below the task's."""

OTHERWISE: Final = "~"
"""The suffix of a custom store's directory if the task's own files use the store's name."""


def open_database(
    task: str,
    directory: Path,
    shared: SharedResources,
    names: Collection[str],
    *,
    careful: bool,
) -> RocksEngine:
    """Open the database of a task: in its directory, or its part of the shared one. Blocks.

    `names` are those in the directory. The task's rows are moved if they are in the other of the
    two. Raises TaskCorrupted, also when there are tables but the database knows no stores. RocksDB
    accepts a truncated MANIFEST, and deletes the tables that are not listed there. With `careful`,
    check before this deletion and keep the tables; the check takes some ms more.
    """
    one = shared.database
    if one is None or one.leaving:
        if one is not None:
            one.give(task, directory)
        return _open_own(task, directory, shared, careful=careful)
    own: RocksEngine | None = None
    if DATABASE in names:
        own = _open_own(task, directory, shared, careful=careful)
    try:
        found = one.take(task, directory, own, draft=DRAFT in names)
    except BaseException:
        if own is not None:
            own.close()
        raise
    return found or own or _open_own(task, directory, shared, careful=careful)


def _open_own(task: str, directory: Path, shared: SharedResources, *, careful: bool) -> RocksEngine:
    directory = directory / DATABASE
    has_tables = _has_tables(task, directory)
    if has_tables and careful:
        looking = RocksEngine(task, directory, shared, read_only=True)
        try:
            _check_stores(looking, task, directory)
        finally:
            looking.close()
    engine = RocksEngine(task, directory, shared)
    if has_tables:
        try:
            _check_stores(engine, task, directory)
        except BaseException:
            engine.close()
            raise
    return engine


def _has_tables(task: str, database: Path) -> bool:
    try:
        return any(database.glob("*.sst"))
    except OSError as error:
        refuse(error, f"task {task}: the state in {database}")


def _check_stores(engine: RocksEngine, task: str, directory: Path) -> None:
    if engine.get(STORES) is None:
        raise TaskCorrupted(
            f"task {task}: the state in {directory} is damaged: it is deleted and restored (it has "
            "tables that are not in its MANIFEST, which was probably truncated)"
        )


def unlogged_stores(task: str, directory: Path, shared: SharedResources) -> list[str]:
    """Return the stores in a closed task's database with rows and no changelog. Blocks, some ms.

    Such rows may be of an earlier topology. Raises StateError if the database cannot be read.
    """
    database = directory / DATABASE
    if not _has_tables(task, database) and not (database / "CURRENT").exists():
        return [] if shared.database is None else shared.database.unlogged(task)
    engine = RocksEngine(task, database, shared, read_only=True)
    try:
        return unlogged_in(engine, task)
    finally:
        engine.close()


def unlogged_in(engine: RocksEngine, task: str) -> list[str]:
    """Return the stores with rows and no changelog. Raises StateError."""
    return [
        name
        for name, facts in Manifest.read(engine, task).stores.items()
        if not facts.changelog
        and MARK not in name
        and read_offset(engine, name) is None
        and _has_rows(engine, facts.id)
    ]


def _has_rows(engine: RocksEngine, number: int) -> bool:
    prefix = bytes((number,))
    rows = engine.scan(prefix, after(prefix))
    try:
        return next(rows, None) is not None
    finally:
        rows.close()


def only_copies(
    task: str, directory: Path, shared: SharedResources, logged: Collection[str]
) -> list[str]:
    """Return the stores of which a task's directory may have the only copy. Blocks for some ms.

    Stores known to be `logged` do not count. For an engine or a custom store, only an offset in the
    checkpoint file shows that it has a changelog. Raises StateError if the directory cannot be
    read.
    """
    try:
        found = [*unlogged_stores(task, directory, shared), *_with_files(directory)]
    except OSError as error:
        raise StateError(f"task {task}: {directory} cannot be read: {error}") from error
    return [name for name in dict.fromkeys(found) if name not in logged]


def _with_files(directory: Path) -> list[str]:
    """Return the engines and custom stores with files, but no offset in the checkpoint file."""
    if not directory.exists():
        return []  # a user has deleted it; rows in the shared database may be left
    topics = {topic for topic, _ in read_checkpoint(directory)}
    engines = directory / ENGINES
    places = [
        *(
            each
            for each in directory.iterdir()
            if each.name not in {DATABASE, DRAFT, ENGINES, NAME}
        ),
        *(engines.iterdir() if engines.is_dir() else ()),
    ]
    names = [
        each.name.removesuffix(OTHERWISE)
        for each in places
        if each.is_dir() and any(each.iterdir())
    ]
    return [
        name
        for name in names
        if name not in topics and not any(topic.endswith(f"-{name}-changelog") for topic in topics)
    ]
