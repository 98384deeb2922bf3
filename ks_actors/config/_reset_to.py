"""Targets for resetting a group's offsets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from ks_actors.records import TopicPartition


class ShiftBy(msgspec.Struct, frozen=True):
    """A shift from the committed offset, backward if negative; without a commit, from the end."""

    offsets: int


ResetTo: TypeAlias = (
    Literal["earliest", "latest"]
    | int
    | ShiftBy
    | datetime
    | timedelta
    | Mapping[TopicPartition, int]
)
"""The new start of a group.

The first or the last offset, an offset, a shift, a time (UTC unless it has a zone), a duration
before now, or an offset by partition.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_target(to: object) -> bool:
    """Return whether the value is a valid target."""
    if isinstance(to, str):
        return to in {"earliest", "latest"}
    return isinstance(to, int | ShiftBy | datetime | timedelta | Mapping) and not isinstance(
        to, bool
    )


def milliseconds(to: datetime | timedelta, now_ms: int) -> int:
    """Return the target's time in ms since the epoch, rounded down."""
    if isinstance(to, timedelta):
        return now_ms - to // timedelta(milliseconds=1)
    time = to if to.tzinfo is not None else to.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def clamped(partition: TopicPartition, offset: int, begin: int, end: int) -> tuple[int, str]:
    """Return the nearest existing offset, as Kafka's own tool does, and a note on the change."""
    if offset < begin:
        return begin, f"{offset} is before the first offset of {partition}"
    if offset > end:
        return end, f"{offset} is after the end of {partition}"
    return offset, ""
