"""Copies of databases, made of hard links."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import rocksdict

if TYPE_CHECKING:
    from pathlib import Path

_ATTEMPTS: Final = 5


def link_database(database: Any, source: Path, copy: Path) -> None:
    """Copy a database's files on disk into a new directory, by hard links to its tables. Blocks.

    RocksDB's own checkpoint stops all threads until files are synced, some 10 ms and more. These
    copies need no sync, because nothing uses them after a crash.

    This copy links all tables, copies the manifest, then links again. So each table in the copied
    manifest existed before it was listed. A table may be gone by then, but only if other tables
    have replaced it; then the copy is made again. RocksDB makes the checkpoint if tables change on
    each attempt, or if the file system has no hard links. Raises OSError and RocksDB's errors.
    """
    for _ in range(_ATTEMPTS):
        try:
            if _linked(database, source, copy):
                return
        except OSError:
            pass  # a table is gone, or there are no hard links
        shutil.rmtree(copy, ignore_errors=True)
    rocksdict.Checkpoint(database).create_checkpoint(str(copy))


def _linked(database: Any, source: Path, copy: Path) -> bool:
    """Make the copy; return whether the database has not changed meanwhile."""
    tables, current = _tables(database), (source / "CURRENT").read_text()
    copy.mkdir()
    _link(source, copy)
    manifest = current.strip()
    shutil.copyfile(source / manifest, copy / manifest)
    _link(source, copy)
    for path in (*source.glob("OPTIONS-*"), *source.glob("*.json")):
        shutil.copyfile(path, copy / path.name)
    (copy / "CURRENT").write_text(current)
    return _tables(database) == tables and (source / "CURRENT").read_text() == current


def _link(source: Path, copy: Path) -> None:
    for path in source.glob("*.sst"):
        linked = copy / path.name
        if not linked.exists():
            os.link(path, linked)


def _tables(database: Any) -> set[str]:
    return {table["name"] for table in database.live_files()}
