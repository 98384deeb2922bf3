"""Key-value stores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ks_actors._errors import SerializationError
from ks_actors.kernel import HAS_KERNEL
from ks_actors.state.core import after, checked_headers, entry_with, headers_of
from ks_actors.state.key_value._count import count_up
from ks_actors.state.key_value._table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.processors.api import CountUp
    from ks_actors.records import Headers
    from ks_actors.state.core import Codec, Engine, Entry, StoreIterator

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")
"""The type that users put and get: a value, or a value with its timestamp."""


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and its timestamp (ms)."""

    value: V
    timestamp: int


class ValueTimestampHeaders(NamedTuple, Generic[V]):
    """A value, its timestamp (ms) and its headers, as in Kafka Streams (KIP-1271)."""

    value: V
    timestamp: int
    headers: Headers = ()


class KeyValueBase(Table[K], Generic[K, P]):
    """Values by key; ranges are in the order of the keys' bytes."""

    def __init__(
        self,
        codec: Codec,
        engine: Engine | None,
        prefix: bytes,
        record_time: Callable[[], int],
        *,
        logged: bool,
    ) -> None:
        super().__init__(codec, engine, prefix, record_time, logged=logged)
        if codec.faithful and codec.fixed and not codec.mutable and HAS_KERNEL:
            self.count_up: CountUp | None = partial(count_up, self)

    def _show(self, entry: Entry) -> Any:
        """Return the user's form of an entry."""
        return entry[0]

    def _entry(self, value: Any) -> Entry | None:
        """Return the entry of a user's value."""
        return None if value is None else (value, self._time())

    def get(self, key: K) -> P | None:
        """Return the value of `key`, or None.

        A mutable value is yours to change; put it to change the store. Raises SerializationError
        for a key that the store could not have: its serde cannot write it.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        entry = self.get_entry(key)
        return None if entry is None else self._show(entry)

    def put(self, key: K, value: P | None) -> None:
        """Set the value of `key`; None deletes it.

        The store keeps the value as it is now, even if you change the object later. Raises
        SerializationError, with nothing changed, when key or value cannot be written.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        self.put_entry(key, self._entry(value))

    def key_bytes(self, key: K) -> bytes:
        """Return the bytes of a key, by which keys are ordered."""
        return self._codec.key_bytes(key)

    def index(self, key: K) -> Any:
        """Return the dict key of a key: itself when equal keys have equal bytes, else its bytes."""
        return key if self._codec.faithful else self._codec.key(key)

    def value_bytes(self, key: K) -> bytes | None:
        """Return the bytes of a key's value as they were written. For operators."""
        index = self.index(key)
        value = self._view[index]
        return None if value is None else self._codec.value_bytes(self._raw(index, value))

    def own_key(self, key: K) -> tuple[bytes, K]:
        """Return the bytes of a key, and the key itself, copied if it is mutable."""
        # By way of its bytes: the user may change a mutable key later.
        encoded: bytes = self._codec.key(key)
        return encoded, self._codec.object_key(encoded) if self._codec.mutable_keys else key

    def entry_bytes(self, key: K, value: P) -> int:
        """Return the written size of a key and its value (bytes), time included."""
        entry = self._entry(value)
        return len(self._codec.key(key)) + (0 if entry is None else len(self._codec.raw(entry)))

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
        encode = self._codec.key_bytes
        first = b"" if low is None else encode(low)
        end = b"" if high is None else encode(high) + b"\0"
        if end and end <= first:
            end = first  # an empty range, as in Kafka Streams
        return self.scan(first, end, self._show, reverse=reverse)

    def all(self) -> StoreIterator[tuple[K, P]]:
        """Iterate over all keys in byte order."""
        return self.scan(b"", b"", self._show)

    def all_there_is(self) -> StoreIterator[tuple[K, P | SerializationError]]:
        """Iterate as `all` does, with a SerializationError in place of an unreadable value.

        For operators.
        """

        def read(raw: bytes) -> Any:
            try:
                return self._codec.entry(raw)
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

    def _show(self, entry: Entry) -> Any:
        return ValueAndTimestamp(entry[0], entry[1])

    def _entry(self, value: Any) -> Entry | None:
        if value is not None and not (
            isinstance(value, tuple) and len(value) == len(ValueAndTimestamp._fields)
        ):
            raise TypeError(
                f"store {self.name}: a value is put with its timestamp, got {value!r}: give "
                "ValueAndTimestamp(value, timestamp_ms)"
            )
        return (
            None
            if value is None or value[0] is None
            else (value[0], self._codec.checked_time(value[1]))
        )


class KeyValueStoreWithHeaders(KeyValueBase[K, ValueTimestampHeaders[V]], Generic[K, V]):
    """Values with their timestamps and headers, by key (KIP-1271).

    A delete takes the headers of the current record into the changelog. Entries that operators make
    have no headers.
    """

    def put(self, key: K, value: ValueTimestampHeaders[V] | None) -> None:
        """Set the value of `key` with its timestamp and headers; None deletes it.

        See KeyValueBase.
        """
        super().put(key, value)
        if value is None or value[0] is None:
            self._note_headers_of_delete(self.index(key))

    def _show(self, entry: Entry) -> Any:
        return ValueTimestampHeaders(entry[0], entry[1], headers_of(entry))

    def _entry(self, value: Any) -> Entry | None:
        return entry_of(self._codec, value)


def entry_of(codec: Codec, value: Any) -> Entry | None:
    """Return the entry of a user's value with timestamp and headers; None without a value."""
    if value is None:
        return None
    if not (isinstance(value, tuple) and len(value) == len(ValueTimestampHeaders._fields)):
        raise TypeError(
            f"store {codec.name}: a value is put with its timestamp and headers, got {value!r}: "
            "give ValueTimestampHeaders(value, timestamp_ms, headers)"
        )
    content, time, headers = value
    if content is None:
        return None
    return entry_with(content, codec.checked_time(time), checked_headers(headers, codec.name))
