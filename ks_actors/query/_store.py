"""The user's reader of a store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final, overload

from ks_actors._errors import FailureReason, QueryFailed
from ks_actors._hints import Elsewhere, refuse
from ks_actors.query._calls import NO_KEY, Bounded, Call
from ks_actors.query._scan import Scan, StoreScan
from ks_actors.query._sessions import session_key_scan, session_scan
from ks_actors.state import (
    AGGREGATION_FORM,
    HEADERS_FORM,
    PLAIN_FORM,
    TIMESTAMPED,
    TIMESTAMPED_FORM,
)
from ks_actors.topology import HEADED, StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ks_actors.query._reach import How, Reach
    from ks_actors.records import Windowed
    from ks_actors.topology import StoreSpec

K = TypeVar("K")
V = TypeVar("V")
KEY_VALUE: Final = frozenset(
    {StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.KEY_VALUE_WITH_HEADERS}
)
VERSIONED: Final = frozenset({StoreKind.VERSIONED})
SESSIONS: Final = frozenset({StoreKind.SESSION, StoreKind.SESSION_WITH_HEADERS})
WINDOWS: Final = frozenset(
    {StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.WINDOW_WITH_HEADERS}
)
LATEST: Final = (1 << 63) - 1


def as_it_is(record: Any) -> Any:
    """Return the record that a reader has made."""
    return record


_WAYS: Final = {
    **dict.fromkeys(KEY_VALUE, "; it has get, range, prefix_scan and all"),
    **dict.fromkeys(SESSIONS, "; it has fetch, fetch_session, find_sessions and all"),
    **dict.fromkeys(VERSIONED, "; it has get and versions"),
    **dict.fromkeys(WINDOWS, "; it has fetch, backward_fetch, fetch_all and all"),
}


class _OtherNames:
    """The hints at names that StoreQueries lack."""

    if not TYPE_CHECKING:
        __getitem__ = refuse("has no []: await app.store(name).get(key)")
        items = Elsewhere("async for key, value in app.store(name).all()")
        keys = Elsewhere("async for key, value in app.store(name).all()")
        values = Elsewhere("async for key, value in app.store(name).all()")


@final
class StoreQueries(_OtherNames, Generic[K, V]):
    """Read a store of this instance, or of all, with keys `K` and values `V`: see `App.store`.

    Any task of the app's event loop may use the reader, also while the store is processed and
    committed.

    Key-value stores have `get`, `range`, `reverse_range`, `prefix_scan`, `all`, `reverse_all` and
    `approximate_num_entries`. Window stores have `fetch`, `backward_fetch`, `fetch_all`,
    `backward_fetch_all`, `all` and `reverse_all`. Session stores have `fetch_session`, `fetch`,
    `find_sessions`, `find_sessions_range` and their backward forms, `all` and `reverse_all`.
    Versioned stores have `get`, with `as_of`, and `versions`. The caller owns the returned objects.

    All raise NotRunning before the app is started and after it is closed. All raise QueryFailed
    with a `reason`: NOT_PRESENT, NOT_ACTIVE, DOES_NOT_EXIST, UNKNOWN_QUERY_TYPE for another kind of
    store, STORE_EXCEPTION. Scans raise when they are read.
    """

    def __init__(
        self, reach: Reach, spec: StoreSpec, how: How, *, timestamped: bool, headers: bool
    ) -> None:
        self._reach = reach
        self._spec = spec
        self._how = how
        self._committed: bool = how.committed
        form = TIMESTAMPED_FORM if timestamped else PLAIN_FORM
        self._entry: Callable[[Any], Any] = as_it_is if self._spec.kind in VERSIONED else form.show
        if timestamped and self._spec.kind not in TIMESTAMPED:
            raise self._unknown("with timestamps, because it has none")
        if headers and self._spec.kind not in HEADED:
            raise self._unknown("with headers, because it keeps none")
        if headers:
            form = AGGREGATION_FORM if self._spec.kind in SESSIONS else HEADERS_FORM
            self._entry = form.show

    @property
    def name(self) -> str:
        """The store's name."""
        return self._spec.name

    def _unknown(self, what: str) -> QueryFailed:
        return QueryFailed(
            f"store {self.name}, a {self._spec.kind.value} store, cannot be queried {what}"
            f"{_WAYS.get(self._spec.kind, '')}",
            reason=FailureReason.UNKNOWN_QUERY_TYPE,
            store=self.name,
        )

    def _must_be(self, kinds: frozenset[StoreKind], what: str) -> None:
        if self._spec.kind not in kinds:
            raise self._unknown(f"for {what}")

    # One value.

    async def get(self, key: K, as_of: int | datetime | None = None) -> V | None:
        """Return the value of `key`, or None.

        For a versioned store the value is a VersionedRecord: the latest, or that at the time
        `as_of` (ms). The key is searched where Kafka's partitioner puts it, then in the other
        partitions that are here. If none of these partitions has the key, and the key's own
        partition is on another instance, raises QueryFailed: NOT_PRESENT.
        """
        if self._spec.kind in VERSIONED:
            return await self._first(self._call("get", key, as_of))
        self._must_be(KEY_VALUE, "a key")
        if as_of is not None:
            raise self._unknown("for the past, because it keeps no history")

        return await self._first(self._call("get", key))

    async def versions(
        self,
        key: K,
        time_from: int | datetime | None = None,
        time_to: int | datetime | None = None,
        *,
        descending: bool = False,
    ) -> list[V]:
        """Return the versions of `key` that were valid at some time from `time_from` to `time_to`.

        Both ends are in ms and included; None means no bound. The earliest version comes first,
        with `descending` the latest. The key is searched as in `get`. Versions older than the
        retained history are left out.
        """
        self._must_be(VERSIONED, "versions")
        found: Any = await self._first(
            Call("versions", key, (time_from, time_to), self._committed, reverse=descending)
        )
        versions: list[V] = found or []
        return versions

    def _call(self, name: str, key: K, *times: Any) -> Call:
        return Call(name, key, times, self._committed)

    async def _first(self, call: Call) -> V | None:
        """Return the first answer of a partition; the key's own partition comes first."""
        entry = await self._reach.first(self._how, call)
        if entry is None:
            return None
        found: V = self._entry(entry)
        return found

    # Rows of key-value stores.

    def range(self, low: K | None, high: K | None) -> StoreScan[tuple[K, V]]:
        """Scan keys and values from `low` to `high`, inclusive, in the order of the keys' bytes.

        None is no bound.
        """
        return self._range(low, high, reverse=False)

    def reverse_range(self, low: K | None, high: K | None) -> StoreScan[tuple[K, V]]:
        """Scan keys and values from `high` down to `low`, inclusive."""
        return self._range(low, high, reverse=True)

    def _range(self, low: K | None, high: K | None, *, reverse: bool) -> StoreScan[tuple[K, V]]:
        self._must_be(KEY_VALUE, "a range of keys")
        return self._scan(
            range_scan(low, high, committed=self._committed, reverse=reverse, entry=self._entry)
        )

    def prefix_scan(
        self, prefix: Any, prefix_serializer: Callable[[Any], bytes] | None = None
    ) -> StoreScan[tuple[K, V]]:
        """Scan the keys with the bytes of `prefix` at their start.

        `prefix_serializer` encodes the prefix; the default is the key's serde.
        """
        self._must_be(KEY_VALUE, "a prefix of keys")
        return self._scan(
            prefix_scan(prefix, prefix_serializer, committed=self._committed, entry=self._entry)
        )

    def all(self) -> StoreScan[Any]:
        """Scan all keys and values, in the order of the keys' bytes, or as `fetch_all` does."""
        if self._spec.kind in SESSIONS:
            return self.find_sessions_range(None, None)
        return self.range(None, None) if self._spec.kind in KEY_VALUE else self.fetch_all(0, LATEST)

    def reverse_all(self) -> StoreScan[Any]:
        """Scan all keys and values in reverse order."""
        if self._spec.kind in SESSIONS:
            return self.backward_find_sessions_range(None, None)
        return (
            self.reverse_range(None, None)
            if self._spec.kind in KEY_VALUE
            else self.backward_fetch_all(0, LATEST)
        )

    async def approximate_num_entries(self) -> int:
        """Return the approximate number of keys on this instance, or on all.

        The number is exact in memory. With RocksDB it is an estimate over all stores of each task.
        """
        self._must_be(KEY_VALUE, "the number of keys")
        return await self._reach.count(self._how)

    # Windows.

    @overload
    def fetch(self, key: K) -> StoreScan[tuple[Windowed[K], V]]: ...
    @overload
    async def fetch(self, key: K, time_from: int | datetime) -> V | None: ...
    @overload
    def fetch(
        self, key: K, time_from: int | datetime, time_to: int | datetime
    ) -> StoreScan[tuple[int, V]]: ...
    def fetch(
        self, key: K, time_from: int | datetime | None = None, time_to: int | datetime | None = None
    ) -> Any:
        """Return (`await`) the value of the key's window that starts at `time_from` (ms), or None.

        The key is searched as in `get`. With `time_to`, scan the start and value of each window
        that starts between `time_from` and `time_to`, inclusive, in time order. In a session store,
        without times, scan the sessions of the key.
        """
        if time_from is None:
            return self.find_sessions(key, 0, LATEST)
        self._must_be(WINDOWS, "a window")
        if time_to is not None:
            return self._fetch(key, time_from, time_to, reverse=False)

        return self._first(self._call("get", key, time_from))

    @overload
    def backward_fetch(self, key: K) -> StoreScan[tuple[Windowed[K], V]]: ...
    @overload
    def backward_fetch(
        self, key: K, time_from: int | datetime, time_to: int | datetime
    ) -> StoreScan[tuple[int, V]]: ...
    def backward_fetch(
        self, key: K, time_from: int | datetime = 0, time_to: int | datetime | None = None
    ) -> StoreScan[Any]:
        """Scan the start and value of a key's windows, the latest first.

        The windows start between `time_from` and `time_to`, inclusive. In a session store, scan
        sessions as `fetch` does.
        """
        if time_to is None:
            return self.backward_find_sessions(key, time_from, LATEST)
        self._must_be(WINDOWS, "a window")
        return self._fetch(key, time_from, time_to, reverse=True)

    def _fetch(
        self, key: K, time_from: Any, time_to: Any, *, reverse: bool
    ) -> StoreScan[tuple[int, V]]:
        return self._scan(
            window_key_scan(
                key,
                time_from,
                time_to,
                committed=self._committed,
                reverse=reverse,
                entry=self._entry,
            )
        )

    def fetch_all(
        self, time_from: int | datetime, time_to: int | datetime
    ) -> StoreScan[tuple[tuple[K, int], V]]:
        """Scan the key, start and value of windows, as the store's own `fetch_all` does.

        The windows start between `time_from` and `time_to`, inclusive.
        """
        return self._fetch_all(time_from, time_to, reverse=False)

    def backward_fetch_all(
        self, time_from: int | datetime, time_to: int | datetime
    ) -> StoreScan[tuple[tuple[K, int], V]]:
        """Scan like `fetch_all`, in reverse order."""
        return self._fetch_all(time_from, time_to, reverse=True)

    def _fetch_all(
        self, time_from: Any, time_to: Any, *, reverse: bool
    ) -> StoreScan[tuple[tuple[K, int], V]]:
        self._must_be(WINDOWS, "windows")
        return self._scan(
            window_scan(
                time_from, time_to, committed=self._committed, reverse=reverse, entry=self._entry
            )
        )

    # Sessions.

    async def fetch_session(self, key: K, start: int | datetime, end: int | datetime) -> V | None:
        """Return the aggregate of the key's session from `start` to `end`, or None.

        Times are in ms, inclusive. The key is searched as in `get`.
        """
        self._must_be(SESSIONS, "a session")
        return await self._first(self._call("get", key, start, end))

    def find_sessions(
        self, key: K, earliest_end: int | datetime, latest_start: int | datetime
    ) -> StoreScan[tuple[Windowed[K], V]]:
        """Scan the key's sessions in a span of time, the earliest first.

        The sessions end at `earliest_end` (ms) or later, and start at `latest_start` or earlier.
        """
        return self._find_sessions(key, earliest_end, latest_start, reverse=False)

    def backward_find_sessions(
        self, key: K, earliest_end: int | datetime, latest_start: int | datetime
    ) -> StoreScan[tuple[Windowed[K], V]]:
        """Scan like `find_sessions`, the latest first."""
        return self._find_sessions(key, earliest_end, latest_start, reverse=True)

    def _find_sessions(
        self, key: K, earliest_end: Any, latest_start: Any, *, reverse: bool
    ) -> StoreScan[tuple[Windowed[K], V]]:
        self._must_be(SESSIONS, "sessions")
        scan = session_key_scan(
            key,
            earliest_end,
            latest_start,
            committed=self._committed,
            reverse=reverse,
            entry=self._entry,
        )
        return self._scan(scan)

    def find_sessions_range(
        self,
        low: K | None,
        high: K | None,
        earliest_end: int | datetime = 0,
        latest_start: int | datetime = LATEST,
    ) -> StoreScan[tuple[Windowed[K], V]]:
        """Scan the sessions in a span of time of the keys from `low` to `high`, inclusive.

        See `find_sessions` for the span of time. The order is that of the store's own scan.
        """
        return self._find_range(low, high, earliest_end, latest_start, reverse=False)

    def backward_find_sessions_range(
        self,
        low: K | None,
        high: K | None,
        earliest_end: int | datetime = 0,
        latest_start: int | datetime = LATEST,
    ) -> StoreScan[tuple[Windowed[K], V]]:
        """Scan like `find_sessions_range`, in reverse order."""
        return self._find_range(low, high, earliest_end, latest_start, reverse=True)

    def _find_range(
        self,
        low: K | None,
        high: K | None,
        earliest_end: Any,
        latest_start: Any,
        *,
        reverse: bool,
    ) -> StoreScan[tuple[Windowed[K], V]]:
        self._must_be(SESSIONS, "sessions")
        return self._scan(
            session_scan(
                low,
                high,
                earliest_end,
                latest_start,
                committed=self._committed,
                reverse=reverse,
                entry=self._entry,
            )
        )

    def _scan(self, scan: Scan) -> StoreScan[Any]:
        return StoreScan(partial(self._reach.rows, self._how, scan))


def range_scan(
    low: Any, high: Any, *, committed: bool, reverse: bool, entry: Callable[[Any], Any]
) -> Scan:
    """Return the scan of a range of keys."""
    return Scan(
        Bounded("scan", lambda keys: keys.bounds(low, high), (), committed, reverse=reverse),
        lambda row: (row[1], entry(row[2])),
        reverse=reverse,
    )


def prefix_scan(
    prefix: Any,
    serializer: Callable[[Any], bytes] | None,
    *,
    committed: bool,
    entry: Callable[[Any], Any],
) -> Scan:
    """Return the scan of keys with a prefix."""
    return Scan(
        Bounded("scan", lambda keys: keys.prefix_bounds(prefix, serializer), (), committed),
        lambda row: (row[1], entry(row[2])),
    )


def window_key_scan(
    key: Any,
    time_from: int | datetime,
    time_to: int | datetime,
    *,
    committed: bool,
    reverse: bool,
    entry: Callable[[Any], Any],
) -> Scan:
    """Return the scan of a key's windows."""
    return Scan(
        Call("fetch", key, (time_from, time_to), committed, reverse=reverse),
        lambda row: (row[1][1], entry(row[2])),
        reverse=reverse,
    )


def window_scan(
    time_from: int | datetime,
    time_to: int | datetime,
    *,
    committed: bool,
    reverse: bool,
    entry: Callable[[Any], Any],
) -> Scan:
    """Return the scan of windows of all keys."""
    return Scan(
        Call("fetch_all", NO_KEY, (time_from, time_to), committed, reverse=reverse),
        lambda row: (row[1], entry(row[2])),
        reverse=reverse,
    )
