"""Serdes: how keys and values become bytes and objects again.

Those in capitals write what the Java serdes of their names write; `json` and `msgpack` are typed; `Serde.of` makes one from two functions.
"""

from __future__ import annotations

from ks_actors.serdes._lists import list_of
from ks_actors.serdes._scalars import BOOLEAN, BYTES, DOUBLE, FLOAT, INTEGER, LONG, SHORT, STRING, UUID, VOID
from ks_actors.serdes._serde import Serde
from ks_actors.serdes._structured import json, msgpack
from ks_actors.serdes._windowed import session_windowed, windowed

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "LONG",
    "SHORT",
    "STRING",
    "UUID",
    "VOID",
    "Serde",
    "json",
    "list_of",
    "msgpack",
    "session_windowed",
    "windowed",
]
