"""The reader of key-value stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.state.core import MANY, STEP, NotingReader, after
from ks_actors.state.key_value._store import KeyValueBase

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ks_actors.state.core import Entry, Row, Rows
    from ks_actors.state.key_value._sorted_keys import Pair


class KeyValueReader(NotingReader[KeyValueBase[Any, Any]]):
    """A reader of a key-value store."""

    def get(self, key: Any, *, committed: bool) -> Entry | None:
        """Return the entry of a key."""
        index = self._index(key)
        return self._entry(index, self._value(index, committed=committed))

    def prepare(self) -> Iterator[None]:
        """Sort pending keys, one step at a time, before a scan."""
        store = self.store
        while (order := store._arranged()).missing > MANY:
            order.place(STEP)
            yield

    def bounds(self, low: Any, high: Any) -> tuple[bytes, bytes]:
        """Return the byte range of the keys from `low` to `high`, both included.

        The end of the byte range is exclusive.
        """
        first = b"" if low is None else self.key_bytes(low)
        end = b"" if high is None else self.key_bytes(high) + b"\0"
        return first, first if end and end <= first else end

    def prefix_bounds(
        self, prefix: Any, serializer: Callable[[Any], bytes] | None
    ) -> tuple[bytes, bytes]:
        """Return the byte range of the keys with a prefix; its end is exclusive."""
        first = (serializer or self.key_bytes)(prefix)
        return first, after(first)

    def scan(self, low: bytes, high: bytes, *, committed: bool, reverse: bool) -> Rows:
        """Iterate over the current entries of a range of key bytes.

        The range is from `low` to before `high`; an empty `high` is the end.
        """
        store = self.store
        order = store._arranged()
        order.place(order.missing)
        nothing = bool(high) and high <= low
        overlay: dict[Any, Any] = {}
        if not committed and not nothing:
            dirty, frozen = store._dirty, store._frozen
            if order.about(low, high) < len(dirty) + len(frozen):
                overlay = {
                    index: store._now(index)
                    for _, index in order.within(low, high)
                    if index in dirty or index in frozen
                }
            else:
                overlay = self._uncommitted()
        # The order never loses a key: current keys are met, and newer keys had no value.
        pairs = order.walk(low, high, reverse=reverse)
        prefix = store.prefix
        stored: Iterator[tuple[bytes, bytes]] = iter(())
        if store.engine is not None and not nothing:
            stored = store.engine.scan(
                prefix + low, prefix + high if high else after(prefix), reverse=reverse
            )
        layers: list[dict[Any, Any]] = []
        return self._started(
            layers, iter(()), self._rows(pairs, stored, layers, overlay, reverse=reverse)
        )

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
            while row is not None and (
                (name := row[0][cut:]) > encoded if reverse else (name := row[0][cut:]) < encoded
            ):
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
