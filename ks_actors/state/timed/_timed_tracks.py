"""Window entries in memory: decoding, size estimates, and late puts."""

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
    """The base of window and session stores."""

    def __init__(
        self,
        codec: Codec,
        engine: Engine | None,
        prefix: bytes,
        record_time: Callable[[], int],
        spec: StoreSpec,
        expired: Callable[[int], None],
    ) -> None:
        super().__init__(codec, engine, prefix, record_time, spec)
        self._expired: Callable[[int], None] = expired
        self._ticks: int = 0
        self._faithful: bool = codec.faithful
        self._simple: bool = not codec.mutable
        self._sized: bool = not codec.fixed
        # whole numbers from `_least` up to below this are read as they are
        self.bound: int = codec.bound
        self._least: int = -codec.bound
        self._text: type | None = codec.text_type
        self._sized_keys: bool = codec.sized_keys

    def _entry_of(self, index: Any, slot: int, value: Any) -> Entry | None:
        """Return the entry of a track's value, a new object when it is mutable."""
        if value is None or type(value) is tuple:
            return value
        entry = self._codec.entry(value)
        if not self._mutable:
            self._put_back((index, slot), entry)
        return entry

    def _as_kept(self, key: Any, entry: Entry) -> Any:
        """Return an entry in the form in which the store keeps it.

        Immutable values are kept as their serde reads them, mutable ones as bytes. Raises
        SerializationError.
        """
        codec, value = self._codec, entry[0]
        if self._mutable:
            return codec.written(key, entry)
        if type(value) is str and self._text is str and value.isascii():
            return entry
        admitted = codec.admit(key, value)
        return entry if admitted is value else (admitted, entry[1])

    def _uncount(self, old: Any) -> None:
        """Subtract an overwritten value from the size of the transaction."""
        if type(old) is bytes:
            self._size -= len(old)
        elif old is not None and type(old[0]) in TEXTS:
            self._size -= len(old[0])

    def check_key(self, key: Any) -> None:
        """Raise SerializationError when a key cannot be written. For operators."""
        self._codec.check_key(key if self._faithful else self._codec.key(key))

    @property
    def mutable(self) -> bool:
        """Whether values are mutable, so that each read makes a new object."""
        return self._mutable

    def admit(self, key: Any, value: Any) -> Any:
        """Return an immutable value as a read after the put returns it.

        For operators. Raises SerializationError.
        """
        return self._codec.admit(key, value)

    def _count(self, kept: Any) -> None:
        """Add a put to the size of the transaction."""
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
