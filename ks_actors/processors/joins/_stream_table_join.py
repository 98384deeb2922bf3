"""A stream joined with the current rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.api import Bound, refuse_awaitable
from ks_actors.processors.stateless import Inline, failed, forward_rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext, Process, ProcessBatch
    from ks_actors.processors.tables import AsOf, Get, View
    from ks_actors.records import Batch, Headers


@final
@dataclass(frozen=True, kw_only=True)
class StreamTableJoin(Inline):
    """Replace values by `joiner(value, table value)`; only the stream's records cause output.

    With `keyed` it calls `joiner(key, value, table value)`. If also `mapped`, it calls `joiner(key,
    mapped key, value, table value)`. The row is looked up under the record's key, or under the
    mapped key `select(key, value)`. Records without value, or without a key to look up, are
    dropped; records without a row are left out. A `left` join drops only records without value, and
    joins records without key or row with None. A table with a versioned store is read as of the
    record's time.
    """

    view: View
    joiner: Callable[..., Any]
    keyed: bool = False
    mapped: bool = False
    left: bool = False
    select: Callable[[Any, Any], Any] | None = None

    @property
    def record_context(self) -> bool:
        """Whether reading the rows of the table needs the record context."""
        return self.view.record_context

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        get, close, as_of = self.view.bind(context)
        return Bound(
            self._record_form(context, get, as_of), self._batch_form(context, get, as_of), close
        )

    def _record_form(self, context: NodeContext, get: Get, as_of: AsOf | None) -> Process:
        forward = context.forward
        joiner = self.joiner
        keyed, mapped = self.keyed, self.mapped
        left = self.left
        select = self.select

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            row_key = key
            if select is not None:
                # Before the lookup: an awaitable is no key of a table.
                refuse_awaitable(select, row_key := select(key, value), awaited=False)
            if value is None or (row_key is None and not left):
                context.dropped()
                return
            entry = (
                None
                if row_key is None
                else get(row_key)
                if as_of is None
                else as_of(row_key, timestamp)
            )
            if entry is None and not left:
                return
            row = None if entry is None else entry[0]
            if not keyed:
                joined = joiner(value, row)
            elif mapped:
                joined = joiner(key, row_key, value, row)
            else:
                joined = joiner(key, value, row)
            forward(key, joined, timestamp, headers)

        return process

    def _batch_form(self, context: NodeContext, get: Get, as_of: AsOf | None) -> ProcessBatch:
        forward_batch = context.forward_batch
        joiner = self.joiner
        keyed, mapped = self.keyed, self.mapped
        left = self.left
        select = self.select

        def process_batch(batch: Batch) -> None:
            left_out: list[int] = []
            values: list[Any] = []
            dropped = 0
            for key, value, timestamp in zip(
                batch.keys, batch.values, batch.timestamps, strict=True
            ):
                try:
                    row_key = key
                    if select is not None:
                        refuse_awaitable(select, row_key := select(key, value), awaited=False)
                    if value is None or (row_key is None and not left):
                        dropped += 1
                        left_out.append(len(values) + len(left_out))
                        continue
                    entry = (
                        None
                        if row_key is None
                        else get(row_key)
                        if as_of is None
                        else as_of(row_key, timestamp)
                    )
                    if entry is not None:
                        row = entry[0]
                    elif left:
                        row = None
                    else:
                        left_out.append(len(values) + len(left_out))
                        continue
                    if not keyed:
                        joined = joiner(value, row)
                    elif mapped:
                        joined = joiner(key, row_key, value, row)
                    else:
                        joined = joiner(key, value, row)
                    values.append(joined)
                except BaseException as error:  # noqa: BLE001 - the handler decides
                    index = len(values) + len(left_out)
                    failed(context, batch, index, error)
                    left_out.append(index)
            if dropped:
                context.dropped(dropped)
            forward_rest(forward_batch, batch, left_out, values)

        return process_batch
