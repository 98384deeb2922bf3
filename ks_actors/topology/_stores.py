"""What a state store is to be; the state package makes it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

StoreType = Literal["rocksdb", "in_memory"]


class StoreKind(Enum):
    """What a store can be asked for."""

    KEY_VALUE = "key_value"
    TIMESTAMPED_KEY_VALUE = "timestamped_key_value"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped_window"
    SESSION = "session"
    VERSIONED = "versioned"
    CUSTOM = "custom"


class StoreSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One state store of a topology; every task of its subtopology has one such store.

    `key` and `value` are serdes (`ks_actors.serdes.Serde`). `type` None is the app's default.
    `logging` keeps a changelog topic with `changelog_configs` on top of what the kind demands.
    `caching` lets the updates of its table be held back. Times are ms; a window or session store
    drops what is older than `retention_ms` behind the latest record put into it, and a versioned
    store what has been replaced for `history_retention_ms`. For `spare_ms` more the rows of a
    window or session store are still seen, where its operator takes records that belong to them.
    The windows of all keys start at multiples of `advance_ms`; 0: anywhere. `supplier` makes a
    store of the user's own (`StateStore`), of which nothing else is asked but `logging`.
    `source_topic` is the topic that the store is filled from as it is: that one is its changelog,
    to which nothing is written.
    """

    name: str
    kind: StoreKind
    key: Any
    value: Any
    type: StoreType | None = None
    logging: bool = True
    caching: bool = False
    changelog_configs: Mapping[str, str] = {}
    retention_ms: int = 0
    spare_ms: int = 0
    window_size_ms: int = 0
    advance_ms: int = 0
    retain_duplicates: bool = False
    history_retention_ms: int = 0
    source_topic: str | None = None
    supplier: Any = None

    @property
    def seen_ms(self) -> int:
        """How long behind the latest record the rows of a window or session store are seen."""
        return self.retention_ms + self.spare_ms
