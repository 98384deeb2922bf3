"""Checks that Kafka makes, besides checks of topics and settings.

This log makes the same checks, so that an app that works on this log works on Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors._errors import InvalidRecord, LogError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.log.embedded._topic_settings import TopicSettings
    from ks_actors.records import TopicPartition

# Kafka's default: offset.metadata.max.bytes.
_METADATA: Final = 4_096
# The timestamp of a record without a time; it is never too early.
_NO_TIME: Final = -1


def check_transactional(transactional_id: str, timeout_ms: int) -> None:
    """Raise LogError for an id, or a timeout, that is invalid for transactions."""
    if not transactional_id:
        raise LogError("the transactional id is empty: give it a name")
    if timeout_ms <= 0:
        raise LogError(
            f"transactional id {transactional_id} has a timeout of {timeout_ms} ms: give more than "
            "0"
        )


def check_offsets(group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Raise LogError for metadata that is too long for a committed offset."""
    for partition, committed in offsets.items():
        if len(committed.metadata) > _METADATA:
            raise LogError(
                f"offset {committed.offset} of {partition} cannot be committed for group "
                f"{group_id!r}: its metadata has {len(committed.metadata)} characters, and "
                f"{_METADATA} are allowed (Kafka's offset.metadata.max.bytes)"
            )


def check_times(
    partition: TopicPartition, settings: TopicSettings, timestamps: Sequence[int], now: int
) -> None:
    """Raise InvalidRecord for times that are further from `now` (ms) than the topic allows."""
    least = None if settings.before_max_ms is None else now - settings.before_max_ms
    most = None if settings.after_max_ms is None else now + settings.after_max_ms
    if settings.append_time:
        return
    wrong = [
        index
        for index, time in enumerate(timestamps)
        if time != _NO_TIME
        and ((least is not None and time < least) or (most is not None and time > most))
    ]
    if wrong:
        raise InvalidRecord(
            f"record {wrong[0]} of a batch for {partition} has timestamp {timestamps[wrong[0]]} at "
            f"time {now}: message.timestamp.before.max.ms and message.timestamp.after.max.ms of "
            "the topic do not allow that difference",
            wrong,
        )
