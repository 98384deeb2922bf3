"""Offsets that are part of a transaction before its commit."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogClosed, LogError

if TYPE_CHECKING:
    from ks_actors.log.kafka.producer import Identity
    from ks_actors.log.kafka.transactions._transaction_coordinator import TransactionCoordinator
    from ks_actors.records import TopicPartition

_log = logging.getLogger("ks_actors")


@final
class EarlyOffsets:
    """Make a group's offsets part of a transaction while its records are written, so that its commit has less to wait for; of none if it is "".

    What fails is not told: the commit asks again then, and tells. No transaction may be ended before `settle` has returned: a request that comes
    after its end would open another one.
    """

    def __init__(self, coordination: TransactionCoordinator, group: str) -> None:
        self._coordination: TransactionCoordinator = coordination
        self._group: str = group
        self._asking: asyncio.Task[None] | None = None

    def begin(self, identity: Identity, groups: dict[str, set[TopicPartition]]) -> None:
        """Ask, unless that was done for this transaction; `groups` are those that are part of it, and get this one."""
        if self._group and self._group not in groups and self._asking is None:
            self._asking = asyncio.create_task(self._ask(identity, groups), name=f"offsets to {self._coordination.name}")

    async def _ask(self, identity: Identity, groups: dict[str, set[TopicPartition]]) -> None:
        try:
            await self._coordination.add_offsets(identity, self._group)
            groups.setdefault(self._group, set())
        except LogError as error:
            _log.debug("%s is not part of a transaction of %s before its commit: %s", self._group, self._coordination.name, error)

    async def settle(self) -> None:
        """Wait until nothing is asked for any more. When that is cancelled it may be called again. Raises LogClosed after `end`."""
        asking = self._asking
        if asking is not None:
            await asyncio.wait([asking])
            self._asking = None
            if asking.cancelled():
                # By `end`: nobody has cancelled whoever waits here.
                raise LogClosed(f"the producer of {self._coordination.name} was closed while {self._group} was made part of its transaction")
            asking.result()

    async def end(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
            self._asking = None
