"""The reader of key-value stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.state.core import MANY, STEP, Reader, after
from ks_actors.state.key_value._store import KeyValueBase

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ks_actors.state.core import Bounds, Entry, Row, Rows
    from ks_actors.state.key_value._sorted_keys import Pair


class KeyValueReader(Reader[KeyValueBase[Any, Any]]):
    """A reader of a key-value store."""

    def get(self, key: Any, *, committed: bool) -> Entry | None:
        """Return the entry of a key."""
        index = self._index(key)
        store = self.store
        return store.shown(index, store.view(committed=committed)(index))

    def prepare(self) -> Iterator[None]:
        """Sort pending keys, one step at a time, before a scan."""
        store = self.store
        while (order := store.arranged()).missing > MANY:
            order.place(STEP)
            yield

    def all(self, *, committed: bool) -> Rows:
        """Iterate over all entries, in the order of the keys' bytes."""
        return self.scan(b"", b"", committed=committed, reverse=False)

    def prefix_bounds(self, prefix: Any, serializer: Callable[[Any], bytes] | None) -> Bounds:
        """Return the byte range of the keys with a prefix; its end is exclusive."""
        first = (serializer or self.key_bytes)(prefix)
        return first, after(first)

    def scan(self, low: bytes, high: bytes, *, committed: bool, reverse: bool) -> Rows:
        """Iterate over the current entries of a range of key bytes.

        The range is from `low` to before `high`; an empty `high` is the end.
        """
        store = self.store
        order = store.arranged()
        order.place(order.missing)
        layers = [{} if committed else store.uncommitted_within(low, high)]
        # The order never loses a key: the scan finds current keys, and newer keys had no value.
        pairs = order.walk(low, high, reverse=reverse)
        stored = store.stored(low, high, reverse=reverse)
        return self._started(layers, iter(()), self._rows(pairs, stored, layers, reverse=reverse))

    def _rows(
        self,
        pairs: Iterator[Pair],
        stored: Iterator[tuple[bytes, bytes]],
        layers: list[dict[Any, Any]],
        *,
        reverse: bool,
    ) -> Generator[Row, None, None]:
        shown, read_as_of = self.store.shown, self.store.read_as_of
        codec = self.store.codec
        read_key, faithful = codec.object_key, codec.faithful
        row = next(stored, None)
        for encoded, index in pairs:
            while row is not None and (row[0] > encoded if reverse else row[0] < encoded):
                yield row[0], read_key(row[0]), codec.entry(codec.from_engine(row[1]))
                row = next(stored, None)
            if row is not None and row[0] == encoded:
                row = next(stored, None)
            entry = shown(index, read_as_of(index, layers))
            if entry is not None:
                yield encoded, index if faithful else read_key(encoded), entry
        while row is not None:
            yield row[0], read_key(row[0]), codec.entry(codec.from_engine(row[1]))
            row = next(stored, None)
