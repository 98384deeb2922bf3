"""Copies of databases that snapshots are written from."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ks_actors.state import CheckpointRows, SharedResources
from ks_actors.state._engine import RocksEngine
from ks_actors.state._manifest import Manifest, offset_row

if TYPE_CHECKING:
    from pathlib import Path


def files_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of RocksDB's files; that of its Python package, some bytes, is written each time."""
    found = (path for path in directory.iterdir() if path.name != "rocksdict-config.json")
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def test_reading_a_copy_writes_nothing(tmp_path: Path) -> None:
    """To open a database to be written stops all threads until its files are on disk; a copy is only read, so none is made, or changed."""
    copy = tmp_path / "copy"
    with closing(SharedResources()) as shared:
        with closing(RocksEngine("0_0", tmp_path / "rocksdb", shared)) as engine:
            manifest = Manifest()
            manifest.admit("counts", "key_value", 0, "0_0", duplicates=False)
            engine.write([manifest.row(), offset_row("counts", 7)])
            engine.checkpoint(copy)
        before = files_of(copy)
        with CheckpointRows("0_0", copy, shared) as rows:
            assert rows.next_offset("counts") == 7
        assert files_of(copy) == before
