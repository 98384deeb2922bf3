"""What all tests with a real Kafka share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kafka.broker import jars, kafka_broker, missing_tools, own_broker, secure_broker

if TYPE_CHECKING:
    import pytest

__all__ = ["kafka_broker", "own_broker", "secure_broker"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch what is needed before the first test's time runs."""
    needed = any("broker" in name for item in session.items for name in getattr(item, "fixturenames", ()))
    if needed and not session.config.option.collectonly and missing_tools() is None:
        jars()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud what was not tested."""
    missing = missing_tools()
    if missing is not None:
        terminalreporter.write_line(f"KAFKA WAS NOT TESTED: {missing}", red=True, bold=True)
