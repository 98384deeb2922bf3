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
from ks_actors.state.disk._only_copies import (
    ENGINES,
    OTHERWISE,
    only_copies,
    open_database,
    unlogged_stores,
)
from ks_actors.state.disk._rocksdb import (
    BEHIND,
    RocksEngine,
    SharedResources,
    SortedTables,
)
from ks_actors.state.disk._rocksdb_errors import raise_if_full, refuse
from ks_actors.state.disk._shared_database import DAMAGED, SHARED, SharedDatabase
from ks_actors.state.disk._stored_offsets import (
    DATABASE,
    DRAFT,
    has_database,
    offset_sum,
    stored_offsets,
)
from ks_actors.state.disk._task_engine import LAYOUT, TaskEngine
from ks_actors.state.disk._topic_ids import TOPIC_IDS, TopicIds

__all__ = [
    "BEHIND",
    "DAMAGED",
    "DATABASE",
    "DRAFT",
    "ENGINES",
    "FACTS",
    "LAYOUT",
    "META",
    "NAME",
    "OFFSET",
    "OTHERWISE",
    "SHARED",
    "TOPIC_IDS",
    "CheckpointFile",
    "Manifest",
    "RocksEngine",
    "SharedDatabase",
    "SharedResources",
    "SortedTables",
    "StoreFacts",
    "TaskEngine",
    "TopicIds",
    "facts_row",
    "has_database",
    "offset_row",
    "offset_sum",
    "only_copies",
    "open_database",
    "raise_if_full",
    "read_checkpoint",
    "read_facts",
    "read_offset",
    "read_offsets",
    "recall",
    "refuse",
    "stored_offsets",
    "unlogged_stores",
    "upgrade",
    "write_checkpoint",
]
