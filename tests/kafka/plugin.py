"""Brokers for the tests of all folders: a plugin, so that a run has one of each.

Tests with a broker of their own are `extended` and `heavy` by their fixture. `make test` runs those of them that are marked `everyday`: a broker
that is killed, frozen, or away, a log that was truncated, logins over TLS, and a cluster that loses a broker.
"""

from __future__ import annotations

import pytest

from tests.kafka.broker import UNTESTED, fresh_broker, jars, kafka_broker, missing_tools, own_broker, secure_broker
from tests.kafka.tampering import Tampering

OWN = {"own_broker", "fresh_broker", "secure_broker", "two_brokers", "cluster"}

__all__ = ["fresh_broker", "kafka_broker", "own_broker", "secure_broker"]


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


def _needs_kafka(item: pytest.Item) -> bool:
    if any("broker" in name for name in getattr(item, "fixturenames", ())):
        return True
    return hasattr(item, "callspec") and "kafka" in item.callspec.params.values()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch all that is needed before the first test's time runs."""
    if any(map(_needs_kafka, session.items)) and not session.config.option.collectonly and missing_tools() is None:
        jars()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the untested parts."""
    missing = missing_tools()
    if missing is not None:
        terminalreporter.write_line(f"KAFKA WAS NOT TESTED: {missing}", red=True, bold=True)
    skipped = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()) if isinstance(report.longrepr, tuple)}
    for reason in sorted(reason for reason in skipped if UNTESTED in reason):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)
