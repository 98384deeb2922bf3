"""The caches that hold back table updates, so that only the last of several goes downstream."""

from __future__ import annotations

from copy import deepcopy
from itertools import islice, repeat
from operator import is_not, itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from ks_actors.processors.api import CachedRows, Gone
from ks_actors.processors.stateless import ATOMS
from ks_actors.records import Batch, Windowed
from ks_actors.state.core import TEXTS, average, size
from ks_actors.task.figures import HitRatio
from ks_actors.task.origins import NONE_LATE, CachedOrigins, Flushed
from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ks_actors.processors.api import KeyValueForOperators, Process, ProcessBatch
    from ks_actors.records import Headers, Window
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.origins import Place
    from ks_actors.topology import StoreSpec

_ROW = 64  # bytes per row beside key and value: a cache holds about as many rows as Kafka Streams'
_SAMPLED = 16  # weigh a row only in one of so many checks for room
_UNSEEN = 64  # look for room at least after this many new rows
_SPARE = 16  # evict this share beyond the excess, so that rows do not leave one by one

WINDOWED = (StoreKind.TIMESTAMPED_WINDOW, StoreKind.WINDOW_WITH_HEADERS)
SESSIONS = (StoreKind.SESSION, StoreKind.SESSION_WITH_HEADERS)
_GONE: tuple[Any, int] = (None, 0)
_value, _timestamp = itemgetter(0), itemgetter(1)
_new = tuple.__new__  # the constructor that a named tuple's own constructor calls


class CacheBudget:
    """The bytes that an instance's cached updates may take.

    All stores of all tasks share the budget, first come, first served.
    """

    __slots__ = ("_lock", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.used: int = 0
        self._lock = Lock()  # blocking functions use it from their threads

    def add(self, weight: int) -> int:
        """Add to the bytes in use (or subtract); return the excess over the limit."""
        with self._lock:
            self.used += weight
            return self.used - self.limit


def weigh(value: Any) -> int:
    """Return the approximate serialized size of an object in bytes."""
    if value is None:
        return 0
    return len(value) if type(value) in TEXTS else 8 if type(value) in ATOMS else size(value)


class UpdateCache:
    """The updates of one store of one task that have not gone downstream yet.

    The cache has at most one update per row, the latest (see `processors._cache.Cache`).

    Updates are sent window by window, in the order in which windows and rows came since they were
    last sent. All updates are sent when the task is committed, and the oldest when there is no
    room. A row's old value is the value that was last sent; timestamp and headers are those of its
    last update. An update from no value to no value is not sent.

    With `exact`, a node downstream reads the record's context, so `forward` gets the rows one by
    one. Otherwise `forward_batch` gets them in batches. In both cases the current record is the
    last record of the row, as far as known: see CachedOrigins.
    """

    def __init__(
        self,
        spec: StoreSpec,
        topic: str,
        store: KeyValueForOperators,
        budget: CacheBudget,
        current: RecordContextHolder,
        forward: Process,
        forward_batch: ProcessBatch,
        *,
        exact: bool,
        joined: bool,
    ) -> None:
        self.name: str = spec.name
        self.plain: bool = spec.key.faithful
        self.send_old: bool = False
        self._windowed: bool = spec.kind in WINDOWED
        self._sessions: bool = spec.kind in SESSIONS  # a row each, in one group
        # Kafka Streams sends the headers that the store has, and stores of sessions have no
        # headers.
        self._headless: bool = spec.kind is StoreKind.SESSION_WITH_HEADERS
        self._keeps_news: bool = self._windowed or self._sessions
        self._index: Callable[[Any], Any] = spec.key.serializer(topic, is_key=True)
        self._mutable: bool = not spec.value.immutable
        self._read_key: Callable[[bytes], Any] | None = (
            None if spec.key.immutable else spec.key.deserializer(topic, is_key=True)
        )
        self._written: Callable[[Any], bytes] = spec.value.serializer(topic)
        self._read: Callable[[bytes], Any] = spec.value.deserializer(topic)
        # only for entries by key: the entries of windows and sessions are in `news`
        self._store = store
        self._budget = budget
        self._current = current
        self._forward = forward
        self._forward_batch = forward_batch
        self._exact = exact
        self._joined = joined
        # If the kernel puts counts, the store's own note of uncommitted changes serves as the cache
        # until some rows are sent. Then the note is `spent`, and rows are cached here.
        self._by_store: bool = (
            not self._keeps_news and getattr(store, "count_up", None) is not None and not exact
        )
        self._spent: Any = None
        self._groups: dict[Window | None, CachedRows] = {}
        self._touched: dict[CachedRows, int] = {}
        self._count: int = 0
        self._weight: int = 0
        self._typical: int = 0
        self._rounds: int = 0
        self._fresh: int = 0
        self._next: int = 0
        self._updates: int = 0
        self._recent = CachedOrigins(current, self._row, windowed=self._windowed)
        self.hit_ratio: HitRatio = HitRatio()

    def __len__(self) -> int:
        if self._by_store and self._spent is not self._store.uncommitted:
            return len(self._store.uncommitted)
        self._absorb()
        return self._count

    @property
    def weight(self) -> int:
        """The approximate bytes of the cached updates."""
        return self._weight

    @property
    def with_headers(self) -> bool:
        """Whether a row has headers."""
        return any(rows.headers for rows in self._groups.values())

    @property
    def copies(self) -> bool:
        """Whether old values are sent that user code could change in place."""
        return self._mutable and self.send_old

    @property
    def current(self) -> RecordContextHolder:
        """The context of the task's current record."""
        return self._current

    # --- taking -----------------------------------------------------------------------------------

    def before(self, key: Any, value: Any, window: Window | None = None) -> Any:
        """Return a row's value before an update, copied if user code could change it in place."""
        if not self.copies or value is None or type(value) in ATOMS:
            return value
        rows = self._groups.get(window)
        # Only a row's first update sends its old value, so later updates require no copy.
        cached = (
            rows is not None
            and (self._row(key) if self._sessions else key if self.plain else self._index(key))
            in rows.olds
        )
        return value if cached else deepcopy(value)

    def hold(self, key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        """Add an update."""
        recent = self._recent
        if self._current.page is not recent.page:
            # Begin a new page of origins: places of earlier records belong to the old page.
            recent.turn()
        rows = self._take(key, change, timestamp, (recent.leaf, self._current.offset))
        if rows is None:
            return
        if self._headless:
            headers = ()
        if headers or rows.headers:
            row = self._row(key)
            if headers:
                rows.headers[row] = headers
            else:
                rows.headers.pop(row, None)
        if self._fresh > self._next:
            self.send_excess()

    def hold_batch(self, batch: Batch) -> None:
        """Add a batch of updates."""
        self._recent.came(batch, whole=True)
        for key, change, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            rows = self._take(key, change, timestamp, None)
        if batch.headers is not None or self.with_headers:
            headers: Iterable[Headers] = repeat(()) if batch.headers is None else batch.headers
            for key, header in zip(batch.keys, headers, strict=False):
                rows = self.rows(key[1] if self._windowed else None)
                rows.note_headers((self._row(key),), (header,))
        self.send_excess(len(batch))

    def came(
        self,
        batch: Batch,
        skipped: Collection[int] = (),
        late: Mapping[int, int | None] = NONE_LATE,
    ) -> None:
        """Note the origin of updates that an operator adds by itself."""
        self._recent.came(batch, skipped, late)

    def leave_to_store(self, batch: Batch) -> bool:
        """Return whether the store's own note of the batch suffices.

        The note does not suffice once rows were sent since the last commit, or if rows have
        headers.
        """
        if not self._by_store or batch.headers is not None:
            return False
        changed = self._store.uncommitted
        # Once some rows were sent, the note has rows that must not be sent again, so it cannot be
        # the cache.
        if changed is self._spent:
            return False
        before, self._count = self._count, len(changed)
        self.hit_ratio.note(
            len(batch), self._count - before if self._count >= before else self._count
        )
        if not self._rounds % _SAMPLED:
            # Weigh only a sample, the latest row: weighing each row would cost more than caching
            # it.
            key = next(reversed(changed))
            self._typical = average(
                self._typical, _ROW + weigh(key) + weigh((self._store.get_entry(key) or _GONE)[0])
            )
        self._rounds += 1
        if self._weigh() > 0:
            self._take_from_store()
            self.send_excess()
        return True

    def _take_from_store(self) -> None:
        """Copy the store's noted changes to this cache, which caches rows until the next commit."""
        changed = self._store.uncommitted
        if changed is self._spent:
            return
        # From here on rows are cached here, because the store's note has rows that are already
        # sent.
        self._spent = changed
        self.hit_ratio.note(0, max(0, len(changed) - self._count))
        if changed:
            olds = {
                key: entry[0] if type(entry) is tuple else None for key, entry in changed.items()
            }
            rows = self._groups[None] = CachedRows(None)
            rows.olds = olds
        self._count = len(changed)

    def _row(self, key: Any) -> Any:
        if self._sessions:
            return key if self.plain else (self._index(key[0]), key[1])
        if self._windowed:
            key = key[0]
        return key if self.plain else self._index(key)

    def _take(
        self, key: Any, change: tuple[Any, Any], timestamp: int, place: Place | None
    ) -> CachedRows | None:
        """Cache an update; return None if its row has nothing left to send."""
        new, old = change
        rows = self.rows(key[1] if self._windowed else None)
        row = self._row(key)
        if place is not None:
            rows.places[row] = place
        again = row in rows.olds
        if not again:
            self._fresh += 1
            rows.olds[row] = old
            if not self.plain:
                rows.keys[row] = self._own_key(key, row)
        if new is None and again:
            if self._sessions and rows.olds[row] is None and not self._joined:  # never sent
                for column in (rows.olds, rows.news, rows.keys, rows.headers, rows.places):
                    column.pop(row, None)
                return None
            # Send the deletion all the same: a reader of the store may have seen the row meanwhile.
            rows.news[row] = Gone(None, timestamp)
        elif new is None or self._keeps_news:
            # Keep the value as bytes if user code could change it in place before it is sent.
            rows.news[row] = (
                new if new is None or not self._mutable else self._written(new),
                timestamp,
            )
        elif rows.news:
            rows.news.pop(row, None)
        return rows

    def _own_key(self, key: Any, row: Any) -> Any:
        """Return a copy of the key that no other code can change in place."""
        read = self._read_key
        if self._sessions:
            return key if read is None else _new(Windowed, (read(row[0]), row[1]))
        return read(row) if read is not None else key[0] if self._windowed else key

    def rows(self, window: Window | None = None) -> CachedRows:
        """Return the cached rows, or the cached rows of a window."""
        if self._by_store:
            self._take_from_store()
        rows = self._groups.get(window)
        if rows is None:
            rows = self._groups[window] = CachedRows(window)
        if rows not in self._touched:
            self._touched[rows] = len(rows.olds)
        return rows

    def send_excess(self, updates: int = 0) -> None:
        """Count `updates` and the updates of `hold`, and send the oldest rows beyond the budget."""
        self._updates += updates
        if self._touched:
            # Weigh samples only: to weigh each row would cost too much.
            if not self._rounds % _SAMPLED:
                self._sample(next(reversed(self._touched)))
            self._rounds += 1
            self._absorb()
        over = self._weigh()
        if over > 0:
            self.flush(over // max(1, self._typical) + 1 + self._count // _SPARE)
            # Flushing sends rows downstream, which may have put new rows here.
            over = self._weigh()
        # Look again after about as many new rows as still fit.
        self._fresh, self._next = 0, min(_UNSEEN, max(0, -over // max(1, self._typical)))

    def _absorb(self) -> None:
        fresh = 0
        for rows, before in self._touched.items():
            fresh += len(rows.olds) - before
        self._touched.clear()
        self._count += fresh
        self.hit_ratio.note(self._updates, fresh)
        self._updates = 0

    def _sample(self, rows: CachedRows) -> None:
        if not rows.olds:
            return
        row = next(reversed(rows.olds))
        entry = self._entries(rows, (row,))[0]
        self._typical = average(self._typical, _ROW + weigh(row) + weigh(entry[0]))

    def _weigh(self) -> int:
        weight = self._count * self._typical
        self._weight, before = weight, self._weight
        return self._budget.add(weight - before)

    # --- sending ----------------------------------------------------------------------------------

    def flush(self, limit: int) -> None:
        """Send the oldest updates, at most `limit`."""
        if self._by_store:
            self._take_from_store()
        self._absorb()
        keys: list[Any] = []
        entries: list[tuple[Any, int]] = []
        olds: list[Any] = []
        headers: list[Headers] = []
        places: list[Place | None] = []
        groups = self._groups
        while groups and len(keys) < limit:
            rows = next(iter(groups.values()))
            taken = list(islice(rows.olds, limit - len(keys)))
            entries += self._entries(rows, taken)
            keys += self._keys(rows, taken)
            if rows.headers:
                # Lists of headers and places are filled up only from the first row that has headers
                # or a place, as most rows have none.
                headers += repeat((), len(olds) - len(headers))
                headers += map(rows.headers.pop, taken, repeat(()))
            if rows.places:
                places += repeat(None, len(olds) - len(places))
                places += map(rows.places.pop, taken, repeat(None))
            # Remove single rows only when some stay; a group that is sent as a whole is dropped at
            # once.
            if len(taken) < len(rows.olds):
                olds += map(rows.olds.pop, taken)
                for row in taken if rows.news else ():
                    rows.news.pop(row, None)
            else:
                olds += rows.olds.values()
                del groups[rows.window]
        self._count -= len(keys)
        self._weigh()
        if headers:
            headers += repeat((), len(keys) - len(headers))
        if places:
            places += repeat(None, len(keys) - len(places))
        seen = self._recent.seen()
        if not self._count:
            self._recent.clear()
        self._send(keys, entries, olds, headers or None, Flushed(keys, places, seen))

    def _entries(self, rows: CachedRows, taken: Iterable[Any]) -> list[tuple[Any, int]]:
        """Return the latest entry of each row."""
        news = rows.news
        if self._keeps_news and self._mutable:
            read = self._read
            return [
                (None if value is None else read(value), time)
                for value, time in map(news.__getitem__, taken)
            ]
        if self._keeps_news:
            return list(map(news.__getitem__, taken))
        get = self._store.get_entry
        keys = taken if self.plain else map(rows.keys.__getitem__, taken)
        entries = (
            [news.get(row) or get(key) for row, key in zip(taken, keys, strict=True)]
            if news
            else list(map(get, keys))
        )
        # A user's processor may have deleted a cached row.
        return (
            cast("list[tuple[Any, int]]", entries)
            if all(entries)
            else [entry or _GONE for entry in entries]
        )

    def _keys(self, rows: CachedRows, taken: list[Any]) -> Iterable[Any]:
        keys: Iterable[Any] = taken if self.plain else map(rows.keys.pop, taken)
        return (
            map(_new, repeat(Windowed), zip(keys, repeat(rows.window), strict=False))
            if self._windowed
            else keys
        )

    def _send(
        self,
        keys: list[Any],
        entries: list[tuple[Any, int]],
        olds: list[Any],
        headers: list[Headers] | None,
        page: Flushed,
    ) -> None:
        values = list(map(_value, entries))
        # Without `send_old`, no node downstream uses old values, and pairs without them are
        # cheaper.
        changes = list(zip(values, olds if self.send_old else repeat(None), strict=False))
        batch = Batch(keys, changes, list(map(_timestamp, entries)), headers, range(len(keys)))
        if not all(map(is_not, values, repeat(None))):
            lasting = [
                new is not None or old is not None for new, old in zip(values, olds, strict=True)
            ]
            if self._joined:  # a join may have matched the old row: its result must be retracted
                lasting = [
                    lasts or type(entry) is Gone
                    for lasts, entry in zip(lasting, entries, strict=True)
                ]
            batch = batch.select(lasting)
        if not len(batch):
            return
        current = self._current
        # Nodes downstream see each row's own record; afterwards, restore the current record.
        was = current.page, current.offset, current.timestamp, current.headers
        current.page, current.offset, current.headers = page, batch.offsets[0], ()
        try:
            if self._exact:
                self._one_by_one(batch, page)
            else:
                self._forward_batch(batch)
        finally:
            current.page, current.offset, current.timestamp, current.headers = was

    def _one_by_one(self, batch: Batch, page: Flushed) -> None:
        current, forward = self._current, self._forward
        headers: Iterable[Headers] = repeat(()) if batch.headers is None else batch.headers
        for key, change, timestamp, header, number in zip(
            batch.keys, batch.values, batch.timestamps, headers, batch.offsets, strict=False
        ):
            current.page, current.offset = page.place(number)
            current.timestamp, current.headers = timestamp, header
            forward(key, change, timestamp, header)

    def drop(self) -> None:
        """Discard all updates."""
        self._groups.clear()
        self._touched.clear()
        self._count = 0
        self._recent.clear()
        self._weigh()


class Caches:
    """The caches of one task, one per cached store."""

    def __init__(
        self,
        budget: CacheBudget,
        specs: Mapping[str, StoreSpec],
        changelog: Callable[[str], str],
        current: RecordContextHolder,
    ) -> None:
        self._budget = budget
        self._specs = specs
        self._changelog = changelog
        self._current = current
        self._made: dict[str, UpdateCache] = {}

    def of(
        self,
        name: str,
        store: KeyValueForOperators,
        forward: Process,
        forward_batch: ProcessBatch,
        *,
        exact: bool,
        joined: bool,
        send_old: bool,
    ) -> UpdateCache | None:
        """Return the cache of a store; None when the store is not cached.

        Operators that share a store lead to the same node, and share one cache.
        """
        spec = self._specs.get(name)
        if spec is None:
            return None
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = UpdateCache(
                spec,
                self._changelog(name),
                store,
                self._budget,
                self._current,
                forward,
                forward_batch,
                exact=exact,
                joined=joined,
            )
        made.send_old = made.send_old or send_old
        return made

    def in_order(self) -> tuple[UpdateCache, ...]:
        """Return all caches, upstream first: nodes are made from the sinks up."""
        # A cache must be flushed after the caches that send into it.
        return tuple(reversed(self._made.values()))
