"""Aborting a failed transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ks_actors._errors import Fenced, LogClosed, LogError
from ks_actors.lifecycle import NoAnswer, component_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.log import TransactionalProducer

_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 1.0
_TELL_AGAIN_S: Final = 1.0
_log = component_log(__name__)


async def aborted(
    producer: TransactionalProducer,
    renew: Callable[[], Awaitable[TransactionalProducer]],
    time: Callable[[], float],
    deadline: float,
) -> TransactionalProducer:
    """Abort the transaction, with retries until `deadline` (seconds of `time`).

    Return the producer to continue with. Retries are needed because the next output must not get
    into the failed transaction. Attempts are 0.1 to 1 s apart; warnings come at growing intervals.
    Raises the log's error of the last attempt.
    """
    pause, began = _RETRY_S, time()
    tell_at = began
    while True:
        try:
            await producer.abort()
        except Fenced:
            # Another process has used the transactional id meanwhile. Taking the id back also ends
            # the transaction.
            await producer.close()
            return await renew()
        except (LogClosed, NoAnswer):
            raise  # final, or the log did not answer within the whole timeout
        except LogError as error:
            if (now := time()) >= deadline:
                raise
            if now >= tell_at:
                # Double the interval each time, so that a long outage does not fill the log.
                tell_at = now + max(_TELL_AGAIN_S, now - began)
                _log.warning(
                    "could not abort a transaction; retrying for up to %.0f s more: %s",
                    deadline - now,
                    error,
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY_S)
        else:
            return producer
