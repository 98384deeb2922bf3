"""Warn of records that have not been written for a long time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from ks_actors.lifecycle import component_log
from ks_actors.log.kafka.producer._partition_queue import SLOW_SECONDS

if TYPE_CHECKING:
    from ks_actors.records import TopicPartition

_log = component_log(__name__)
# The seconds in which to gather partitions: an outage concerns all partitions of a broker, but
# their retries come one after the other.
_GATHER_SECONDS: Final = 1.0
_NAMED: Final = 3


@final
class SlowRecords:
    """Warn of partitions with slow records: one line for all partitions of one second."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def note(self, partition: TopicPartition, reason: str) -> None:
        """Warn soon of a partition, with the reason why its records are not written."""
        self._partitions[partition] = reason
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_GATHER_SECONDS, self.tell)

    def tell(self) -> None:
        """Warn now of all noted partitions."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        partitions, self._partitions = self._partitions, {}
        if not partitions:
            return
        several = len(partitions) > _NAMED
        names = ", ".join(map(str, sorted(partitions)[:_NAMED]))
        _log.warning(
            "records for %s are not written yet after %g s; the producer retries: %s",
            f"{len(partitions)} partitions, such as {names}," if several else names,
            SLOW_SECONDS,
            "; ".join([*dict.fromkeys(partitions.values())][:_NAMED]),
        )
