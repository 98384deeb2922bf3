"""Key-value stores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

from ks_actors._errors import SerializationError
from ks_actors._hints import Elsewhere, refuse
from ks_actors.kernel import HAS_KERNEL
from ks_actors.state.core import (
    HEADERS_FORM,
    PLAIN_FORM,
    TIMESTAMPED_FORM,
    Form,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    after,
)
from ks_actors.state.key_value._count import count_up
from ks_actors.state.key_value._table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.processors.api import CountUp
    from ks_actors.state.core import Entry, StoreIterator, StoreParts, Take

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")
"""The type that users put and get: a value, or a value with its timestamp."""


class KeyValueBase(Table[K], Generic[K, P]):
    """Values by key; ranges are in the order of the keys' bytes."""

    form: ClassVar[Form] = PLAIN_FORM

    if not TYPE_CHECKING:
        __getitem__ = refuse("has no []: store.get(key)")
        __setitem__ = refuse("has no []: store.put(key, value)")
        __delitem__ = refuse("has no []: store.delete(key)")
        approximateNumEntries = Elsewhere("store.approximate_num_entries()")  # noqa: N815 - Java's name
        fetch = Elsewhere("store.get(key); window and session stores have fetch")
        items = Elsewhere("store.all() iterates over keys and values")
        keys = Elsewhere("store.all() iterates over keys and values")
        values = Elsewhere("store.all() iterates over keys and values")
        putIfAbsent = Elsewhere("store.put_if_absent(key, value)")  # noqa: N815 - Java's name
        set = Elsewhere("store.put(key, value)")

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        codec = parts.codec
        self._show: Callable[[Entry], Any] = self.form.show
        self._take: Take = self.form.taker(codec, parts.record_time)
        if codec.faithful and codec.fixed and not codec.mutable and HAS_KERNEL:
            self.count_up: CountUp | None = partial(count_up, self)

    def get(self, key: K) -> P | None:
        """Return the value of `key`, or None.

        A mutable value is yours to change; put it to change the store. Raises SerializationError
        for a key that its serde cannot write, because the store cannot have such a key.
        """
        if key is None:
            self._no_key()
        entry = self.get_entry(key)
        return None if entry is None else self._show(entry)

    def put(self, key: K, value: P | None) -> None:
        """Set the value of `key`; None deletes it.

        The store keeps the value as it is now, even if you change the object later. Raises
        SerializationError, with nothing changed, when key or value cannot be written.
        """
        if key is None:
            self._no_key()
        self.put_entry(key, self._take(value))

    def _no_key(self) -> NoReturn:
        raise TypeError(f"store {self.name}: a key cannot be None")

    def key_bytes(self, key: K) -> bytes:
        """Return the bytes of a key, by which keys are ordered."""
        return self.codec.key_bytes(key)

    def index(self, key: K) -> Any:
        """Return the dict key of a key: the key if equal keys have equal bytes, else its bytes."""
        if key is None:
            self._no_key()
        return key if self.codec.faithful else self.codec.key(key)

    def get_at(self, index: Any) -> P | None:
        """Return the value of a dict key, or None. For operators."""
        entry = self._get_at(index)
        return None if entry is None else self._show(entry)

    def put_at(self, index: Any, value: P | None) -> None:
        """Set the value of a dict key; None deletes it. For operators."""
        self._put_at(index, self._take(value))

    def value_bytes(self, key: K) -> bytes | None:
        """Return the bytes of a key's value as they were written. For operators."""
        index = self.index(key)
        value = self._view[index]
        return None if value is None else self.codec.value_bytes(self._raw(index, value))

    def own_key(self, key: K, index: Any = None) -> tuple[bytes, K]:
        """Return the bytes of a key, and the key itself, copied if it is mutable.

        `index` is its dict key, if known.
        """
        codec = self.codec
        # Copy the key by way of its bytes: the user may change a mutable key later.
        encoded: bytes = codec.key(key) if index is None or codec.faithful else index
        return encoded, codec.object_key(encoded) if codec.mutable_keys else key

    def index_of(self, encoded: bytes, key: K) -> Any:
        """Return the dict key of what `own_key` returned."""
        return key if self.codec.faithful else encoded

    def entry_bytes(self, key: K, value: P) -> int:
        """Return the written size of a key and its value (bytes), time included."""
        entry = self._take(value)
        return len(self.codec.key(key)) + (0 if entry is None else len(self.codec.raw(entry)))

    def delete(self, key: K) -> P | None:
        """Delete `key` and return its old value."""
        value = self.get(key)
        self.put(key, None)
        return value

    def put_if_absent(self, key: K, value: P | None) -> P | None:
        """Set the value of `key` if it has none; return the existing value, or None."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, pairs: Iterable[tuple[K, P | None]]) -> None:
        """Put each pair of a key and a value."""
        for key, value in pairs:
            self.put(key, value)

    def range(self, low: K | None, high: K | None) -> StoreIterator[tuple[K, P]]:
        """Iterate over the keys from `low` to `high`, both included, in byte order.

        None is no bound.
        """
        return self._range(low, high, reverse=False)

    def reverse_range(self, low: K | None, high: K | None) -> StoreIterator[tuple[K, P]]:
        """Iterate over the keys from `high` down to `low`, both included."""
        return self._range(low, high, reverse=True)

    def _range(self, low: K | None, high: K | None, *, reverse: bool) -> StoreIterator[tuple[K, P]]:
        return self.scan(*self.codec.bounds(low, high), self._show, reverse=reverse)

    def all(self) -> StoreIterator[tuple[K, P]]:
        """Iterate over all keys in byte order."""
        return self.scan(b"", b"", self._show)

    def all_there_is(self) -> StoreIterator[tuple[K, P | SerializationError]]:
        """Iterate as `all` does, with a SerializationError in place of an unreadable value.

        For operators.
        """

        def read(raw: bytes) -> Any:
            try:
                return self.codec.entry(raw)
            except SerializationError as error:
                return (error, 0)

        return self.scan(
            b"",
            b"",
            lambda entry: (
                entry[0] if isinstance(entry[0], SerializationError) else self._show(entry)
            ),
            read=read,
        )

    def reverse_all(self) -> StoreIterator[tuple[K, P]]:
        """Iterate over all keys in reverse byte order."""
        return self.scan(b"", b"", self._show, reverse=True)

    def prefix_scan(
        self, prefix: Any, prefix_serializer: Callable[[Any], bytes]
    ) -> StoreIterator[tuple[K, P]]:
        """Iterate over the keys with bytes that begin with the serialized `prefix`."""
        first = prefix_serializer(prefix)
        return self.scan(first, after(first), self._show)


class KeyValueStore(KeyValueBase[K, V], Generic[K, V]):
    """Values by key."""


class TimestampedKeyValueStore(KeyValueBase[K, ValueAndTimestamp[V]], Generic[K, V]):
    """Values with their timestamps, by key: the store of tables and aggregates.

    `get_entry` and `put_entry` are the fast way for operators; an entry is a plain tuple of value
    and timestamp.
    """

    form = TIMESTAMPED_FORM


class KeyValueStoreWithHeaders(KeyValueBase[K, ValueTimestampHeaders[V]], Generic[K, V]):
    """Values with their timestamps and headers, by key (KIP-1271).

    A delete takes the headers of the current record into the changelog. Entries that operators make
    have no headers.
    """

    form = HEADERS_FORM

    def put(self, key: K, value: ValueTimestampHeaders[V] | None) -> None:
        """Set the value of `key` with its timestamp and headers; None deletes it.

        See KeyValueBase.
        """
        super().put(key, value)
        if value is None or value[0] is None:
            self._note_headers_of_delete(self.index(key))
