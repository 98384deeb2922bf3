"""The size of pending output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ks_actors.records import LazyBatch, mean_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.log import Outgoing
    from ks_actors.records import Batch

_RECORD_BYTES: Final = 120


@final
class PendingBytes:
    """The approximate memory, in bytes, of records that wait to be written or are being sent.

    Records that are already encoded are counted exactly. The others are counted by number, times
    the size of recent records. A batch that is still in a store takes no memory until it is about
    to be sent.
    """

    def __init__(self) -> None:
        self._records: int = 0
        self._written: int = 0
        self._typical: int = _RECORD_BYTES

    @property
    def bytes(self) -> int:
        """The approximate number of pending bytes."""
        return self._records * self._typical + self._written

    def bytes_of(self, batch: Batch) -> int:
        """Return the approximate number of bytes that a batch takes when it is sent."""
        return _own_bytes(batch) or len(batch) * self._typical

    def written_bytes(self, batch: Batch) -> int:
        """Return the approximate bytes of the keys and values of a batch."""
        if isinstance(batch, LazyBatch) and not batch.own_bytes:
            # Its records are in a store still: they are not read again.
            return len(batch) * max(0, self._typical - _RECORD_BYTES)
        return round(len(batch) * mean_bytes(batch))

    def come(self, batches: Iterable[Outgoing]) -> None:
        """Note new batches; the last batch updates the estimated size of a record."""
        batch: Batch | None = None
        for outgoing in batches:
            batch = outgoing.batch
            self._add(batch, 1)
        if batch is not None and len(batch) and not isinstance(batch, LazyBatch):
            last = _RECORD_BYTES + len(batch.keys[-1] or b"") + len(batch.values[-1] or b"")
            self._typical += (last - self._typical) // 8

    def come_again(self, batches: Iterable[Outgoing]) -> None:
        """Note batches that were removed and are pending again."""
        for outgoing in batches:
            self._add(outgoing.batch, 1)

    def set_out(self, batch: Batch) -> None:
        """Note that a batch is about to be sent: if it is still in a store, it is copied now."""
        if isinstance(batch, LazyBatch) and not batch.own_bytes:
            self._records += len(batch)

    def gone(self, batches: Iterable[Outgoing]) -> None:
        """Note batches that are written or have failed."""
        for outgoing in batches:
            if isinstance(outgoing.batch, LazyBatch) and not outgoing.batch.own_bytes:
                self._records -= len(outgoing.batch)
            else:
                self._add(outgoing.batch, -1)

    def replaced(self, batches: Iterable[Outgoing], joined: Iterable[Outgoing]) -> None:
        """Note that batches that set out are joined, or lose records."""
        self.gone(batches)
        self.come_again(joined)
        for outgoing in joined:
            self.set_out(outgoing.batch)

    def change(self, records: int) -> None:
        """Note a change in the number of records."""
        self._records += records

    def clear(self) -> None:
        """Note that nothing is pending any more."""
        self._records = self._written = 0

    def _add(self, batch: Batch, sign: int) -> None:
        if isinstance(batch, LazyBatch):
            self._written += sign * batch.own_bytes
        else:
            self._records += sign * len(batch)


def _own_bytes(batch: Batch) -> int:
    return batch.own_bytes if isinstance(batch, LazyBatch) else 0
