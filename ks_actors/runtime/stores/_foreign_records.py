"""Errors for changelog records that do not belong to their store."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ks_actors._errors import SerializationError, StreamsError

if TYPE_CHECKING:
    from ks_actors.log import Fetched
    from ks_actors.records import TaskId
    from ks_actors.state import TaskStores

_OF_RECORDS: Final = (ValueError, TypeError, struct.error, SerializationError)
_SHOWN: Final = 64


def unrestored(
    task: TaskId, stores: TaskStores, store: str, fetched: Fetched, error: Exception
) -> StreamsError:
    """Return the error for a batch that a store could not restore.

    It names the record, unless the fault lies with the machine.
    """
    topic, partition = fetched.partition
    batch, offset, why = fetched.batch, None, ""
    for index in range(len(batch)) if isinstance(error, _OF_RECORDS) else ():
        try:
            stores.restore(store, batch.slice(index, index + 1), batch.offsets[index] + 1)
        except Exception as one:  # noqa: BLE001 - it is the same as before, by itself
            error, offset, key = one, batch.offsets[index], batch.keys[index]
            shown = key if key is None else key[:_SHOWN]
            why = (
                f"; the record with key {shown!r} does not fit this store: something else has "
                "written to the changelog, or the kind or serdes of the store were changed. Undo "
                "that change, or reset the application to start anew"
            )
            break
    failure = StreamsError(
        f"store {store} cannot be restored: {error}{why}",
        task=task,
        topic=topic,
        partition=partition,
        offset=offset,
    )
    failure.__cause__ = error
    return failure
