"""Key-value stores."""

from ks_actors.state.key_value._reader import KeyValueReader
from ks_actors.state.key_value._store import (
    KeyValueBase,
    KeyValueStore,
    TimestampedKeyValueStore,
    ValueAndTimestamp,
)
from ks_actors.state.key_value._table import Table

__all__ = [
    "KeyValueBase",
    "KeyValueReader",
    "KeyValueStore",
    "Table",
    "TimestampedKeyValueStore",
    "ValueAndTimestamp",
]
