"""Fixtures of all tests with a real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.broker import fresh_broker, jars, kafka_broker, missing_tools, own_broker, secure_broker
from tests.kafka.helpers import connect
from tests.kafka.tampering import Tampering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ks_actors.log.kafka import KafkaLog
    from tests.kafka.broker import Broker

__all__ = ["fresh_broker", "kafka_broker", "own_broker", "secure_broker"]


@pytest.fixture
async def log(kafka_broker: Broker) -> AsyncIterator[KafkaLog]:
    """Connect to the broker of all tests."""
    made = await connect(kafka_broker)
    yield made
    await made.close()


@pytest.fixture
def tampering(monkeypatch: pytest.MonkeyPatch) -> Tampering:
    """Note requests, and change answers."""
    return Tampering(monkeypatch)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch all that is needed before the first test's time runs."""
    needed = any("broker" in name for item in session.items for name in getattr(item, "fixturenames", ()))
    if needed and not session.config.option.collectonly and missing_tools() is None:
        jars()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the untested parts."""
    missing = missing_tools()
    if missing is not None:
        terminalreporter.write_line(f"KAFKA WAS NOT TESTED: {missing}", red=True, bold=True)
