"""Add offsets to a transaction ahead of its commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogClosed, LogError
from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from ks_actors.log.kafka.producer import Identity
    from ks_actors.log.kafka.transactions._transaction_coordinator import TransactionCoordinator
    from ks_actors.records import TopicPartition

_log = component_log(__name__)


@final
class EarlyOffsets:
    """Add a group's offsets to a transaction while its records are written.

    Then the commit waits for fewer requests. An empty group disables this. Failures are only
    logged: the commit repeats the request, and raises the error. Call `wait` before the end of a
    transaction: a request after the end would begin a new transaction.
    """

    def __init__(self, coordination: TransactionCoordinator, group: str) -> None:
        self._coordination: TransactionCoordinator = coordination
        self._group: str = group
        self._asking: asyncio.Task[None] | None = None

    def begin(self, identity: Identity, groups: dict[str, set[TopicPartition]]) -> None:
        """Send the request, once per transaction; add the group to `groups`, its groups so far."""
        if self._group and self._group not in groups and self._asking is None:
            self._asking = asyncio.create_task(
                self._ask(identity, groups), name=f"offsets to {self._coordination.name}"
            )

    async def _ask(self, identity: Identity, groups: dict[str, set[TopicPartition]]) -> None:
        try:
            await self._coordination.add_offsets(identity, self._group)
            groups.setdefault(self._group, set())
        except LogError as error:
            _log.debug(
                "could not add %s to the transaction of %s before its commit: %s",
                self._group,
                self._coordination.name,
                error,
            )

    async def wait(self) -> None:
        """Wait until no request is under way.

        After a cancellation you may call `wait` again. Raises LogClosed after `end`.
        """
        asking = self._asking
        if asking is not None:
            await asyncio.wait([asking])
            self._asking = None
            if asking.cancelled():
                # `end` has cancelled the request; this call was not cancelled.
                raise LogClosed(
                    f"the producer of {self._coordination.name} was closed while it added "
                    f"{self._group} to its transaction"
                )
            asking.result()

    async def end(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
            self._asking = None
