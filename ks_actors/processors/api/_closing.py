"""Held-back results, and errors in reading them: neither belongs to the record at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import ProcessingFailed, SerializationError
from ks_actors.records import Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ks_actors.processors.api._operator import NodeContext
    from ks_actors.processors.api._record_origins import Origins
    from ks_actors.processors.api._stores import BufferForOperators, WindowsForOperators
    from ks_actors.records import Headers, Window
    from ks_actors.state.core import Entry


def _itself(key: Any) -> Any:
    return key


def forward_closed(
    context: NodeContext,
    origins: Origins,
    store: WindowsForOperators,
    starts: tuple[int, int],
    closed: Callable[[int], Window | None],
    headers: Headers,
) -> None:
    """Forward the windows of a store that begin in a range of time, both ends included.

    `closed` returns the window of a start, None if it is still open.

    Windows are forwarded by start and key, with the headers of the current record, but without an
    origin: results come from no single record. If the serde cannot read an aggregate, the
    processing handler decides about the aggregate, and the others are forwarded.
    """
    entries: Sequence[tuple[Any, int, Entry | SerializationError]]
    try:
        entries = store.fetch_all_entries(*starts)
    except SerializationError:
        entries = store.closed_entries(*starts)
    here = origins.here()
    at, window = -1, None
    try:
        for key, start, entry in entries:
            if start != at:
                at, window = start, closed(start)
            if window is None:
                continue
            windowed = Windowed(key, window)
            if isinstance(entry, SerializationError):
                origins.go_to(None, start, ())
                context.failed(entry, windowed, None, start, headers)
                continue
            value, timestamp = entry
            origins.go_to(None, timestamp, ())
            context.forward(windowed, (value, None), timestamp, headers)
    finally:
        origins.back(here)


def buffered_records(
    context: NodeContext,
    origins: Origins,
    store: BufferForOperators,
    key_of: Callable[[Any], Any] = _itself,
) -> Iterator[tuple[Any, Any]]:
    """Iterate over the records that a node holds back in a store of its own, by key.

    Ask the processing handler about an unreadable record, under the key that `key_of` returns, then
    delete it. Raises ProcessingFailed when the iteration fails, as for a key that cannot be read.
    """
    try:
        for key, value in store.all_there_is():
            if isinstance(value, SerializationError):
                unreadable(context, origins, value, key_of(key), context.stream_time())
                store.put(key, None)
            else:
                yield key, value
    except SerializationError as error:
        raise ProcessingFailed(
            f"buffered records cannot be read, so none of them can be forwarded: {error}",
            task=context.task_id,
            node=context.node,
        ) from error


def unreadable(
    context: NodeContext, origins: Origins, error: SerializationError, key: Any, timestamp: int
) -> None:
    """Ask the processing handler about a held-back record that its serde cannot read.

    The error names no source record.
    """
    here = origins.here()
    origins.go_to(None, timestamp, ())
    try:
        context.failed(error, key, None, timestamp, ())
    finally:
        origins.back(here)
