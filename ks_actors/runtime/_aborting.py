"""The end of a transaction that has failed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ks_actors._errors import Fenced, LogClosed, LogError
from ks_actors.runtime._patience import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.log import TransactionalProducer

_RETRY_S: Final = 0.1
_log = logging.getLogger("ks_actors")


async def aborted(
    producer: TransactionalProducer, renew: Callable[[], Awaitable[TransactionalProducer]], time: Callable[[], float], deadline: float
) -> TransactionalProducer:
    """Abort, as often as it takes until `deadline`; return the producer to go on with.

    What is sent next must not get into the transaction that failed. Raises the log's error of the last attempt.
    """
    while True:
        try:
            await producer.abort()
        except Fenced:
            # Somebody else has had the transactional id meanwhile. To have it again is what ends the transaction, too.
            await producer.close()
            return await renew()
        except (LogClosed, NoAnswer):
            raise  # it is over, or there was no answer for all the time that there is
        except LogError as error:
            if time() >= deadline:
                raise
            _log.warning("a transaction could not be aborted, it is tried again: %s", error)
            await asyncio.sleep(_RETRY_S)
        else:
            return producer
