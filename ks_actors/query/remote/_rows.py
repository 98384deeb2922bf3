"""Rows of readers as bytes and back, and the merge of rows of several instances."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ks_actors._errors import FailureReason, QueryFailed
from ks_actors.query._calls import NO_KEY, Call
from ks_actors.query._store import KEY_VALUE, SESSIONS, VERSIONED, WINDOWS
from ks_actors.query.remote._messages import Ask, Row
from ks_actors.records import VersionedRecord, Window
from ks_actors.state import Codec, after, codec_of, instant
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence

    from ks_actors.query._scan import Scan
    from ks_actors.query.remote._messages import Place

LocalRow: TypeAlias = tuple[Any, Any, Any]
"""A row as a reader has it: place, key (with window or session), and entry."""

_LOOKUPS: Final = {"get": 0, "versions": 2, "approximate_num_entries": 0}
# Of each method: whether it takes a key, whether it takes a range of keys, and how many times.
_KEY_VALUE_SHAPES: Final = {"get": (True, False, 0), "scan": (False, True, 0), "count": (False, False, 0)}
_VERSIONED_SHAPES: Final = {"get": (True, False, 1), "versions": (True, False, 2)}
_WINDOW_SHAPES: Final = {
    "get": (True, False, 1),
    "fetch": (True, False, 2),
    "fetch_all": (False, False, 2),
}
_SESSION_SHAPES: Final = {
    "get": (True, False, 2),
    "find": (True, False, 2),
    "find_range": (False, True, 2),
}
_SHAPES: Final = {
    **dict.fromkeys(KEY_VALUE, _KEY_VALUE_SHAPES),
    **dict.fromkeys(VERSIONED, _VERSIONED_SHAPES),
    **dict.fromkeys(WINDOWS, _WINDOW_SHAPES),
    **dict.fromkeys(SESSIONS, _SESSION_SHAPES),
}
LOOKUPS: Final = frozenset({"get", "versions", "count"})
"""The methods with one answer; the others scan."""
_HALF: Final = 1 << 127
_first: Final = itemgetter(0)
