"""The offsets of a task's state on disk, read without opening its stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import rocksdict

from ks_actors._errors import StateError
from ks_actors.state.core import after
from ks_actors.state.disk._checkpoint_file import NAME, read_checkpoint
from ks_actors.state.disk._manifest import OFFSET, unpack_offset
from ks_actors.system import check_fork

if TYPE_CHECKING:
    from pathlib import Path

    from ks_actors.state.disk._rocksdb import SharedResources

DATABASE = "rocksdb"
DRAFT = "rocksdb.ingest"
_DATA: Final = ("*.sst", "*.log", "MANIFEST-*")


def stored_offsets(directory: Path, shared: SharedResources) -> dict[str, int]:
    """Return the offset to read each store's changelog from, as stored in a task's directory.

    Return nothing if there is no readable state. A custom store appears under the name of its
    changelog, the only known fact about it. Blocks for some ms. The stores must not be open for
    writing.
    """
    found = _in_database(directory, shared)
    try:
        checkpoint = read_checkpoint(directory)
    except StateError:
        return found
    # A database's own offsets are newer than those in the file.
    return found | {
        topic: offset
        for (topic, _), offset in checkpoint.items()
        if not any(topic.endswith(f"-{store}-changelog") for store in found)
    }


def offset_sum(directory: Path, shared: SharedResources) -> int | None:
    """Return the sum of the stored offsets of a closed task; None if nothing is known.

    If the task was closed cleanly, its checkpoint file has them, so its database is not opened.
    After a crash it is. Blocks.
    """
    try:
        closed = read_checkpoint(directory) if _written_last(directory) else {}
    except (OSError, StateError):
        closed = {}  # the database tells, or opening the stores finds the error
    found = list(closed.values()) or list(stored_offsets(directory, shared).values())
    return sum(found) if found else None


def _written_last(directory: Path) -> bool:
    """Return whether the checkpoint file was written after all data of the task's database."""
    file, database = directory / NAME, directory / DATABASE
    if not file.exists() or not database.is_dir():
        return False
    data = [each.stat().st_mtime_ns for what in _DATA for each in database.glob(what)]
    return bool(data) and file.stat().st_mtime_ns >= max(data)


def has_database(directory: Path, shared: SharedResources) -> bool:
    """Return whether a closed task has a database, even an empty one, or rows in the shared one.

    Blocks. Raises TaskCorrupted if the shared one cannot be read.
    """
    one = shared.database
    return (directory / DATABASE).exists() or (one is not None and one.has(directory.name))


def _in_database(directory: Path, shared: SharedResources) -> dict[str, int]:
    database, one = directory / DATABASE, shared.database
    found: dict[str, int] = {}
    try:
        if not database.is_dir():
            return {} if one is None else one.offsets(directory.name)
        check_fork()
        opened = rocksdict.Rdict(
            str(database), shared.options(), access_type=rocksdict.AccessType.read_only()
        )
        try:
            options = rocksdict.ReadOptions()
            bound = after(OFFSET)  # RocksDB reads the bound from Python's memory, so keep it alive
            options.set_iterate_upper_bound(bound)
            rows = opened.iter(options)
            rows.seek(OFFSET)
            while rows.valid():
                found[rows.key()[len(OFFSET) :].decode()] = unpack_offset(rows.value())
                rows.next()
        finally:
            opened.close()
    except Exception:  # noqa: BLE001 - opening the stores finds the error, too, and handles it
        return {}
    return found
