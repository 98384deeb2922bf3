"""Retries while a coordinator does not know a topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from ks_actors.log.kafka.wire import UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.log.kafka.client._options import KafkaOptions


@final
class UnknownTopics:
    """Decide whether to retry UNKNOWN_TOPIC_OR_PARTITION: for `missing_topic_wait_ms` in one call.

    The metadata of a coordinator may lag behind the metadata of the leaders, whose records were
    read. After that time the topic counts as deleted.
    """

    __slots__ = ("_until", "_wait_s")

    def __init__(self, options: KafkaOptions) -> None:
        self._wait_s: float = options.missing_topic_wait_s
        self._until: float | None = None

    def retried(self, codes: Iterable[int]) -> list[int]:
        """Return the codes to retry; UNKNOWN_TOPIC_OR_PARTITION is retried only for a while."""
        found = list(codes)
        if UNKNOWN_TOPIC_OR_PARTITION not in found:
            return found
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._wait_s
        if now < self._until:
            return found
        return [code for code in found if code != UNKNOWN_TOPIC_OR_PARTITION]
