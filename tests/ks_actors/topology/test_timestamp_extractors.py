"""Timestamp extractors."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from ks_actors._errors import TimestampInvalid
from ks_actors.topology import InputRecord
from ks_actors.topology._timestamp_extractors import (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    RecordTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)


def record(timestamp: int) -> InputRecord:
    return InputRecord("key", "value", timestamp, (), "topic", 3, 9)


@pytest.mark.parametrize("extractor", [FailOnInvalidTimestamp(), LogAndSkipOnInvalidTimestamp(), UsePartitionTimeOnInvalidTimestamp()], ids=repr)
@pytest.mark.parametrize("timestamp", [0, 5])
def test_a_valid_timestamp_is_taken(extractor: Any, timestamp: int) -> None:
    """For any time of the partition."""
    assert isinstance(extractor, RecordTimestamp)
    assert extractor(record(timestamp), 100) == timestamp


def test_an_invalid_timestamp_fails_by_default() -> None:
    """The error says which record."""
    with pytest.raises(TimestampInvalid, match=r"the record is -1; use another .* \(topic topic, partition 3, offset 9\)"):
        FailOnInvalidTimestamp()(record(-1), 100)


def test_a_record_without_a_time_can_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning."""
    assert LogAndSkipOnInvalidTimestamp()(record(-1), 100) == -1
    assert [(entry.levelno, entry.getMessage()) for entry in caplog.records] == [
        (logging.WARNING, "topic-3 offset 9 is skipped: its timestamp is -1")
    ]


def test_a_record_without_a_time_can_have_its_partitions() -> None:
    """When there is one."""
    assert UsePartitionTimeOnInvalidTimestamp()(record(-1), 100) == 100
    with pytest.raises(TimestampInvalid, match=r"partition has no time yet \(topic topic, partition 3, offset 9\)"):
        UsePartitionTimeOnInvalidTimestamp()(record(-1), -1)


def test_the_system_time_can_be_taken() -> None:
    """In ms."""
    before = int(time.time() * 1000)
    assert before <= WallclockTimestampExtractor()(record(-1), -1) <= time.time() * 1000
    assert repr(WallclockTimestampExtractor()) == "WallclockTimestampExtractor()"


def test_a_custom_extractor_decides_about_invalid_timestamps() -> None:
    """The extractor may replace them or raise an error."""

    class Zero(RecordTimestamp):
        def invalid(self, record: InputRecord, partition_time: int) -> int:
            return 0

    assert Zero()(record(-5), 3) == 0
    with pytest.raises(NotImplementedError):
        RecordTimestamp()(record(-5), 3)
