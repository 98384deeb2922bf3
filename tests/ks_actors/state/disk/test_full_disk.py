"""A disk that is full for real: a small file system in memory, and the device that never has room."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ks_actors import StateFull
from ks_actors.runtime.shared._state_directory import PROCESS_FILE, StateDirectory
from ks_actors.serdes import LONG
from ks_actors.state import SharedResources
from ks_actors.state.disk import RocksEngine, SharedDatabase
from tests.ks_actors.state.helpers import Task, key_value
from tests.layouts import OWN

ROOT = Path(__file__).parents[4]
SIZE, ROWS, MORE = "2m", 60, 40
# A mount of the process's own, which ends with it: no rights are needed where user namespaces are allowed.
MOUNTED = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


def can_mount() -> bool:
    command = [*MOUNTED, f"mount -t tmpfs -o size={SIZE} tmpfs /mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - our own


def engine_in(directory: Path, layout: str, **options: Any) -> tuple[RocksEngine, Callable[[], None]]:
    """Return a database, or a task's part of one, and what closes it."""
    shared = SharedResources(**options)
    if layout == "task":
        engine = RocksEngine("0_0", directory / "rocksdb", shared)
        return engine, engine.close
    database = SharedDatabase(directory, shared)
    part = database.take("0_0", directory / "0_0", None)
    assert part is not None

    def close() -> None:
        part.close()
        database.close()

    return part, close


def fill(directory: Path, layout: str) -> None:
    """Write until there is no room, and on; say the errors, and what is written when there is some again."""
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    engine, close = engine_in(directory, layout, memtable_bytes=64 << 10, write_buffer_bytes=128 << 10)
    errors: list[Exception] = []
    number = 0
    while len(errors) < MORE:
        try:
            engine.write([(b"k%09d" % (number * ROWS + row), os.urandom(1000)) for row in range(ROWS)])
            number += 1
        except Exception as error:  # noqa: BLE001 - the parent looks at it
            errors.append(error)
    ballast.unlink()
    with suppress(StateFull):  # the rows that it was to write are in the changelog
        close()
    engine, close = engine_in(directory, layout)
    engine.write([(b"k", b"v")])
    engine.flush(wait=True)
    print(sorted({type(error).__name__ for error in errors}), "free space" in str(errors[0]), engine.get(b"k"))  # noqa: T201 - the parent reads it
    close()


@pytest.mark.unmeasured
@pytest.mark.parametrize("layout", ["task", "shared"])
def test_a_full_disk_holds_up_no_write(layout: str) -> None:
    """Each write ends, with StateFull if there is no room: RocksDB itself would wait for some, and the event loop with it."""
    if not can_mount():
        missing = "a file system of a process's own cannot be mounted here"
        (pytest.fail if os.environ.get("CI") in ("1", "true") else pytest.skip)(f"A FULL DISK IS NOT TESTED: {missing}")
    code = f'from pathlib import Path; from tests.ks_actors.state.disk.test_full_disk import fill; fill(Path("/mnt"), "{layout}")'
    mounted = f"mount -t tmpfs -o size={SIZE} tmpfs /mnt && exec {sys.executable} -c '{code}'"
    done = subprocess.run([*MOUNTED, mounted], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)  # noqa: S603 - our own
    assert done.stdout == "['StateFull'] True b'v'\n", done.stderr


def test_a_write_waits_while_rocksdb_is_behind(tmp_path: Path) -> None:
    """Writes that come faster than background work end late, and all are done."""
    engine = RocksEngine("0_0", tmp_path, SharedResources(memtable_bytes=64 << 10, write_buffer_bytes=128 << 10))
    for number in range(200):
        engine.write([(b"k%09d" % (number * ROWS + row), os.urandom(1000)) for row in range(ROWS)])
    assert sum(1 for _ in engine.scan(b"", b"\xff")) == 200 * ROWS
    engine.close()


@OWN
def test_a_checkpoint_file_without_room_is_an_error_of_the_state(tmp_path: Path) -> None:
    """It is StateFull, as for each other file of a store, when the store opens and when it closes; it can be opened when there is room."""
    task = Task([key_value(value=LONG)], tmp_path)
    assert task.directory is not None
    draft = task.directory / ".checkpoint.tmp"
    task.store.put("a", 1)
    task.commit()
    draft.symlink_to("/dev/full")
    with pytest.raises(StateFull, match="free space"):
        task.stores.close(clean=True)
    with pytest.raises(StateFull, match="free space"):
        task.make().open()
    draft.unlink()
    task.open()
    assert task.store.get("a") == 1
    task.close()


def test_a_state_directory_without_room_is_an_error_of_the_state(tmp_path: Path) -> None:
    """It is StateFull, and the directory is free for the next start."""
    draft = tmp_path / f"{PROCESS_FILE}.tmp"
    draft.symlink_to("/dev/full")
    with pytest.raises(StateFull, match="free space"):
        StateDirectory(tmp_path).open()
    draft.unlink()
    directory = StateDirectory(tmp_path)
    assert directory.open()
    directory.close()
