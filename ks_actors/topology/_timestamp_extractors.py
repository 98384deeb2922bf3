"""Timestamp extractors: the time of a record, and the handling of invalid timestamps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ks_actors._errors import TimestampInvalid
from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from ks_actors.topology import InputRecord

_log = component_log(__name__)


class RecordTimestamp:
    """Take the record's timestamp in the log; `invalid` handles a negative timestamp.

    The runtime may skip the calls for records with valid timestamps: extractors of this kind only
    matter for invalid timestamps.
    """

    def __call__(self, record: InputRecord, partition_time: int) -> int:
        """Return the time of `record` in ms."""
        return record.timestamp if record.timestamp >= 0 else self.invalid(record, partition_time)

    def invalid(self, record: InputRecord, partition_time: int) -> int:
        """Return the time for a record with a negative timestamp; a negative result drops it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class FailOnInvalidTimestamp(RecordTimestamp):
    """Raise TimestampInvalid for a negative timestamp: processing ends. The default."""

    def invalid(self, record: InputRecord, partition_time: int) -> int:  # noqa: ARG002 - signature
        """Raise TimestampInvalid."""
        raise TimestampInvalid(
            f"the timestamp of the record is {record.timestamp}; use another timestamp extractor "
            "to process such records",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )


class LogAndSkipOnInvalidTimestamp(RecordTimestamp):
    """Drop records with a negative timestamp, with a warning."""

    def invalid(self, record: InputRecord, partition_time: int) -> int:  # noqa: ARG002 - signature
        """Return the negative timestamp."""
        _log.warning(
            "%s-%d offset %d is skipped: its timestamp is %d",
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
        )
        return record.timestamp


class UsePartitionTimeOnInvalidTimestamp(RecordTimestamp):
    """Replace a negative timestamp by the highest time seen in the partition.

    Raises TimestampInvalid when there is none yet.
    """

    def invalid(self, record: InputRecord, partition_time: int) -> int:
        """Return the partition's time."""
        if partition_time < 0:
            raise TimestampInvalid(
                f"the timestamp of the record is {record.timestamp}, and the partition has no time "
                "yet",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )
        return partition_time


class WallclockTimestampExtractor:
    """Take the system time at which a record is processed, regardless of its timestamp."""

    def __call__(self, record: InputRecord, partition_time: int) -> int:  # noqa: ARG002 - signature
        """Return the system time in ms."""
        return time.time_ns() // 1_000_000

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
