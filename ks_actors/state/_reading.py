"""What queries see of a store: what is committed, or all there is. Nothing is changed by looking, and nothing handed out is the store's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ks_actors.state._changes import MISSING
from ks_actors.state._engine import after
from ks_actors.state._key_value import KeyValueBase
from ks_actors.state._rows import Row, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ks_actors.state._codec import Entry
    from ks_actors.state._order import Pair
    from ks_actors.state._spans import Spans
    from ks_actors.state._transaction import Transactional

S = TypeVar("S", bound="Transactional[Any] | Spans")
MANY: Final = 2000
"""Keys that are put in order in one go, at most."""
STEP: Final = 500
"""Keys that are looked at in one step, about half a millisecond."""


class Reader(Generic[S]):
    """What all kinds of stores have in common."""

    def __init__(self, store: S) -> None:
        self.store: S = store

    @property
    def name(self) -> str:
        """The store's name."""
        return self.store.name

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key, which keys are ordered and partitioned by."""
        if key is None:
            raise TypeError(f"store {self.store.name}: a key cannot be None")
        encoded: bytes = self.store._codec.key(key)
        return encoded

    def _index(self, key: Any) -> Any:
        encoded = self.key_bytes(key)
        return key if self.store._codec.faithful else encoded

    def _started(self, layers: list[dict[Any, Any]], steps: Iterator[None], rows: Generator[Row, None, None]) -> Rows:
        found = Rows(layers, steps, rows)
        self.store.readers.add(found)
        return found


T = TypeVar("T", bound="Transactional[Any]")


class NotingReader(Reader[T]):
    """What reads a store that notes what its transactions replace."""

    def _value(self, handle: Any, *, committed: bool) -> Any:
        return self.store._committed_value(handle) if committed else self.store._now(handle)

    def _entry(self, handle: Any, value: Any) -> Entry | None:
        """Return the entry behind a value of the view or of the notes; one that may be changed in place is a copy."""
        if value is MISSING:
            value = self.store.below(handle)
        if value is None:
            return None
        return value if type(value) is tuple else self.store._codec.entry(value)

    def _uncommitted(self) -> dict[Any, Any]:
        """Return the values of all that was put since the last commit."""
        store = self.store
        return {handle: store._now(handle) for source in (store._frozen, store._dirty) for handle in source}

    def _at_start(self, handle: Any, layers: list[dict[Any, Any]], overlay: dict[Any, Any]) -> Any:
        """Return the value that a handle had when the reader began."""
        if handle in overlay:
            return overlay[handle]
        for layer in layers:
            if handle in layer:
                return layer[handle]
        return self.store._committed_value(handle)


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
