"""kill -9 of the process that hands a backfill's snapshot over to an app on a real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.ks_actors.batch.backfill.killed_history import UNTIL, handed_over
from tests.ks_actors.batch.driver import Order, Point
from tests.ks_actors.log.helpers import group_name


@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", ["handing over", "handed over", "committed"])
async def test_a_hand_over_that_is_killed_has_happened_or_not(point: Point, kafka_broker: Broker, tmp_path: Path) -> None:
    """With a transaction that stays open, and with a committed one: repeated, history and the live tail give the results of a stream over all."""
    name = group_name()
    log = f"kafka://{kafka_broker.bootstrap}"
    await handed_over(Order(what="backfill", log=log, directory=str(tmp_path), application_id=name, prefix=f"{name}-", until=UNTIL), point)
