"""The log of tests with a real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.helpers import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ks_actors.log.kafka import KafkaLog
    from tests.kafka.broker import Broker


@pytest.fixture
async def log(kafka_broker: Broker) -> AsyncIterator[KafkaLog]:
    """Connect to the broker of all tests."""
    made = await connect(kafka_broker)
    yield made
    await made.close()
