"""The preparations for storms before their time runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kafka.broker import jars, missing_tools

if TYPE_CHECKING:
    import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Kafka, if there is a storm to come."""
    storms = any("storm" in item.name for item in session.items)
    if storms and not session.config.option.collectonly and missing_tools() is None:
        jars()
