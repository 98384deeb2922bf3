"""Where the offsets of a group are set to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from ks_actors.records import TopicPartition


class ShiftBy(msgspec.Struct, frozen=True):
    """So many offsets further than what is committed, back for a negative number; without a commit, so many from the end."""

    offsets: int


ResetTo: TypeAlias = Literal["earliest", "latest"] | int | ShiftBy | datetime | timedelta | Mapping[TopicPartition, int]
"""Where to begin: the first or the last offset, an offset, a shift, a time (UTC unless it says otherwise), so long ago, or an offset by partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_target(to: object) -> bool:
    """Return whether this says where to begin."""
    if isinstance(to, str):
        return to in {"earliest", "latest"}
    return isinstance(to, int | ShiftBy | datetime | timedelta | Mapping) and not isinstance(to, bool)


def milliseconds(to: datetime | timedelta, now_ms: int) -> int:
    """Return the time that is meant, in ms since the epoch, cut down to whole ones."""
    if isinstance(to, timedelta):
        return now_ms - to // timedelta(milliseconds=1)
    time = to if to.tzinfo is not None else to.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def clamped(partition: TopicPartition, offset: int, begin: int, end: int) -> tuple[int, str]:
    """Return an offset that the log has, and what was changed: as Kafka's own tool does it, the nearest one."""
    if offset < begin:
        return begin, f"{offset} is before the first offset of {partition}"
    if offset > end:
        return end, f"{offset} is behind the end of {partition}"
    return offset, ""
