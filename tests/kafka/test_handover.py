"""A backfill of what is in a real Kafka, and the stream that goes on from there, give what a stream over everything gives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ks_actors.log.kafka import KafkaLog
from tests.batch.test_handover import Whole, handed_over

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker

# Windows, joins behind one and two repartition topics, a table that is regrouped.
KINDS = ("hopping", "st_left_repartition", "ss_left_repartition", "table_groupby_aggregate")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", KINDS)
async def test_backfill_and_live_tail_are_a_stream_over_all_records(name: str, own_broker: Broker, tmp_path: Path) -> None:
    """Record for record and key for key, with two partitions, behind repartition topics too."""
    whole = Whole(name, commit_interval_ms=100)
    async with KafkaLog(own_broker.bootstrap) as log:
        found = await handed_over(log, whole.topology, whole.settings, whole.topics, whole.history, whole.tail, tmp_path, one_by_one=True)
    await asyncio.to_thread(whole.check, *found)
