"""Snapshots: the state of tasks in files. Reading and writing them needs no running app."""

from typing import TYPE_CHECKING

from ks_actors.system import taken_from

if TYPE_CHECKING:
    from ks_actors.snapshots._logins import without_login as without_login
    from ks_actors.snapshots._manifest import MANIFEST as MANIFEST
    from ks_actors.snapshots._manifest import SUFFIXES as SUFFIXES
    from ks_actors.snapshots._manifest import (
        DataFile,
        Shape,
        SnapshotManifest,
        SourcePosition,
        StoreSnapshot,
        TaskSnapshot,
    )
    from ks_actors.snapshots._manifest import LeftOut as LeftOut
    from ks_actors.snapshots._manifest import fingerprint as fingerprint
    from ks_actors.snapshots._place import Place
    from ks_actors.snapshots._reader import SnapshotReader, find_snapshots
    from ks_actors.snapshots._retention import delete_old_snapshots, delete_snapshot
    from ks_actors.snapshots._writer import SnapshotWriter, StoreWriter
else:
    __getattr__ = taken_from(
        __name__,
        ("_logins", "_place", "_manifest", "_reader", "_retention", "_writer"),
        others=("MANIFEST", "SUFFIXES", "LeftOut", "fingerprint", "without_login"),
    )

__all__ = [
    "DataFile",
    "Place",
    "Shape",
    "SnapshotManifest",
    "SnapshotReader",
    "SnapshotWriter",
    "SourcePosition",
    "StoreSnapshot",
    "StoreWriter",
    "TaskSnapshot",
    "delete_old_snapshots",
    "delete_snapshot",
    "find_snapshots",
]
