"""The codec of a store: keys and values to bytes and back."""

from __future__ import annotations

import struct
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ks_actors import serdes
from ks_actors._errors import SerializationError
from ks_actors.serdes import checked_serializer, for_column, has_form, of_serde, written_form
from ks_actors.state.core._entry import no_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import Batch, Headers
    from ks_actors.serdes import AsRead
    from ks_actors.state.core._entry import Entry
    from ks_actors.state.core._key_ranges import Bounds
    from ks_actors.topology import StoreSpec

pack_time: Final = struct.Struct(">q").pack
has_form(pack_time, "encode_longs")
pack_times: Final[Callable[[list[int]], list[bytes]]] = for_column(pack_time)
unpack_time: Final = struct.Struct(">q").unpack_from
NO_TIME: Final = pack_time(0)
TIME_BYTES: Final = len(NO_TIME)

_value: Final = itemgetter(0)
_timestamp: Final = itemgetter(1)

FIXED: Final = (
    serdes.SHORT,
    serdes.INTEGER,
    serdes.LONG,
    serdes.FLOAT,
    serdes.DOUBLE,
    serdes.BOOLEAN,
    serdes.UUID,
    serdes.VOID,
)
"""Serdes of objects of about the same size."""

TEXT: Final = (serdes.STRING, serdes.BYTES)
"""Serdes of objects whose length gives their size."""


WHOLE: Final = ((serdes.SHORT, 16), (serdes.INTEGER, 32), (serdes.LONG, 64))
"""Serdes of whole numbers, and their widths in bits."""


class Codec:
    """The serdes of one store, bound to its changelog topic.

    In memory the bytes of an entry are always the timestamp (int64, big-endian) and the value's
    bytes. `timestamped` says whether the engine stores the timestamp too.

    The stores index dicts by the key itself if its serde is faithful (equal keys have equal bytes),
    else by the key's bytes. Parameters called `index` are such a dict key.
    """

    headed: bool = False
    """Whether entries have headers; see CodecWithHeaders."""
    record_headers: Callable[[], Headers] = staticmethod(no_record)

    def __init__(self, spec: StoreSpec, topic: str, *, timestamped: bool) -> None:
        self.name: str = spec.name
        self.topic: str = topic
        self.timestamped: bool = timestamped
        self.faithful: bool = spec.key.faithful
        # A faithful serde writes an object as it has read it.
        self.mutable: bool = not spec.value.immutable or (
            spec.as_written and not spec.value.faithful
        )
        self.mutable_keys: bool = not spec.key.immutable
        # Whether the bytes of a changelog key show that another kind of store wrote the key.
        self.tells_keys: bool = spec.source_topic is None and any(
            spec.key is serde for serde in (*FIXED, *TEXT)
        )
        # Not for rows of operators with several values of a table: a put changes only one value.
        self.reads_back: bool = self.mutable and getattr(spec.value, "reads_back", True)
        self.fixed: bool = any(spec.value is serde for serde in FIXED)
        self.text: bool = any(spec.value is serde for serde in TEXT)
        self.bound: int = (
            0
            if self.mutable
            else next((1 << bits - 1 for serde, bits in WHOLE if spec.value is serde), 0)
        )
        self.text_type: type | None = next(
            (type_ for serde, type_ in zip(TEXT, (str, bytes), strict=True) if spec.value is serde),
            None,
        )
        # whether dict keys are text or bytes
        self.plain_keys: bool = not self.faithful or any(spec.key is serde for serde in TEXT)
        self.sized_keys: bool = not self.faithful or any(spec.key is serde for serde in TEXT)
        # a serde that is not faithful has bytes as dict keys
        self.key_form: int | None = written_form(spec.key) if self.faithful else 0
        self.value_form: int | None = written_form(spec.value)
        self._key_serde = spec.key
        self._write_key: Callable[[Any], bytes] = checked_serializer(spec.key, topic, is_key=True)
        # The kernel writes columns of faithful keys without a Python call for each key.
        self.key: Callable[[Any], bytes] = self._write_key if self.faithful else self.key_bytes
        self.read_key: Callable[[bytes], Any] = spec.key.deserializer(topic, is_key=True)
        self.value: Callable[[Any], bytes] = checked_serializer(spec.value, topic)
        self.as_read: AsRead = of_serde(spec.value) or _never
        self.keys: Callable[[list[Any]], list[bytes]] = for_column(self._write_key)
        self.values: Callable[[list[Any]], list[bytes]] = for_column(self.value)
        # whether engine rows are made from whole columns: of dict keys, and of values and times
        self.by_column: bool = True
        self.read_value: Callable[[bytes], Any] = spec.value.deserializer(topic)

    def admit(self, index: Any, value: Any) -> Any:
        """Return an immutable value as a later read returns it.

        That is the value itself, or its round trip through the serde. Mutable values are kept as
        bytes instead. Raises SerializationError when the value cannot be written.
        """
        try:
            return value if self.as_read(value) else self.read_value(self.value(value))
        except Exception as error:  # noqa: BLE001 - any serde error means a bad object
            self.refuse(index, value, error)

    def written(self, index: Any, entry: Entry) -> bytes:
        """Return the bytes of an entry that is put; raises SerializationError.

        A mutable value is read back: nothing else shows whether later reads succeed.
        """
        try:
            data = self.raw(entry)
        except Exception as error:  # noqa: BLE001 - any serde error means a bad object
            self.refuse(index, entry[0], error)
        if self.reads_back:
            try:
                self.entry(data)
            except SerializationError as error:
                # The error's own text is about rows that an earlier version wrote.
                cause = error.__cause__
                self.refuse(index, entry[0], cause if isinstance(cause, Exception) else error)
        return data

    def checked_time(self, time: Any) -> int:
        """Return the timestamp (ms) of a put; raises SerializationError when it is invalid."""
        try:
            pack_time(time)
        except Exception as error:
            raise SerializationError(
                f"store {self.name}: a timestamp must be a whole number of ms in 8 bytes, got "
                f"{time!r:.200}"
            ) from error
        return time  # type: ignore[no-any-return]

    def content(self, index: Any, value: Any) -> bytes:
        """Return the bytes of a value that is put, without time; raises SerializationError."""
        try:
            data = self.value(value)
            if self.reads_back:
                self.read_value(data)
            return data
        except Exception as error:  # noqa: BLE001 - any serde error means a bad object
            self.refuse(index, value, error)

    def check_key(self, index: Any) -> None:
        """Raise SerializationError when a dict key cannot be written."""
        self.index_bytes(index)

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key; raises SerializationError that names the store and the key."""
        try:
            return self._write_key(key)
        except Exception as error:
            raise SerializationError(
                f"store {self.name}: the serde cannot write key {key!r:.200}, of type "
                f"{type(key).__name__}: give a key for {self._key_serde!r} ({error!r})"
            ) from error

    def bounds(self, low: Any, high: Any) -> Bounds:
        """Return the range of the keys from `low` to `high`, both included; None is no bound.

        Keys are compared by their bytes. Raises SerializationError.
        """
        first = b"" if low is None else self.key_bytes(low)
        end = b"" if high is None else self.key_bytes(high) + b"\0"
        return first, first if end and end <= first else end

    def raw(self, entry: Entry) -> bytes:
        """Return the bytes of an entry."""
        return pack_time(entry[1]) + self.value(entry[0])

    def column(self, values: list[Any]) -> list[bytes] | None:
        """Return the engine's values of many entries in one pass; None if that is impossible."""
        if self.mutable or not self.by_column or set(map(type, values)) != {tuple}:
            return None
        try:
            data = self.values(list(map(_value, values)))
            if self.timestamped:
                return list(map(add, pack_times(list(map(_timestamp, values))), data))
            # A None here would delete the row, so a serde that writes None is handled row by row.
            return None if None in data else data
        except Exception:  # noqa: BLE001 - the row-by-row path raises it again and names the row
            return None

    def entry(self, raw: bytes) -> Entry:
        """Return the entry of `raw`, a new object each time; raises SerializationError."""
        try:
            return (self.read_value(raw[TIME_BYTES:]), unpack_time(raw)[0])
        except Exception as error:
            raise SerializationError(
                f"store {self.name} has a value that its serde cannot read: {error!r}; has the "
                "serde been changed?"
            ) from error

    def value_bytes(self, raw: bytes) -> bytes:
        """Return the bytes of the value in the entry `raw`."""
        return raw[TIME_BYTES:]

    def object_key(self, encoded: bytes) -> Any:
        """Return the key of its bytes; raises SerializationError."""
        try:
            return self.read_key(encoded)
        except Exception as error:
            raise SerializationError(
                f"store {self.name} has a key that its serde cannot read: {error!r}; has the serde "
                "been changed?"
            ) from error

    def index_key(self, encoded: bytes) -> Any:
        """Return the dict key of an encoded key."""
        return self.object_key(encoded) if self.faithful else encoded

    def index_bytes(self, index: Any) -> bytes:
        """Return the bytes of a dict key; raises SerializationError."""
        encoded: bytes = self.key_bytes(index) if self.faithful else index
        return encoded

    def to_engine(self, raw: bytes) -> bytes:
        """Return the engine's bytes of the entry `raw`."""
        return raw if self.timestamped else raw[TIME_BYTES:]

    def from_engine(self, data: bytes) -> bytes:
        """Return the bytes of the entry that the engine stores as `data`."""
        return data if self.timestamped else NO_TIME + data

    def restored(self, batch: Batch) -> Batch:
        """Return records of the changelog as the store restores them."""
        return batch

    def refuse(self, index: Any, value: Any, error: Exception) -> NoReturn:
        """Raise SerializationError for a put that cannot be written, or read again."""
        raise SerializationError(
            f"store {self.name}: the serde cannot write the value of key {index!r}, or cannot "
            f"read it again: {error!r}; value: {value!r:.200}"
        ) from error


def _never(_: Any) -> bool:
    return False
