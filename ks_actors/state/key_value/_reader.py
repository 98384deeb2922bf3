"""Read committed entries of a key-value store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.state.core import MANY, STEP, NotingReader, after
from ks_actors.state.key_value._store import KeyValueBase

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ks_actors.state.core import Entry, Row, Rows
    from ks_actors.state.key_value._sorted_keys import Pair


class KeyValueReader(NotingReader[KeyValueBase[Any, Any]]):
    """Reads a key-value store."""

    def get(self, key: Any, *, committed: bool) -> Entry | None:
        """Return the entry of a key."""
        index = self._index(key)
        return self._entry(index, self._value(index, committed=committed))

    def prepare(self) -> Iterator[None]:
        """Put keys in order, as far as they are not, a step at a time, before a scan."""
        store = self.store
        while (order := store._arranged()).missing > MANY:
            order.place(STEP)
            yield

    def bounds(self, low: Any, high: Any) -> tuple[bytes, bytes]:
        """Return the bytes of the keys from `low` to `high`, both included: the first one, and what is behind the last one."""
        first = b"" if low is None else self.key_bytes(low)
        end = b"" if high is None else self.key_bytes(high) + b"\0"
        return first, first if end and end <= first else end

    def prefix_bounds(self, prefix: Any, serializer: Callable[[Any], bytes] | None) -> tuple[bytes, bytes]:
        """Return the bytes of the first key with a prefix, and what is behind the last one."""
        first = (serializer or self.key_bytes)(prefix)
        return first, after(first)

    def scan(self, low: bytes, high: bytes, *, committed: bool, reverse: bool) -> Rows:
        """Iterate over the keys whose bytes are from `low` to before `high` (nothing: the end), as they are now."""
        store = self.store
        order = store._arranged()
        order.place(order.missing)
        nothing = bool(high) and high <= low
        overlay: dict[Any, Any] = {}
        if not committed and not nothing:
            dirty, frozen = store._dirty, store._frozen
            if order.about(low, high) < len(dirty) + len(frozen):
                overlay = {index: store._now(index) for _, index in order.within(low, high) if index in dirty or index in frozen}
            else:
                overlay = self._uncommitted()
        # The order never loses a key: those that there are now are met, and those that are new had nothing.
        pairs = order.walk(low, high, reverse=reverse)
        prefix = store.prefix
        stored: Iterator[tuple[bytes, bytes]] = iter(())
        if store.engine is not None and not nothing:
            stored = store.engine.scan(prefix + low, prefix + high if high else after(prefix), reverse=reverse)
        layers: list[dict[Any, Any]] = []
        return self._started(layers, iter(()), self._rows(pairs, stored, layers, overlay, reverse=reverse))

    def _rows(
        self,
        pairs: Iterator[Pair],
        stored: Iterator[tuple[bytes, bytes]],
        layers: list[dict[Any, Any]],
        overlay: dict[Any, Any],
        *,
        reverse: bool,
    ) -> Generator[Row, None, None]:
        codec, cut = self.store._codec, len(self.store.prefix)
        read_key, faithful = codec.object_key, codec.faithful
        row = next(stored, None)
        for encoded, index in pairs:
            while row is not None and ((name := row[0][cut:]) > encoded if reverse else (name := row[0][cut:]) < encoded):
                yield name, read_key(name), codec.entry(codec.from_engine(row[1]))
                row = next(stored, None)
            if row is not None and row[0][cut:] == encoded:
                row = next(stored, None)
            entry = self._entry(index, self._at_start(index, layers, overlay))
            if entry is not None:
                yield encoded, index if faithful else read_key(encoded), entry
        while row is not None:
            name = row[0][cut:]
            yield name, read_key(name), codec.entry(codec.from_engine(row[1]))
            row = next(stored, None)
