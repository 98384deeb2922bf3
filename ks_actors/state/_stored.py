"""How far a task's state on disk is, without opening its stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rocksdict

from ks_actors.state._engine import after
from ks_actors.state._manifest import OFFSET, unpack_offset

if TYPE_CHECKING:
    from pathlib import Path

    from ks_actors.state._engine import SharedResources

DATABASE = "rocksdb"


def stored_offsets(directory: Path, shared: SharedResources) -> dict[str, int]:
    """Return where the changelog of each store is to be read from, as a task's directory has it; nothing when there is nothing that can be read.

    Blocks, some ms. Nobody may have the stores open to write.
    """
    database = directory / DATABASE
    if not database.is_dir():
        return {}
    found: dict[str, int] = {}
    try:
        opened = rocksdict.Rdict(str(database), shared.options(), access_type=rocksdict.AccessType.read_only())
        try:
            options = rocksdict.ReadOptions()
            bound = after(OFFSET)  # RocksDB reads it where Python has it
            options.set_iterate_upper_bound(bound)
            rows = opened.iter(options)
            rows.seek(OFFSET)
            while rows.valid():
                found[rows.key()[len(OFFSET) :].decode()] = unpack_offset(rows.value())
                rows.next()
        finally:
            opened.close()
    except Exception:  # noqa: BLE001 - whatever it is, opening the stores will find it as well, and deal with it
        return {}
    return found
