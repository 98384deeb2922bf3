"""Specifications of state stores; the state package makes the stores."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from ks_actors.records import CustomWindows
from ks_actors.topology._store_engine import StoreType


class StoreKind(Enum):
    """The kind of a store, which decides its operations."""

    KEY_VALUE = "key_value"
    TIMESTAMPED_KEY_VALUE = "timestamped_key_value"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped_window"
    SESSION = "session"
    VERSIONED = "versioned"
    CUSTOM = "custom"
    KEY_VALUE_WITH_HEADERS = "timestamped_key_value_with_headers"
    WINDOW_WITH_HEADERS = "timestamped_window_with_headers"
    SESSION_WITH_HEADERS = "session_with_headers"


class StorePlace(Enum):
    """The place of a store's rows."""

    DATABASE = "database"
    """The RocksDB database of the task."""
    MEMORY = "memory"
    """Memory alone."""
    ENGINE = "engine"
    """A `StoreEngine` of the user's own."""
    CUSTOM = "custom"
    """A custom store, which keeps its data itself."""


WITH_HEADERS: Final = {
    StoreKind.TIMESTAMPED_KEY_VALUE: StoreKind.KEY_VALUE_WITH_HEADERS,
    StoreKind.TIMESTAMPED_WINDOW: StoreKind.WINDOW_WITH_HEADERS,
    StoreKind.SESSION: StoreKind.SESSION_WITH_HEADERS,
}
"""The kinds of stores that can keep headers, and the kinds that do (KIP-1271)."""

HEADED: Final = frozenset(WITH_HEADERS.values())
"""The kinds of stores that keep headers."""


def bare_kind(kind: str) -> str:
    """Return the name of a kind, without its suffix for timestamps or headers."""
    return kind.removeprefix("timestamped_").removesuffix("_with_headers")


_SHORTEST_SEGMENT_MS: Final = 60_000


class StoreSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One state store of a topology; every task of its subtopology has one such store.

    `key` and `value` are serdes (`ks_actors.serdes.Serde`). `type` says where its rows are, None is
    the app's default.
    `logging` keeps a changelog topic; `changelog_configs` override the configs of the kind.
    `caching` lets the cache hold back the updates of its table. `as_written` keeps values as bytes
    where the store could keep objects, because an operator compares the bytes.

    Times are ms. A window or session store drops rows that are older than `retention_ms` behind the
    latest record put into it. A versioned store drops versions `history_retention_ms` after their
    replacement. For `spare_ms` longer the rows of a window or session store stay visible, if its
    operator still accepts records for them. The windows of all keys start at the same times, about
    `advance_ms` apart (0: at any time). `windows` are custom windows, which tell their ends.
    `rows_of` is the meaning of rows of the DSL: the windows that they belong to, the topic of a
    table, or the serdes of a join by foreign keys (foreign key, left key, left value).

    The kind of a store `of_dsl` may become a kind with headers, as `dsl_store_format` says.

    `supplier` makes a custom store (`StateStore`), for which only `logging` matters besides.
    `source_topic` is a topic that the store is filled from unchanged: it is the changelog, and
    nothing is written to it.
    """

    name: str
    kind: StoreKind
    key: Any
    value: Any
    type: StoreType | None = None
    logging: bool = True
    caching: bool = False
    as_written: bool = False
    changelog_configs: Mapping[str, str] = {}
    retention_ms: int = 0
    spare_ms: int = 0
    window_size_ms: int = 0
    advance_ms: int = 0
    windows: CustomWindows | None = None
    rows_of: Any = None
    retain_duplicates: bool = False
    history_retention_ms: int = 0
    source_topic: str | None = None
    supplier: Any = None
    of_dsl: bool = False

    @property
    def place(self) -> StorePlace:
        """The place of the rows, which is RocksDB by default."""
        if self.kind is StoreKind.CUSTOM:
            return StorePlace.CUSTOM
        if self.type is None or self.type == "rocksdb":
            return StorePlace.DATABASE
        return StorePlace.MEMORY if self.type == "in_memory" else StorePlace.ENGINE

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory alone."""
        return self.place is StorePlace.MEMORY

    @property
    def segment_ms(self) -> int:
        """The length (ms) of a segment of rows on disk; 0 if the rows have no times."""
        timed = bare_kind(self.kind.value) in {"window", "session"}
        return max(self.retention_ms // 2, _SHORTEST_SEGMENT_MS) if timed else 0

    @property
    def seen_ms(self) -> int:
        """The total time (ms) for which rows of a window or session store are visible.

        It counts back from the latest record.
        """
        return self.retention_ms + self.spare_ms
