"""State stores: the state that a task keeps between records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.system import taken_from

if TYPE_CHECKING:
    from ks_actors.state._discard import give_up, logged_on_disk, without_copy
    from ks_actors.state.core import (
        AGGREGATION_FORM,
        HEADERS_FORM,
        PLAIN_FORM,
        TIMESTAMPED_FORM,
        AggregationWithHeaders,
        Rows,
        StoreIterator,
        ValueAndTimestamp,
        ValueTimestampHeaders,
        headers_of,
    )
    from ks_actors.state.custom import CustomReader, CustomStore
    from ks_actors.state.disk import (
        SHARED,
        SharedDatabase,
        SharedResources,
        TopicIds,
        has_database,
        offset_sum,
        only_copies,
        read_checkpoint,
        stored_offsets,
        write_checkpoint,
    )
    from ks_actors.state.export import (
        SUFFIXES,
        CheckpointRows,
        Ingest,
        StoreIngest,
        clear_drafts,
        committed_facts,
        committed_rows,
        fill,
        has_rows,
        log_batch,
    )
    from ks_actors.state.key_value import (
        KeyValueReader,
        KeyValueStore,
        KeyValueStoreWithHeaders,
        TimestampedKeyValueStore,
    )
    from ks_actors.state.session import SessionReader, SessionStore, SessionStoreWithHeaders
    from ks_actors.state.task_stores import (
        TIMESTAMPED,
        AnyReader,
        TaskStores,
        Token,
        attach,
        reader_of,
    )
    from ks_actors.state.task_stores import At as At
    from ks_actors.state.task_stores import merged as merged
    from ks_actors.state.versioned import VersionedKeyValueStore, VersionedReader
    from ks_actors.state.window import (
        DuplicatesReader,
        TimestampedWindowStore,
        WindowReader,
        WindowStore,
        WindowStoreWithHeaders,
    )
else:
    __getattr__ = taken_from(
        __name__,
        (
            "_discard",
            "core",
            "disk",
            "custom",
            "task_stores",
            "export",
            "key_value",
            "window",
            "session",
            "versioned",
        ),
        others=("At", "merged"),
    )

__all__ = [
    "AGGREGATION_FORM",
    "HEADERS_FORM",
    "PLAIN_FORM",
    "SHARED",
    "SUFFIXES",
    "TIMESTAMPED",
    "TIMESTAMPED_FORM",
    "AggregationWithHeaders",
    "AnyReader",
    "CheckpointRows",
    "CustomReader",
    "CustomStore",
    "DuplicatesReader",
    "Ingest",
    "KeyValueReader",
    "KeyValueStore",
    "KeyValueStoreWithHeaders",
    "Rows",
    "SessionReader",
    "SessionStore",
    "SessionStoreWithHeaders",
    "SharedDatabase",
    "SharedResources",
    "StoreIngest",
    "StoreIterator",
    "TaskStores",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "Token",
    "TopicIds",
    "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "VersionedKeyValueStore",
    "VersionedReader",
    "WindowReader",
    "WindowStore",
    "WindowStoreWithHeaders",
    "attach",
    "clear_drafts",
    "committed_facts",
    "committed_rows",
    "fill",
    "give_up",
    "has_database",
    "has_rows",
    "headers_of",
    "log_batch",
    "logged_on_disk",
    "offset_sum",
    "only_copies",
    "read_checkpoint",
    "reader_of",
    "stored_offsets",
    "without_copy",
    "write_checkpoint",
]
