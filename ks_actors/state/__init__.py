"""Stores: what a task remembers between records."""

from __future__ import annotations

from ks_actors.state._commit_token import Token
from ks_actors.state._custom import CustomReader, CustomStore
from ks_actors.state._discard import give_up, without_copy
from ks_actors.state._kinds import TIMESTAMPED, AnyReader, AnyStore, reader_of
from ks_actors.state._task_stores import TaskStores
from ks_actors.state.core._iterators import StoreIterator
from ks_actors.state.core._row_scan import Rows
from ks_actors.state.disk._checkpoint_file import read_checkpoint, write_checkpoint
from ks_actors.state.disk._rocksdb import SharedResources
from ks_actors.state.disk._stored_offsets import has_database, stored_offsets
from ks_actors.state.export._rows_in_memory import committed_facts, committed_rows, fill, log_batch, prepare_rows
from ks_actors.state.export._rows_on_disk import (
    SUFFIXES,
    CheckpointRows,
    Ingest,
    StoreIngest,
    clear_drafts,
    has_rows,
    segment_ms_of,
)
from ks_actors.state.key_value._reader import KeyValueReader
from ks_actors.state.key_value._store import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from ks_actors.state.session._reader import SessionReader
from ks_actors.state.session._store import SessionStore
from ks_actors.state.versioned._store import VersionedKeyValueStore, VersionedReader
from ks_actors.state.window._reader import DuplicatesReader, WindowReader
from ks_actors.state.window._store import TimestampedWindowStore, WindowStore

__all__ = [
    "SUFFIXES",
    "TIMESTAMPED",
    "AnyReader",
    "AnyStore",
    "CheckpointRows",
    "CustomReader",
    "CustomStore",
    "DuplicatesReader",
    "Ingest",
    "KeyValueReader",
    "KeyValueStore",
    "Rows",
    "SessionReader",
    "SessionStore",
    "SharedResources",
    "StoreIngest",
    "StoreIterator",
    "TaskStores",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "Token",
    "ValueAndTimestamp",
    "VersionedKeyValueStore",
    "VersionedReader",
    "WindowReader",
    "WindowStore",
    "clear_drafts",
    "committed_facts",
    "committed_rows",
    "fill",
    "give_up",
    "has_database",
    "has_rows",
    "log_batch",
    "prepare_rows",
    "read_checkpoint",
    "reader_of",
    "segment_ms_of",
    "stored_offsets",
    "without_copy",
    "write_checkpoint",
]
