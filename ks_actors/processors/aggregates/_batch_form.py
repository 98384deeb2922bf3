"""The batch form of aggregations in which one record makes any number of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.processors.stateless import failed
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext, ProcessBatch

    Emit = Callable[[Any, Any, int, Any], None]
    Loop = Callable[[Emit, Callable[[], None]], Emit]


def batch_form(context: NodeContext, loop: Loop, *, with_headers: bool = True) -> ProcessBatch:
    """Return a function that forwards the results of a batch as one batch.

    `loop` takes a function `emit`, which emits a result, and a function that counts a drop. `loop`
    returns a function that adds a record. This function takes key, value, timestamp (ms) and the
    record's index, which it passes to `emit`. A result has the offset of its record, and the
    record's headers unless `with_headers` is False.
    """
    columns: tuple[list[Any], ...] = ([], [], [], [])
    add_key, add_change, add_timestamp, add_index = (column.append for column in columns)
    dropped = 0

    def emit(key: Any, change: tuple[Any, Any], timestamp: int, index: int) -> None:
        add_key(key)
        add_change(change)
        add_timestamp(timestamp)
        add_index(index)

    def drop() -> None:
        nonlocal dropped
        dropped += 1

    add = loop(emit, drop)

    def taken() -> list[list[Any]]:
        """Return the columns, and empty them."""
        copies = [column.copy() for column in columns]
        for column in columns:
            column.clear()
        return copies

    def process_batch(batch: Batch) -> None:
        nonlocal dropped
        dropped = 0
        taken()  # drop the results of a batch that ended with an error
        for index, (key, value, timestamp) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ):
            try:
                add(key, value, timestamp, index)
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
        if dropped:
            context.dropped(dropped)
        keys, changes, timestamps, indexes = taken()
        if not keys:
            return
        headers = batch.headers if with_headers else None
        offsets = batch.offsets
        context.forward_batch(
            Batch(
                keys,
                changes,
                timestamps,
                None if headers is None else [headers[index] for index in indexes],
                [offsets[index] for index in indexes] if offsets else (),
            )
        )

    return process_batch
