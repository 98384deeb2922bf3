"""Snapshots, and the bootstrap from them."""

from ks_actors.runtime.snapshots._bootstrap import Bootstrap, IfSeeded
from ks_actors.runtime.snapshots._from_snapshot import SnapshotSource
from ks_actors.runtime.snapshots._snapshot_files import shape_of, topology_fingerprint
from ks_actors.runtime.snapshots._snapshots import SNAPSHOTS_MAILBOX, Snapshots

__all__ = [
    "SNAPSHOTS_MAILBOX",
    "Bootstrap",
    "IfSeeded",
    "SnapshotSource",
    "Snapshots",
    "shape_of",
    "topology_fingerprint",
]
