"""Set up the runs of Kafka's drivers before their time begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.judges.drivers.jars import driver_command, missing_tests
from tests.kafka.broker import missing_tools

if TYPE_CHECKING:
    import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Kafka and its drivers, if there is a run to come."""
    runs = {item.path.parent for item in session.items if "kafkas_own" in item.name}
    if runs and not session.config.option.collectonly and missing_tools() is None and missing_tests() is None:
        for source in sorted(each for folder in runs for each in folder.glob("*.java")):
            driver_command(source)
