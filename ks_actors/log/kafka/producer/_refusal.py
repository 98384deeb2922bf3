"""The error for a batch that a leader refuses, with the records that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors._errors import InvalidRecord, LogError, RecordTooLarge
from ks_actors.log.kafka.wire import error_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.log.kafka.producer._partition_queue import InFlightBatch
    from ks_actors.records import TopicPartition

# The most reasons of a broker in an error's text.
_REASONS: Final = 3


def refusal(
    partition: TopicPartition,
    pending: InFlightBatch,
    code: int,
    records: Sequence[tuple[int, str | None]],
    message: str | None,
) -> LogError:
    """Return the error for a refused batch, with the records that the broker names (KIP-467).

    If it names none, all records of the batch are meant, but none of other batches.
    """
    # Hundreds of records may have the same reason.
    reasons = dict.fromkeys(
        text for text in (message, *(reason for _, reason in records)) if text is not None
    )
    detail = "; ".join(tuple(reasons)[:_REASONS]) or None
    error = error_of(code, f"records for {partition} were refused", detail)
    if isinstance(error, InvalidRecord | RecordTooLarge):
        count = pending.batch.count
        named = {index for index, _ in records if 0 <= index < count} or range(count)
        return type(error)(str(error), [pending.first + index for index in named])
    return error
