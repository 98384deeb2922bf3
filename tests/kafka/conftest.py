"""Fixtures of all tests with a real Kafka.

Tests with a broker of their own are `extended` and `heavy` by their fixture. `make test` runs those of them that are marked `everyday`: a broker
that is killed, frozen, or away, a log that was truncated, logins over TLS, and a cluster that loses a broker.
"""

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

OWN = {"own_broker", "fresh_broker", "secure_broker", "two_brokers", "cluster"}

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with a broker of their own."""
    for item in items:
        if OWN & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.heavy("a broker of its own"))
            if item.get_closest_marker("everyday") is None:
                item.add_marker(pytest.mark.extended)


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
