"""Transactions of processes that have left the group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ks_actors._errors import LogError
from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.log import TransactionalProducer

# The transactions time out by themselves: do not wait for an unavailable coordinator.
_LONGEST_S: Final = 60.0
# Each producer has connections of its own.
_AT_ONCE: Final = 16
_log = component_log(__name__)


async def end_transactions_of(
    producer: Callable[[str], Awaitable[TransactionalProducer]], processes: frozenset[str]
) -> None:
    """End the transactions of processes that have left the group.

    Otherwise the next owner of their tasks would wait until the transactions time out. `producer`
    returns a producer with the transactional id of a process. A process that is alive, or just
    coming back, finds itself fenced and starts over. Waits for at most a minute for all of them:
    the new tasks of this member begin afterwards, and the group waits for the tasks it gives up.
    """
    deadline = asyncio.get_running_loop().time() + _LONGEST_S
    turns = asyncio.Semaphore(_AT_ONCE)

    async def end(process_id: str) -> None:
        try:
            async with asyncio.timeout_at(deadline), turns:
                await (await producer(process_id)).close()
        except (LogError, TimeoutError) as error:
            _log.warning(
                "could not abort the transaction of process %s, which has left the group; it will "
                "time out: %r",
                process_id,
                error,
            )

    await asyncio.gather(*map(end, sorted(processes)))


async def nothing_to_end(processes: frozenset[str]) -> None:
    """Do nothing: without transactions, there are none to end."""
