"""What the smoke test needs before its time runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.judges.smoke.jars import driver_command, missing_tests
from tests.kafka.broker import missing_tools

if TYPE_CHECKING:
    import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Kafka and its driver, if there is a run to come."""
    runs = any("kafkas_own_driver" in item.name for item in session.items)
    if runs and not session.config.option.collectonly and missing_tools() is None and missing_tests() is None:
        driver_command()
