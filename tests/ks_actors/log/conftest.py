"""All logs that have to pass the tests of the port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.kafka import KafkaLog
from tests.ks_actors.log.helpers import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ks_actors.log import Log
    from tests.kafka.broker import Broker


@pytest.fixture(params=["memory", "durable", "kafka"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    """A log that is started."""
    made: Log
    if request.param == "kafka":
        # Only now: nobody else needs a broker.
        broker: Broker = request.getfixturevalue("kafka_broker")
        made = KafkaLog(broker.bootstrap)
    else:
        made = EmbeddedLog() if request.param == "memory" else EmbeddedLog(tmp_path / "log")
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def clock() -> Clock:
    """The time of the embedded log."""
    return Clock()


@pytest.fixture(params=["memory", "durable"])
async def embedded(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[EmbeddedLog]:
    """A started embedded log, for tests beyond the port."""
    async with EmbeddedLog(clock=clock) if request.param == "memory" else EmbeddedLog(tmp_path / "log", clock=clock) as made:
        yield made
