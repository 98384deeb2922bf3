"""A log, and its topics as a program has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ks_actors import Publisher, Topic
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog


@dataclass(frozen=True)
class Order:
    """A value."""

    cents: int


ORDERS = Topic("orders", str, Order)
TEXTS = Topic("texts", str, str)


@asynccontextmanager
async def publishing(**settings: Any) -> AsyncIterator[tuple[Publisher, EmbeddedLog]]:
    """Yield a Publisher of a log, with a topic of four partitions and one of one."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("orders", 4), NewTopic("texts", 1)])
        # Servers, as some settings are for Kafka only; the log replaces them.
        async with Publisher({"bootstrap_servers": "nowhere:1", **settings}, log=log) as publisher:
            yield publisher, log
