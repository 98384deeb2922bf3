"""Entries of a store whose windows expire: how those in memory are read, how large they are, and what comes too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.state.core import TEXTS, average, weigh
from ks_actors.state.timed._key_index import KeyIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.state.core import Codec, Entry
    from ks_actors.state.disk import Engine
    from ks_actors.topology import StoreSpec


class TimedKeyIndex(KeyIndex):
    """What windows and sessions have in common."""

    def __init__(
        self, codec: Codec, engine: Engine | None, prefix: bytes, record_time: Callable[[], int], spec: StoreSpec, expired: Callable[[int], None]
    ) -> None:
        super().__init__(codec, engine, prefix, record_time, spec)
        self._expired: Callable[[int], None] = expired
        self._ticks: int = 0
        self._faithful: bool = codec.faithful
        self._simple: bool = not codec.mutable
        self._sized: bool = not codec.fixed
        self.bound: int = codec.bound  # whole numbers below it are read as they are, and from the least one on
        self._least: int = -codec.bound
        self._text: type | None = codec.text_type
        self._sized_keys: bool = codec.sized_keys

    def _entry_of(self, index: Any, slot: int, value: Any) -> Entry | None:
        """Return the entry behind a value of a track, a new object when it is mutable."""
        if value is None or type(value) is tuple:
            return value
        entry = self._codec.entry(value)
        if not self._mutable:
            self._put_back((index, slot), entry)
        return entry

    def _as_kept(self, key: Any, entry: Entry) -> Any:
        """Return an entry that is put as it is kept: as it will be read, or as bytes when it could be changed in place. Raises SerializationError."""
        codec, value = self._codec, entry[0]
        if self._mutable:
            return codec.written(key, entry)
        if type(value) is str and self._text is str and value.isascii():
            return entry
        admitted = codec.admit(key, value)
        return entry if admitted is value else (admitted, entry[1])

    def _uncount(self, old: Any) -> None:
        """Take what is put over out of the size of the transaction."""
        if type(old) is bytes:
            self._size -= len(old)
        elif old is not None and type(old[0]) in TEXTS:
            self._size -= len(old[0])

    def check_key(self, key: Any) -> None:
        """Raise SerializationError when a key cannot be written. For operators."""
        self._codec.check_key(key if self._faithful else self._codec.key(key))

    @property
    def mutable(self) -> bool:
        """Whether values may be changed in place, so that each read makes a new object."""
        return self._mutable

    def admit(self, key: Any, value: Any) -> Any:
        """Return a value as it would be read once it is put; raises SerializationError. For operators, of values that cannot be changed in place."""
        return self._codec.admit(key, value)

    def _count(self, kept: Any) -> None:
        """Add what is put to the size of the transaction."""
        if type(kept) is bytes:
            self._size += len(kept)
            return
        value = kept[0]
        if type(value) in TEXTS:
            self._size += len(value)
            return
        if not self._ticks & 127:  # the first one too
            self._typical = average(self._typical, weigh(value))
        self._ticks += 1

    def _late(self, start: int) -> None:
        if not self._segmented or start // self.segment_ms < max(0, self._limit) // self.segment_ms:
            self._expired(1)
