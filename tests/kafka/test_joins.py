"""Joins of many partitions on a real Kafka, in brief."""

from __future__ import annotations

from pathlib import Path

import pytest

from ks_actors.log.kafka import KafkaLog
from tests.kafka.broker import Broker
from tests.kafka.joins import Stuck, join


@pytest.mark.parametrize("merge", [False, True])
async def test_a_join_of_many_partitions_does_not_stand_still(kafka_broker: Broker, tmp_path: Path, *, merge: bool) -> None:
    """With the default settings, and more input than is fetched at once, all results are there in time."""
    async with KafkaLog(kafka_broker.bootstrap) as log:
        await join(log, tmp_path, 12, merge=merge, records=100)


async def test_a_join_that_takes_too_long_is_told_of(kafka_broker: Broker, tmp_path: Path) -> None:
    """A run that has not ended in time fails with the number of results, and the reason for which the app waits."""
    async with KafkaLog(kafka_broker.bootstrap) as log:
        with pytest.raises(Stuck, match=r"0 of 20 results after 0 s; the app is"):
            await join(log, tmp_path, 2, merge=False, records=10, patience=0.0)
