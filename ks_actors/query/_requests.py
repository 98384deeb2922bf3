"""The queries for stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from ks_actors.log import IsolationLevel
from ks_actors.query._position import PositionBound
from ks_actors.records import VersionedRecord, Windowed
from ks_actors.state import ValueAndTimestamp, ValueTimestampHeaders

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
LATEST: Final = (1 << 63) - 1


class Query(Generic[R_co]):
    """A question to one partition of a store.

    Your own subclasses are for custom stores; other stores answer UNKNOWN_QUERY_TYPE.
    """

    __slots__ = ()


class _Question(msgspec.Struct, frozen=True):
    """Base of questions, which are compared by value."""


class KeyQuery(_Question, Query[Any], frozen=True):
    """The value of a key; None if the key has no value."""

    key: Any


class TimestampedKeyQuery(_Question, Query[ValueAndTimestamp[Any]], frozen=True):
    """The value and the timestamp of a key, in a store that has timestamps."""

    key: Any


class RangeQuery(_Question, Query[list[tuple[Any, Any]]], frozen=True):
    """The keys from `low` to `high`, inclusive (None: no bound), with their values.

    The rows are in the order of the keys' bytes, or in reverse with `descending`.
    """

    low: Any = None
    high: Any = None
    descending: bool = False


class TimestampedRangeQuery(
    _Question, Query[list[tuple[Any, ValueAndTimestamp[Any]]]], frozen=True
):
    """The same as RangeQuery with timestamps, in a store that has them."""

    low: Any = None
    high: Any = None
    descending: bool = False


class TimestampedKeyWithHeadersQuery(_Question, Query[ValueTimestampHeaders[Any]], frozen=True):
    """The value, timestamp and headers of a key, in a store that keeps them (KIP-1356)."""

    key: Any


class TimestampedRangeWithHeadersQuery(
    _Question, Query[list[tuple[Any, ValueTimestampHeaders[Any]]]], frozen=True
):
    """The same as RangeQuery with timestamps and headers, in a store that keeps them (KIP-1356)."""

    low: Any = None
    high: Any = None
    descending: bool = False


class PrefixQuery(_Question, Query[list[tuple[Any, Any]]], frozen=True):
    """The keys with the bytes of `prefix` at their start, with their values.

    `serializer` encodes the prefix; the default is the key's serde.
    """

    prefix: Any
    serializer: Callable[[Any], bytes] | None = None


class WindowKeyQuery(_Question, Query[list[tuple[int, Any]]], frozen=True):
    """The start (ms) and value of each window of a key, by time.

    The windows start between `time_from` and `time_to`, inclusive.
    """

    key: Any
    time_from: int | datetime
    time_to: int | datetime


class WindowRangeQuery(_Question, Query[list[tuple[tuple[Any, int], Any]]], frozen=True):
    """Key, start (ms) and value of windows that start in `time_from` to `time_to`, inclusive."""

    time_from: int | datetime
    time_to: int | datetime


class TimestampedWindowKeyWithHeadersQuery(
    _Question, Query[list[tuple[int, ValueTimestampHeaders[Any]]]], frozen=True
):
    """The same as WindowKeyQuery with timestamps and headers (KIP-1356)."""

    key: Any
    time_from: int | datetime
    time_to: int | datetime


class TimestampedWindowRangeWithHeadersQuery(
    _Question, Query[list[tuple[tuple[Any, int], ValueTimestampHeaders[Any]]]], frozen=True
):
    """The same as WindowRangeQuery with timestamps and headers (KIP-1356)."""

    time_from: int | datetime
    time_to: int | datetime


class VersionedKeyQuery(_Question, Query[VersionedRecord[Any]], frozen=True):
    """The version of a key that was valid at the time `as_of` (ms), or the latest one (KIP-960).

    None when there was no version then, or it is older than the retained history.
    """

    key: Any
    as_of: int | datetime | None = None


class MultiVersionedKeyQuery(_Question, Query[list[VersionedRecord[Any]]], frozen=True):
    """The versions of a key that were valid at some time from `time_from` to `time_to` (KIP-968).

    Both ends are in ms and included; None means no bound. The earliest version comes first.
    Versions that ended before the retained history are left out.
    """

    key: Any
    time_from: int | datetime | None = None
    time_to: int | datetime | None = None
    descending: bool = False


class SessionKeyQuery(_Question, Query[list[tuple[Windowed[Any], Any]]], frozen=True):
    """A key's sessions, by time.

    The sessions end at `earliest_end` (ms) or later, and start at `latest_start` or earlier.
    """

    key: Any
    earliest_end: int | datetime = 0
    latest_start: int | datetime = LATEST


class SessionRangeQuery(_Question, Query[list[tuple[Windowed[Any], Any]]], frozen=True):
    """The sessions of the keys from `low` to `high`, inclusive (None: no bound).

    The sessions overlap with a span of time, see SessionKeyQuery.
    """

    low: Any = None
    high: Any = None
    earliest_end: int | datetime = 0
    latest_start: int | datetime = LATEST


class StateQueryRequest(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A question to the partitions of a store that are on this instance.

    `partitions` names the partitions to ask; the default is all local partitions. Standbys and
    restoring tasks answer, too, unless `require_active` is set. With `require_active` the `bound`
    is ignored, as in Kafka Streams. `isolation` None is the app's default. `execution_info` asks
    for lines about how long the query took.
    """

    store: str
    query: Query[R]
    partitions: frozenset[int] | None = None
    bound: PositionBound = PositionBound.unbounded()
    require_active: bool = False
    isolation: IsolationLevel | None = None
    execution_info: bool = False
