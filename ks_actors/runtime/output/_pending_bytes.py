"""The size of pending output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ks_actors.records import Batch, LazyBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ks_actors.log import Outgoing

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

    def come(self, batches: Sequence[Outgoing]) -> None:
        """Note new batches; the last batch updates the estimated size of a record."""
        self.come_again(batches)
        if batches and type(batch := batches[-1].batch) is Batch and batch.timestamps:
            last = _RECORD_BYTES + len(batch.keys[-1] or b"") + len(batch.values[-1] or b"")
            self._typical += (last - self._typical) // 8

    def come_again(self, batches: Iterable[Outgoing]) -> None:
        """Note batches that were removed and are pending again."""
        for outgoing in batches:
            batch = outgoing.batch
            if isinstance(batch, LazyBatch):
                self._written += batch.own_bytes
            else:
                self._records += len(batch.timestamps)

    def set_out(self, batch: Batch) -> int:
        """Note that a batch is about to be sent: if it is still in a store, it is copied now.

        Return the approximate number of bytes that it takes.
        """
        if not isinstance(batch, LazyBatch):
            return len(batch.timestamps) * self._typical
        if own := batch.own_bytes:
            return own
        self._records += len(batch)
        return len(batch) * self._typical

    def gone(self, batches: Iterable[Outgoing]) -> None:
        """Note batches that are written or have failed."""
        for outgoing in batches:
            batch = outgoing.batch
            if not isinstance(batch, LazyBatch):
                self._records -= len(batch.timestamps)
            elif own := batch.own_bytes:
                self._written -= own
            else:
                self._records -= len(batch)

    def change(self, records: int) -> None:
        """Note a change in the number of records."""
        self._records += records

    def clear(self) -> None:
        """Note that nothing is pending any more."""
        self._records = self._written = 0
