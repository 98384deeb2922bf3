"""Skips of tests whose judge is not to be had."""

from __future__ import annotations

import os

import pytest

from tests.judges.drivers.jars import missing_tests
from tests.kafka.broker import require_kafka


def require_drivers() -> None:
    """Skip the test when there can be no Kafka, or no driver of it; on CI that is a failure."""
    require_kafka()
    if (missing := missing_tests()) is not None:
        # On CI a judge that cannot be had is a failure.
        (pytest.fail if os.environ.get("CI") in ("1", "true") else pytest.skip)(f"KAFKA'S DRIVER DID NOT JUDGE: {missing}")
