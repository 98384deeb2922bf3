"""The operator that calls a function with many records at once."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias, final

from ks_actors._errors import TopologyError
from ks_actors.lifecycle import in_thread
from ks_actors.processors.api import (
    AsyncOptions,
    Bound,
    Record,
    check_promise,
    check_times_and_headers,
    is_async,
    never_alone,
    refuse_awaitable,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ks_actors.processors.api import NodeContext

Rows: TypeAlias = "Iterable[Record[Any, Any]]"


@final
class Batched:
    """Call a function with a list of up to `max_records` records, and forward the returned records.

    Records wait for each other for `max_wait_ms` at most. An `async def` is awaited. A plain
    function is called in a thread, where it may block but cannot be interrupted. If it exceeds its
    timeout, it fails when it returns.
    """

    record_context: bool = False

    def __init__(
        self,
        function: Callable[[list[Record[Any, Any]]], Rows | Awaitable[Rows]],
        max_records: int,
        max_wait_ms: int,
        run: AsyncOptions,
    ) -> None:
        if max_records < 1:
            raise TopologyError(f"max_records is {max_records}: give 1 or more")
        if max_wait_ms < 0:
            raise TopologyError(f"max_wait_ms is {max_wait_ms}: give 0 or more")
        if not callable(function):
            raise TopologyError(
                f"{function!r} cannot be called: give a function of a list of records"
            )
        if not is_async(function):
            check_promise(function, "batch")
        self.call: Callable[[list[Record[Any, Any]]], Awaitable[list[Record[Any, Any]]]] = _called(
            function
        )
        self.max_records: int = max_records
        self.max_wait_ms: int = max_wait_ms
        self.asynchronous: AsyncOptions = run
        self.service: Any = getattr(function, "service", None)

    def with_call(
        self, call: Callable[[list[Record[Any, Any]]], Awaitable[list[Record[Any, Any]]]]
    ) -> Batched:
        """Return a copy that calls this function of a wrapper, and checks its rows."""

        async def checked(records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
            return _checked(call, await call(records))

        other = copy(self)
        other.call = checked
        return other

    def bind(self, context: NodeContext) -> Bound:  # noqa: ARG002 - it only refuses
        """Refuse to process by itself: the runtime has a node of its own for this operator."""
        return Bound(never_alone)


def _called(
    function: Callable[..., Any],
) -> Callable[[list[Record[Any, Any]]], Awaitable[list[Record[Any, Any]]]]:
    # Hide the function from checks for `async def`: in its thread it may block.
    plain = not is_async(function)

    async def call(records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
        rows = await (_in_thread(function, records) if plain else function(records))
        return rows if plain else _checked(function, rows)

    return call


async def _in_thread(
    function: Callable[..., Any], records: list[Record[Any, Any]]
) -> list[Record[Any, Any]]:
    """Call a plain function in a thread, which cannot be interrupted.

    After a cancellation, wait until the call ends, so that no second call overlaps it.
    """
    call = in_thread(_checked_rows, function, records, name="batch")
    cancelled: asyncio.CancelledError | None = None
    while not call.done():
        try:
            await asyncio.wait((call,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return call.result()
    if not call.cancelled():
        call.exception()  # Mark the exception as retrieved; the caller was cancelled.
    raise cancelled


def _checked_rows(
    function: Callable[..., Any], records: list[Record[Any, Any]]
) -> list[Record[Any, Any]]:
    return _checked(function, function(records))


def _checked(function: Callable[..., Any], rows: Any) -> list[Record[Any, Any]]:
    """Return rows as a list, before any of them is forwarded.

    Raises TypeError or ValueError for a row that is no Record, or that no log can take.
    """
    try:
        found = list(rows)
    except TypeError as error:
        refuse_awaitable(function, rows)
        raise TypeError(
            f"{function!r} returned {rows!r}: return records, or an empty list"
        ) from error
    for row in found:
        if type(row) is not Record:
            raise TypeError(
                f"{function!r} returned {row!r} among its rows: return a Record for each"
            )
        check_times_and_headers(row.timestamp, row.headers, f"{function!r} returned")
    return found
