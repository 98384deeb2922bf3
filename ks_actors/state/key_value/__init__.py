"""Key-value stores."""

from ks_actors.state.key_value._reader import KeyValueReader
from ks_actors.state.key_value._store import (
    KeyValueBase,
    KeyValueStore,
    KeyValueStoreWithHeaders,
    TimestampedKeyValueStore,
)
from ks_actors.state.key_value._table import Table

__all__ = [
    "KeyValueBase",
    "KeyValueReader",
    "KeyValueStore",
    "KeyValueStoreWithHeaders",
    "Table",
    "TimestampedKeyValueStore",
]
