"""The codec of versioned stores: key and start of validity make one key."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from ks_actors.serdes import for_column
from ks_actors.state.core import TIME_BYTES, Codec, pack_time, unpack_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.state.core import Entry
    from ks_actors.topology import StoreSpec

TOMBSTONE: Final[Any] = type(
    "Tombstone", (), {"__repr__": lambda _: "TOMBSTONE", "__slots__": ()}
)()
"""The value of a version that is a delete: deletes are versions too."""

END: Final = b"\0\1"
"""The separator after a key's bytes, in which each 0 is escaped as 0, 255.

So versions sort by key, then time, for any bytes of keys.
"""

_suffix: Final = struct.Struct(">2sq")
_TAIL: Final = _suffix.size


class VersionCodec(Codec):
    """The serdes of a versioned store.

    The dict key of a version is a pair of its key's dict key and its time (ms). A tombstone's time
    is written as -1 minus the time, so it needs no extra byte.
    """

    def __init__(self, spec: StoreSpec, topic: str) -> None:
        super().__init__(spec, topic, timestamped=True)
        self._write: Callable[[Any], bytes] = self.value
        self.value: Callable[[Any], bytes] = self._value_or_none
        self.values: Callable[[list[Any]], list[bytes]] = for_column(self.value)
        self.by_column: bool = False

    def index(self, key: Any) -> Any:
        """Return the dict key of a key."""
        return key if self.faithful else self.key(key)

    def log_key(self, index: Any) -> bytes:
        """Return the bytes of a key, as in the changelog; raises SerializationError."""
        encoded: bytes = self.key_bytes(index) if self.faithful else index
        return encoded

    def index_of(self, encoded: bytes) -> Any:
        """Return the dict key of a key's bytes in the changelog."""
        return self.object_key(encoded) if self.faithful else encoded

    def first_bytes(self, index: Any) -> bytes:
        """Return the common first bytes of all versions of a key."""
        return self.log_key(index).replace(b"\0", b"\0\xff") + END

    def index_bytes(self, index: tuple[Any, int]) -> bytes:
        """Return the bytes of a version."""
        return self.log_key(index[0]).replace(b"\0", b"\0\xff") + _suffix.pack(END, index[1])

    def index_key(self, encoded: bytes) -> tuple[Any, int]:
        """Return the dict key of a version's bytes."""
        return self.index_of(encoded[:-_TAIL].replace(b"\0\xff", b"\0")), version_time(encoded)

    def _value_or_none(self, value: Any) -> Any:
        return None if value is TOMBSTONE else self._write(value)

    def raw(self, entry: Entry) -> bytes:
        """Return the bytes of a version's value and time."""
        value, time = entry
        return pack_time(-1 - time) if value is TOMBSTONE else pack_time(time) + self._write(value)

    def entry(self, raw: bytes) -> Entry:
        """Return the value and time of `raw`; raises SerializationError."""
        time: int = unpack_time(raw)[0]
        return (TOMBSTONE, -1 - time) if time < 0 else super().entry(raw)


def version_time(encoded: bytes) -> int:
    """Return the time in the bytes of a version."""
    time: int = unpack_time(encoded, len(encoded) - TIME_BYTES)[0]
    return time


def stored_key(encoded: bytes) -> bytes:
    """Return the stored bytes of a version from its snapshot key (key bytes and time)."""
    return encoded[:-TIME_BYTES].replace(b"\0", b"\0\xff") + END + encoded[-TIME_BYTES:]


def snapshot_key(encoded: bytes) -> bytes:
    """Return the snapshot key of a version's stored bytes."""
    return encoded[:-_TAIL].replace(b"\0\xff", b"\0") + encoded[-TIME_BYTES:]


def is_tombstone(raw: bytes) -> bool:
    """Return whether the bytes of a version's value and time are those of a tombstone."""
    return raw[0] >= 0x80  # noqa: PLR2004 - the sign of the time
