"""Shared parts of batch forms: user functions over columns, with the failed record named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Batch


def failed(context: NodeContext, batch: Batch, index: int, error: Exception) -> None:
    """Ask the handler about one record of a batch; return to continue without it.

    Call it from an `except` block.
    """
    headers = batch.headers
    offsets = batch.offsets
    context.failed(
        error,
        batch.keys[index],
        batch.values[index],
        batch.timestamps[index],
        () if headers is None else headers[index],
        offsets[index] if offsets else None,
    )


def collect(
    context: NodeContext, batch: Batch, results: Iterator[Any]
) -> tuple[list[Any], list[int]]:
    """Return the results of a `map` over the whole batch, and the positions of failed records.

    The result at a failed position is None. The same iterator continues after a failure: a map
    object has already taken the failed record's arguments.
    """
    out: list[Any] = []
    failed_at: list[int] = []
    length = len(batch)
    while True:
        try:
            out.extend(results)
            if len(out) < length:  # A function that raises StopIteration looks like the end.
                raise StopIteration
        except Exception as error:  # noqa: BLE001 - the handler decides on users' errors
            failed(context, batch, len(out), error)
            failed_at.append(len(out))
            out.append(None)
        if len(out) >= length:
            return out, failed_at


def without(batch: Batch, failed_at: Sequence[int]) -> Batch:
    """Return the batch without the records at these positions."""
    left_out = set(failed_at)
    return batch.select([index not in left_out for index in range(len(batch))])
