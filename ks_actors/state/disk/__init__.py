"""The disk side of stores: RocksDB and files."""

from ks_actors.state.disk._checkpoint_file import (
    NAME,
    CheckpointFile,
    read_checkpoint,
    read_offsets,
    write_checkpoint,
)
from ks_actors.state.disk._header_upgrade import upgrade
from ks_actors.state.disk._manifest import (
    FACTS,
    META,
    OFFSET,
    Manifest,
    StoreFacts,
    facts_row,
    offset_row,
    read_facts,
    read_offset,
    recall,
)
from ks_actors.state.disk._rocksdb import (
    BEHIND,
    RocksEngine,
    SharedResources,
    SortedTables,
)
from ks_actors.state.disk._rocksdb_errors import raise_if_full
from ks_actors.state.disk._stored_offsets import DATABASE, has_database, stored_offsets

__all__ = [
    "BEHIND",
    "DATABASE",
    "FACTS",
    "META",
    "NAME",
    "OFFSET",
    "CheckpointFile",
    "Manifest",
    "RocksEngine",
    "SharedResources",
    "SortedTables",
    "StoreFacts",
    "facts_row",
    "has_database",
    "offset_row",
    "raise_if_full",
    "read_checkpoint",
    "read_facts",
    "read_offset",
    "read_offsets",
    "recall",
    "stored_offsets",
    "upgrade",
    "write_checkpoint",
]
