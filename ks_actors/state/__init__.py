"""Stores: what a task remembers between records."""

from __future__ import annotations

from ks_actors.state._checkpoint import read_checkpoint, write_checkpoint
from ks_actors.state._custom import CustomReader, CustomStore
from ks_actors.state._engine import SharedResources
from ks_actors.state._giving_up import give_up, without_copy
from ks_actors.state._iterators import StoreIterator
from ks_actors.state._key_value import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from ks_actors.state._kinds import TIMESTAMPED, AnyReader, AnyStore, reader_of
from ks_actors.state._reading import KeyValueReader
from ks_actors.state._rows import Rows
from ks_actors.state._rows_in_memory import committed_facts, committed_rows, fill, log_batch, prepare_rows
from ks_actors.state._rows_on_disk import (
    SUFFIXES,
    CheckpointRows,
    Ingest,
    StoreIngest,
    clear_drafts,
    has_rows,
    segment_ms_of,
)
from ks_actors.state._session_reading import SessionReader
from ks_actors.state._session_store import SessionStore
from ks_actors.state._stored import has_database, stored_offsets
from ks_actors.state._task_stores import TaskStores
from ks_actors.state._token import Token
from ks_actors.state._versioned_store import VersionedKeyValueStore, VersionedReader
from ks_actors.state._window_reading import DuplicatesReader, WindowReader
from ks_actors.state._window_store import TimestampedWindowStore, WindowStore

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
