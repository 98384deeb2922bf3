"""What tests on a real Kafka share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ks_actors.log.kafka import KafkaLog, KafkaOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.kafka.broker import Broker

T = TypeVar("T")
PATIENCE_S = 30


async def soon(awaitable: Awaitable[T]) -> T:
    """Wait, but not for ever; a broker that starts takes its time."""
    return await asyncio.wait_for(awaitable, PATIENCE_S)


async def connect(broker: Broker, options: KafkaOptions | None = None) -> KafkaLog:
    log = KafkaLog(broker.bootstrap, options=options)
    await log.start()
    return log
