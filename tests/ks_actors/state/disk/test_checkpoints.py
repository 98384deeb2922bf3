"""Copies of databases that snapshots are written from."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from ks_actors.state import CheckpointRows, SharedResources
from ks_actors.state.disk._manifest import Manifest, StoreFacts, offset_row
from ks_actors.state.disk._rocksdb import RocksEngine


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
            manifest.admit("counts", StoreFacts(0, "key_value"), "0_0")
            engine.write([manifest.row(), offset_row("counts", 7)])
            engine.checkpoint(copy)
        before = files_of(copy)
        with CheckpointRows("0_0", copy, shared) as rows:
            assert rows.next_offset("counts") == 7
        assert files_of(copy) == before


def rows_of(directory: Path, shared: SharedResources) -> dict[bytes, bytes]:
    with closing(RocksEngine("0_0", directory, shared, read_only=True)) as engine:
        return dict(engine.scan(b"", b"\xff"))


def test_a_copy_is_whole_while_tables_come_and_go(tmp_path: Path) -> None:
    """RocksDB merges tables whenever it likes: a copy has all rows all the same, those that were never merged and those that were."""
    with closing(SharedResources()) as shared, closing(RocksEngine("0_0", tmp_path / "rocksdb", shared)) as engine:
        done = threading.Event()

        def merge() -> None:
            while not done.is_set():
                engine._data.compact_range(None, None)

        merging = threading.Thread(target=merge)
        merging.start()
        expected: dict[bytes, bytes] = {}
        try:
            for number in range(40):
                rows = {b"%d" % key: b"%d" % number for key in range(number, number + 200)}
                expected |= rows
                for part in range(4):
                    engine.write(sorted(rows.items())[part::4])
                    engine.flush(wait=True)
                engine.checkpoint(tmp_path / f"copy {number}")
                assert rows_of(tmp_path / f"copy {number}", shared) == expected
        finally:
            done.set()
            merging.join(30)
        assert not merging.is_alive()


def test_without_links_rocksdb_makes_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has none is no reason to have no snapshots."""

    def refuse(*_: object) -> None:
        raise PermissionError("injected: no links here")

    with closing(SharedResources()) as shared, closing(RocksEngine("0_0", tmp_path / "rocksdb", shared)) as engine:
        engine.write([(b"a", b"1")])
        monkeypatch.setattr(os, "link", refuse)
        engine.checkpoint(tmp_path / "copy")
        assert rows_of(tmp_path / "copy", shared) == {b"a": b"1"}
