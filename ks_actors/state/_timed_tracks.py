"""Entries of a store whose windows expire: how those in memory are read, how large they are, and what comes too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.state._tracks import Tracks
from ks_actors.state._weight import TEXTS, average, weigh

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.state._codec import Codec, Entry
    from ks_actors.state._engine import Engine
    from ks_actors.topology._stores import StoreSpec


class TimedTracks(Tracks):
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
        self._sized_keys: bool = codec.sized_keys

    def _entry_of(self, index: Any, slot: int, value: Any) -> Entry | None:
        """Return the entry behind a value of a track, a new object when it is mutable and not of this transaction."""
        if type(value) is tuple:
            if not self._mutable or (index, slot) in self._dirty:
                return value
            value = self._raw((index, slot), value)
            self._put_back((index, slot), value)
        elif value is None:
            return None
        entry = self._codec.entry(value)
        if not self._mutable:
            self._put_back((index, slot), entry)
        return entry

    def _count(self, value: Any) -> None:
        if type(value) in TEXTS:
            self._size += len(value)
            return
        if not self._ticks & 127:  # the first one too
            self._typical = average(self._typical, weigh(value))
        self._ticks += 1

    def _late(self, start: int) -> None:
        if not self._segmented or start // self.segment_ms < max(0, self._limit) // self.segment_ms:
            self._expired(1)
