"""Versioned stores."""

from ks_actors.state.versioned._codec import TOMBSTONE, VersionCodec, snapshot_key, stored_key
from ks_actors.state.versioned._store import VersionedKeyValueStore, VersionedReader
from ks_actors.state.versioned._versions import Versions

__all__ = [
    "TOMBSTONE",
    "VersionCodec",
    "VersionedKeyValueStore",
    "VersionedReader",
    "Versions",
    "snapshot_key",
    "stored_key",
]
