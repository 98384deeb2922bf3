"""Copies of databases, made of links."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import rocksdict

if TYPE_CHECKING:
    from pathlib import Path

_ATTEMPTS: Final = 5


def link_database(database: Any, source: Path, copy: Path) -> None:
    """Make a directory that there is not yet a database with what `database`, in `source`, has on disk, of links to its tables. Blocks.

    RocksDB's own way of it stops all threads until files are on disk, which a copy that nobody needs after a crash does not have to be: some 10 ms
    and more. Here all tables that there are get linked, before the list of those that count is copied and once more after it: one that is in the list
    was there before it was listed. It may have gone again, but not without others having come into its place meanwhile.
    RocksDB has to do it where tables come and go each time, and where there are no links. Raises OSError, and what RocksDB does.
    """
    for _ in range(_ATTEMPTS):
        try:
            if _linked(database, source, copy):
                return
        except OSError:
            pass  # a table has gone meanwhile, or there are no links here
        shutil.rmtree(copy, ignore_errors=True)
    rocksdict.Checkpoint(database).create_checkpoint(str(copy))


def _linked(database: Any, source: Path, copy: Path) -> bool:
    """Make the copy; return whether nothing has changed meanwhile."""
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
