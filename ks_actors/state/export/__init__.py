"""Export and import of a store's committed rows, for snapshots."""

from ks_actors.state.export._rows_in_memory import (
    committed_facts,
    committed_rows,
    fill,
    log_batch,
)
from ks_actors.state.export._rows_on_disk import (
    SUFFIXES,
    CheckpointRows,
    Ingest,
    StoreIngest,
    clear_drafts,
    has_rows,
)

__all__ = [
    "SUFFIXES",
    "CheckpointRows",
    "Ingest",
    "StoreIngest",
    "clear_drafts",
    "committed_facts",
    "committed_rows",
    "fill",
    "has_rows",
    "log_batch",
]
