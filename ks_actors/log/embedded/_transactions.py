"""Transactional ids, and the transaction that each of them may have open."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from ks_actors.log.embedded._partition import Partition


@final
class Transaction:
    """What goes on under one transactional id. It is open while it has partitions.

    `doom` says why the transaction can only be aborted; until the producer has taken note by commit
    or abort, it refuses to send, as records that were sent after it would be in a transaction
    without those from before. All producers of an id share this object: whose epoch is not `epoch`
    is fenced.
    """

    __slots__ = ("doom", "epoch", "name", "partitions", "pid", "timeout_ms", "timer")

    def __init__(self, name: str, pid: int, epoch: int, timeout_ms: int) -> None:
        self.name: str = name
        self.pid: int = pid
        self.epoch: int = epoch
        self.timeout_ms: int = timeout_ms
        self.partitions: dict[Partition, None] = {}
        self.doom: str | None = None
        self.timer: asyncio.TimerHandle | None = None

    def leave_out(self, partitions: Iterable[Partition]) -> None:
        """Take partitions out that are no more."""
        for partition in partitions:
            self.partitions.pop(partition, None)
        if not self.partitions:
            self.stop_timer()

    def clear(self) -> None:
        """Note that the transaction has ended."""
        self.partitions.clear()
        self.stop_timer()

    def stop_timer(self) -> None:
        """Wait for the timeout no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
