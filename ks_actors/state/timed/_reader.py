"""The common part of readers of windows and sessions: rows in memory merged with those on disk."""

from __future__ import annotations

import heapq
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from ks_actors.state.core import MISSING, Reader, step
from ks_actors.state.timed._slot_form import LATEST
from ks_actors.state.timed._timed_store import TimedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from ks_actors.state.core import Entry, Row, Rows
    from ks_actors.state.join_window import JoinWindowRows

Admits: TypeAlias = "Callable[[bytes, int], bool]"
"""A filter of rows by key bytes and slot; key bytes are empty if there is one key."""
Found = tuple[Any, Any, Any]
"""The sort key of a row, its dict key and slot, and its value in memory or its bytes."""
W = TypeVar("W", bound="TimedStore | JoinWindowRows")
_first: Final = itemgetter(0)


class SegmentedReader(Reader[W], Generic[W]):
    """The base of readers of stores with times.

    Rows that have expired as of the last commit, or as of now, are invisible. `shown` takes a
    handle (dict key and slot) and the value in memory or its bytes. It returns the entry, with a
    copy of a mutable value.
    """

    def __init__(self, store: W, shown: Callable[[Any, Any], Entry | None]) -> None:
        super().__init__(store)
        self._shown: Callable[[Any, Any], Entry | None] = shown

    def _visible_from(self, time: int, *, committed: bool) -> int:
        return max(time, self.store.limit(committed=committed) + 1, 0)

    # The rows of one key.

    def _rows_of(
        self,
        key: Any,
        index: Any,
        found: dict[int, Any],
        span: tuple[int, int],
        *,
        reverse: bool,
        admits: Admits | None = None,
    ) -> Rows:
        """Iterate over a key's rows: those `found` in memory, by slot, and others on disk.

        The rows on disk have times within the `span`, whose end is excluded.
        """
        store, form = self.store, self.store.slot_form
        from_engine = store.codec.from_engine
        # Only for sessions do Kafka Streams' stores in memory have another order than on disk.
        other = form.of_sessions and not store.segmented
        order: Callable[[int], Any] = partial(form.in_memory, b"") if other else int
        memory = [(order(slot), slot, value) for slot, value in found.items()]
        memory.sort(key=_first, reverse=reverse)
        below = (
            (order(slot), slot, from_engine(data))
            for slot, data in store.stored_of(index, *span, reverse=reverse)
            if slot not in found and (admits is None or admits(b"", slot))
        )
        rows = self._started([], iter(()), self._in_order_of(key, index, memory, below, reverse))
        rows.looking = False
        return rows

    def _in_order_of(
        self,
        key: Any,
        index: Any,
        memory: list[tuple[Any, int, Any]],
        below: Iterator[tuple[Any, int, Any]],
        reverse: bool,
    ) -> Generator[Row, None, None]:
        window, shown = self.store.slot_form.window, self._shown
        for place, slot, value in heapq.merge(memory, below, key=_first, reverse=reverse):
            entry = shown((index, slot), value)
            if entry is not None:
                yield place, (key, window(slot)), entry

    # The rows of all keys.

    def _all_rows(
        self,
        layers: list[dict[Any, Any]],
        found: Iterator[Found | None],
        span: tuple[int, int],
        *,
        reverse: bool,
        admits: Admits | None = None,
    ) -> Rows:
        """Iterate over the rows `found` in memory and those on disk, in the store's order.

        The rows on disk have times within the `span`, whose end is excluded. The `steps` of the
        returned Rows read `found` in pieces.
        """
        chunks: list[list[Found]] = []
        codec = self.store.codec
        below = (
            (place, (codec.index_key(encoded), slot), codec.from_engine(data))
            for place, encoded, slot, data in self.store.stored(*span, reverse=reverse)
            if admits is None or admits(encoded, slot)
        )
        rows = self._started(layers, iter(()), self._in_order(chunks, below, reverse))
        rows.steps = _into_chunks(found, chunks, rows)
        return rows

    def _in_order(
        self,
        chunks: list[list[Found]],
        below: Iterator[Found],
        reverse: bool,
    ) -> Generator[Row, None, None]:
        codec, window, shown = self.store.codec, self.store.slot_form.window, self._shown
        for place, handle, value in _merged(chunks, below, reverse=reverse):
            entry = shown(handle, value)
            if entry is not None:
                index, slot = handle
                key = index if codec.faithful else codec.object_key(index)
                yield place, (key, window(slot)), entry


class TimedReader(SegmentedReader[TimedStore]):
    """The reader of a store that notes the values its transactions replace."""

    def __init__(self, store: TimedStore) -> None:
        super().__init__(store, store.shown)

    def _one(self, handle: tuple[Any, int], time: int, *, committed: bool) -> Entry | None:
        """Return the entry of one window or session."""
        if time <= self.store.limit(committed=committed):
            return None
        return self._shown(handle, self.store.view(committed=committed)(handle))

    def all(self, *, committed: bool) -> Rows:
        """Iterate over all rows, in the store's order."""
        return self._of_all(0, LATEST, committed=committed, reverse=False)

    def _of_key(
        self,
        key: Any,
        first: int,
        last: int,
        *,
        committed: bool,
        reverse: bool,
        admits: Admits | None = None,
    ) -> Rows:
        """Iterate over a key's rows with times from `first` to `last`, both included."""
        store, index, bits = self.store, self._index(key), self.store.slot_form.bits
        first = self._visible_from(first, committed=committed)
        view = store.view(committed=committed)
        found = {
            slot: value
            for slot in store.slots_of(index)
            if first <= slot >> bits <= last and (admits is None or admits(b"", slot))
            if (value := view((index, slot))) is not MISSING
        }
        span = first, min(last + 1, store.resident_from)
        return self._rows_of(key, index, found, span, reverse=reverse, admits=admits)

    def _of_all(
        self,
        first: int,
        last: int,
        *,
        committed: bool,
        reverse: bool,
        admits: Admits | None = None,
    ) -> Rows:
        """Iterate over all rows with times from `first` to `last`, both included."""
        store, bits = self.store, self.store.slot_form.bits
        first = self._visible_from(first, committed=committed)
        latest: dict[Any, Any] = {} if committed else store.uncommitted_values()
        layers = [latest]

        def found() -> Iterator[Found | None]:
            encode, place, read_as_of = store.codec.index_bytes, store.place, store.read_as_of
            # rolled-back rows are no longer in the store
            handles: Iterable[tuple[Any, int]] = chain(store.handles(), latest)
            for handle in handles:
                index, slot = handle
                if (
                    first <= slot >> bits <= last
                    and (admits is None or admits(encode(index), slot))
                    and (value := read_as_of(handle, layers)) is not MISSING
                ):
                    yield place(encode(index), slot), handle, value
                else:
                    yield None

        span = first, min(last + 1, store.resident_from)
        return self._all_rows(layers, found(), span, reverse=reverse, admits=admits)


def _merged(
    chunks: list[list[Found]], below: Iterator[Found], *, reverse: bool
) -> Generator[Found, None, None]:
    """Iterate over the sorted `chunks` merged with `below`, and empty the chunks.

    Rows in memory take precedence over rows on disk.
    """
    last = None
    for chunk in chunks if not reverse else ():
        # `_used_up` takes from the end, because a list pops its last item in constant time.
        chunk.reverse()
    for found in heapq.merge(*map(_used_up, chunks), below, key=_first, reverse=reverse):
        # The merge is stable, so the row in memory comes before the one on disk.
        if found[0] != last:
            last = found[0]
            yield found


def _into_chunks(
    found: Iterator[Found | None], chunks: list[list[Found]], rows: Rows
) -> Generator[None, None, None]:
    """Collect the found rows in sorted chunks; at the end, set `rows.looking` to False.

    Each step handles some hundred rows, found or not.
    """
    part: list[Found] = []
    size = step()
    for looked, one in enumerate(found, 1):
        if one is not None:
            part.append(one)
        if not looked % size:
            part.sort(key=_first)
            chunks.append(part)
            part = []
            yield
    part.sort(key=_first)
    chunks.append(part)
    rows.looking = False


def _used_up(part: list[Found]) -> Iterator[Found]:
    """Iterate over a list from its end and pop each item.

    Popping avoids a long pause at the end to free a long list.
    """
    while part:
        yield part.pop()
