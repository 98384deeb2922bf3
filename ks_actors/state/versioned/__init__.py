"""Versioned stores."""

from ks_actors.state.versioned._codec import TOMBSTONE, VersionCodec, snapshot_key, stored_key
from ks_actors.state.versioned._reader import VersionedReader
from ks_actors.state.versioned._store import VersionedKeyValueStore

__all__ = [
    "TOMBSTONE",
    "VersionCodec",
    "VersionedKeyValueStore",
    "VersionedReader",
    "snapshot_key",
    "stored_key",
]
