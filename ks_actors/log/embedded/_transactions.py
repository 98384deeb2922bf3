"""Transactional ids, each with its open transaction, if any."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from ks_actors.log.embedded._partition import Partition


@final
class Transaction:
    """The state of one transactional id. Its transaction is open while `partitions` has any.

    `doom` is the reason why the transaction can only be aborted. Until a commit or abort has
    reported the reason, the producer refuses to send: otherwise later records would be in a
    transaction without the earlier records. All producers of an id share this object: a producer
    with another epoch than `epoch` is fenced.
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
        """Remove deleted partitions."""
        for partition in partitions:
            self.partitions.pop(partition, None)
        if not self.partitions:
            self.stop_timer()

    def clear(self) -> None:
        """Mark the transaction as ended."""
        self.partitions.clear()
        self.stop_timer()

    def stop_timer(self) -> None:
        """Stop waiting for the timeout."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
