"""The keys of a table in byte order."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Pair = tuple[bytes, Any]
"""A key's bytes and its dict key."""

CHUNK: Final = 1000
"""Keys per chunk: an insertion moves at most half of them."""


class Order:
    """Keys in byte order, in chunks: an insertion takes microseconds even among a million keys.

    New keys are noted in `pending` and inserted on demand, at once or some at a time. Removed keys
    stay in the order.
    """

    __slots__ = ("_chunks", "_encode", "_index_key", "_lows", "_size", "pending", "pending_bytes")

    def __init__(
        self,
        encode: Callable[[Any], bytes],
        index_key: Callable[[bytes], Any],
        keys: Iterable[Any] = (),
    ) -> None:
        self.pending: list[Any] = list(keys)
        self.pending_bytes: list[bytes] = []
        self._encode: Callable[[Any], bytes] = encode
        self._index_key: Callable[[bytes], Any] = index_key
        self._chunks: list[list[Pair]] = []
        self._lows: list[bytes] = []
        self._size: int = 0

    def __len__(self) -> int:
        return self._size

    @property
    def missing(self) -> int:
        """The number of keys not yet inserted."""
        return len(self.pending) + len(self.pending_bytes)

    def place_all(self) -> None:
        """Insert all `pending` keys: one by one if they are few, else by sorting all keys."""
        # Sorting everything is faster than many insertions, each of which moves half a chunk.
        if len(self.pending) < self._size // 8:
            self.place(len(self.pending))
        elif self.pending:
            encode = self._encode
            pairs = dict(pair for chunk in self._chunks for pair in chunk)
            pairs.update((encode(key), key) for key in self.pending)
            self.pending.clear()
            ordered = sorted(pairs.items(), key=_bytes)
            self._chunks = [
                ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK)
            ]
            self._lows = [chunk[0][0] for chunk in self._chunks]
            self._size = len(ordered)

    def place(self, count: int) -> None:
        """Insert up to `count` keys."""
        pending, encode, restored, index_key = (
            self.pending,
            self._encode,
            self.pending_bytes,
            self._index_key,
        )
        while count > 0 and pending:
            key = pending.pop()
            self._add(encode(key), key)
            count -= 1
        while count > 0 and restored:
            encoded = restored.pop()
            self._add(encoded, index_key(encoded))
            count -= 1

    def _add(self, encoded: bytes, key: Any) -> None:
        if not self._chunks:
            self._chunks.append([])
            self._lows.append(encoded)
        at = self._at(encoded)
        chunk = self._chunks[at]
        place = bisect_left(chunk, encoded, key=_bytes)
        if place < len(chunk) and chunk[place][0] == encoded:
            return
        chunk.insert(place, (encoded, key))
        self._size += 1
        # The lows must be the first keys of their chunks: `_at` searches only the lows.
        if place == 0:
            self._lows[at] = encoded
        if len(chunk) > 2 * CHUNK:
            self._chunks[at : at + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            insort(self._lows, chunk[CHUNK][0])

    def within(self, low: bytes, high: bytes) -> list[Pair]:
        """Return the inserted keys from `low` to before `high` (empty: the end)."""
        found: list[Pair] = []
        for at in range(self._at(low), len(self._chunks)):
            if high and self._lows[at] >= high:
                break
            found += self._part(self._chunks[at], low, high)
        return found

    def walk(self, low: bytes, high: bytes, *, reverse: bool) -> Iterator[Pair]:
        """Iterate over the keys of `within`, forward or in reverse.

        Keys that are inserted meanwhile may or may not be included.
        """
        while not high or low < high:
            # Find the chunk each time: insertions may have split it meanwhile.
            at = self._at(high or None, before=True) if reverse else self._at(low)
            step = -1 if reverse else 1
            part: list[Pair] = []
            while not part and 0 <= at < len(self._chunks):
                part = self._part(self._chunks[at], low, high)
                at += step
            if not part:
                return
            if reverse:
                yield from reversed(part)
                high = part[0][0]
                if high == b"":
                    return
            else:
                yield from part
                # Continue at the next possible key: this includes keys inserted meanwhile, and
                # repeats none.
                low = part[-1][0] + b"\0"

    def about(self, low: bytes, high: bytes) -> int:
        """Return the estimated number of keys from `low` to before `high`, rather too high."""
        return (self._at(high or None, before=True) - self._at(low) + 1) * 2 * CHUNK

    def _at(self, key: bytes | None, *, before: bool = False) -> int:
        """Return the chunk of the first key from `key` on; with `before`, of the last key below it.

        A `key` of None is the end of all keys.
        """
        if key is None:
            return len(self._chunks) - 1
        return max(0, bisect_left(self._lows, key if before else key + b"\0") - 1)

    def _part(self, chunk: list[Pair], low: bytes, high: bytes) -> list[Pair]:
        start = bisect_left(chunk, low, key=_bytes)
        stop = bisect_left(chunk, high, key=_bytes) if high and chunk[-1][0] >= high else len(chunk)
        return chunk[start:stop]


def _bytes(pair: Pair) -> bytes:
    return pair[0]
