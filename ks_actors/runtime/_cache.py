"""Updates of tables that are held back, so that only the last one of several goes downstream."""

from __future__ import annotations

from copy import deepcopy
from itertools import compress, islice, repeat
from operator import is_not, itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

from ks_actors._batch import Batch
from ks_actors.processors._holes import ATOMS
from ks_actors.state._weight import average, size
from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors._batch import Headers
    from ks_actors.processors._operator import Process, ProcessBatch
    from ks_actors.runtime._current import Current
    from ks_actors.runtime._queue import RecordQueue
    from ks_actors.topology import StoreSpec

_ROW = 96  # what a row takes in the dicts here, beside its key and value
_SAMPLED = 16  # every so many times that room is looked for a row is weighed
_UNSEEN = 64  # so many new rows may come one by one before room is looked for
_SPARE = 16  # a part like this is sent on beyond what is too much, so that it is not one row at a time

_new, _timestamp = itemgetter(0), itemgetter(1)


class CacheBudget:
    """How many bytes the held updates of an instance may take: all stores of all tasks have them together, first come, first served."""

    __slots__ = ("_lock", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.used: int = 0
        self._lock = Lock()  # tasks with functions that block are in threads

    def add(self, weight: int) -> int:
        """Count more, or less; return how much it is too much."""
        with self._lock:
            self.used += weight
            return self.used - self.limit


class HeldUpdates:
    """The updates of one store of one task that have not gone downstream yet: at most one per row, the latest (see `processors._cache.Cache`).

    They go by the order in which their rows came here since they were last sent, all of them when the task is committed, and the oldest when there
    is no room. With a row goes the value that was last sent downstream, and the timestamp and headers of its last update; an update from nothing to
    nothing does not go. Behind it `forward` gets them one by one, with topic, partition and offset of the last record, where `exact`, which
    says that somebody there looks at the record's context; else `forward_batch` gets them in batches, and there is no current record.
    """

    def __init__(
        self,
        budget: CacheBudget,
        current: Current,
        forward: Process,
        forward_batch: ProcessBatch,
        *,
        exact: bool,
        index: Callable[[Any], Any] | None,
        by_start: bool,
        mutable: bool,
    ) -> None:
        self.index: Callable[[Any], Any] | None = index
        self.by_start: bool = by_start
        self.news: dict[Any, tuple[Any, int]] = {}
        self.olds: dict[Any, Any] = {}
        self.keys: dict[Any, Any] = {}
        self.send_old: bool = False
        self._mutable = mutable
        self.headers: dict[Any, Headers] = {}
        self._places: dict[Any, tuple[RecordQueue | None, int]] = {}
        self._budget = budget
        self._current = current
        self._forward = forward
        self._forward_batch = forward_batch
        self._exact = exact
        self._weight: int = 0
        self._typical: int = 0
        self._settled: int = 0
        self._next: int = 0

    def __len__(self) -> int:
        return len(self.news)

    @property
    def copies(self) -> bool:
        """Whether old values are sent that could be changed in place."""
        return self._mutable and self.send_old

    # --- taking ---------------------------------------------------------------------------------------------------------------

    def before(self, key: Any, value: Any) -> Any:
        """Return a row's value before an update, such as it stays when the row's object is changed in place."""
        if not self.copies or value is None or type(value) in ATOMS:
            return value
        row = key if self.index is None else self.index(key)
        return value if row in self.news else deepcopy(value)

    def hold(self, key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        """Take an update."""
        row = key if self.index is None else self.index(key)
        new, old = change
        news = self.news
        if row not in news:
            self.olds[row] = old
            if self.index is not None:
                self.keys[row] = key
        news[row] = (new, timestamp)
        if headers:
            self.headers[row] = headers
        elif self.headers:
            self.headers.pop(row, None)
        if self._exact:
            self._places[row] = (self._current.queue, self._current.offset)
        if len(news) > self._next:
            self.settle()

    def hold_batch(self, batch: Batch) -> None:
        """Take many."""
        news, olds, keys, index = self.news, self.olds, self.keys, self.index
        for key, (new, old), timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            row = key if index is None else index(key)
            if row not in news:
                olds[row] = old
                if index is not None:
                    keys[row] = key
            news[row] = (new, timestamp)
        self.note_headers(batch)
        self.settle()

    def note_headers(self, batch: Batch, *, nulls: bool = True) -> None:
        """Remember the headers of the records of a batch whose rows are held; without `nulls` those without value are none of them."""
        known = self.headers
        if batch.headers is None and not known:
            return
        news, index = self.news, self.index
        headers = repeat(()) if batch.headers is None else batch.headers
        for key, value, header in zip(batch.keys, batch.values, headers, strict=False):
            if key is None or (value is None and not nulls):
                continue
            row = key if index is None else index(key)
            if header and row in news:
                known[row] = header
            else:
                known.pop(row, None)

    def settle(self) -> None:
        """Send on what is too much: the oldest updates."""
        count = len(self.news)
        if not self._settled % _SAMPLED and count:
            self._sample()
        self._settled += 1
        over = self._count(count)
        if over > 0:
            self.flush(over // max(1, self._typical) + 1 + count // _SPARE)
            over = self._count(len(self.news))
        self._next = len(self.news) + min(_UNSEEN, max(0, -over // max(1, self._typical)))

    def _sample(self) -> None:
        row = next(reversed(self.news))
        value, old = self.news[row][0], self.olds[row] if self.send_old else None
        self._typical = average(self._typical, _ROW + size(row) + size(value) + size(old))

    def _count(self, count: int) -> int:
        weight = count * self._typical
        self._weight, before = weight, self._weight
        return self._budget.add(weight - before)

    # --- sending --------------------------------------------------------------------------------------------------------------

    def flush(self, limit: int) -> None:
        """Send the oldest updates, at most so many."""
        news, olds = self.news, self.olds
        if limit < len(news):
            rows = list(islice(news, limit))
            entries = list(map(news.pop, rows))
            before = list(map(olds.pop, rows))
        else:
            rows, entries, before = list(news), list(news.values()), list(olds.values())
            news.clear()
            olds.clear()
        self._count(len(news))
        self._send(rows, entries, before)

    def _send(self, rows: list[Any], entries: list[tuple[Any, int]], before: list[Any]) -> None:
        headers = list(map(self.headers.pop, rows, repeat(()))) if self.headers else None
        keys = rows if self.index is None else list(map(self.keys.pop, rows))
        places = list(map(self._places.pop, rows)) if self._exact else ()
        values = list(map(_new, entries))
        changes = list(zip(values, before if self.send_old else repeat(None), strict=False))
        batch = Batch(keys, changes, list(map(_timestamp, entries)), headers)
        if not all(map(is_not, values, repeat(None))):
            lasting = [new is not None or old is not None for new, old in zip(values, before, strict=True)]
            batch, places = batch.select(lasting), list(compress(places, lasting))
        if not len(batch):
            return
        current = self._current
        was = current.queue, current.chunk, current.offset, current.timestamp, current.headers
        current.nowhere()
        try:
            if self._exact:
                self._one_by_one(batch, places)
            else:
                self._forward_batch(batch)
        finally:
            current.queue, current.chunk, current.offset, current.timestamp, current.headers = was

    def _one_by_one(self, batch: Batch, places: Any) -> None:
        current, forward = self._current, self._forward
        headers = repeat(()) if batch.headers is None else batch.headers
        for key, change, timestamp, header, (queue, offset) in zip(batch.keys, batch.values, batch.timestamps, headers, places, strict=False):
            # The bytes of the record are gone: they would keep all that was fetched with it.
            current.queue, current.chunk, current.offset, current.timestamp, current.headers = queue, None, offset, timestamp, header
            forward(key, change, timestamp, header)

    def drop(self) -> None:
        """Forget everything."""
        for held in (self.news, self.olds, self.keys, self.headers, self._places):
            held.clear()
        self._count(0)


class Caches:
    """The caches of one task, one per store that is to have one."""

    def __init__(self, budget: CacheBudget, specs: Mapping[str, StoreSpec], current: Current) -> None:
        self._budget = budget
        self._specs = specs
        self._current = current
        self._made: dict[str, HeldUpdates] = {}

    def of(self, store: str, forward: Process, forward_batch: ProcessBatch, *, exact: bool, send_old: bool) -> HeldUpdates | None:
        """Return the cache of a store; None when it has none. Operators that share a store lead to the same node, and have one cache."""
        spec = self._specs.get(store)
        if spec is None or not spec.caching:
            return None
        made = self._made.get(store)
        if made is None:
            made = self._made[store] = HeldUpdates(
                self._budget,
                self._current,
                forward,
                forward_batch,
                exact=exact,
                index=_index(spec),
                by_start=spec.key.faithful and spec.kind is StoreKind.TIMESTAMPED_WINDOW,
                mutable=not spec.value.immutable,
            )
        made.send_old = made.send_old or send_old
        return made

    def in_order(self) -> tuple[HeldUpdates, ...]:
        """Return all, upstream first: nodes are made from the sinks up."""
        return tuple(reversed(self._made.values()))


def _index(spec: StoreSpec) -> Callable[[Any], Any] | None:
    """Return what rows are told apart by: keys may be equal where their bytes are not."""
    faithful, encode = spec.key.faithful, spec.key.serializer(spec.name, is_key=True)
    if spec.kind is StoreKind.TIMESTAMPED_WINDOW:
        if faithful:
            return lambda windowed: (windowed[0], windowed[1][0])
        return lambda windowed: (encode(windowed[0]), windowed[1][0])
    return None if faithful else encode
