"""Checks of the arguments that processors give to their context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import TopologyError
from ks_actors.lifecycle import check_instant, check_span
from ks_actors.processors.api._argument_checks import check_function
from ks_actors.processors.api._async_options import is_async
from ks_actors.processors.api._operator import PunctuationType
from ks_actors.processors.api._plain_results import refuse_awaitable
from ks_actors.processors.api._record import FixedKeyRecord, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api._operator import NodeContext

LATEST_MS: Final = (1 << 63) - 1
"""The latest timestamp that a record can have: logs keep 8 bytes."""


def check_forwarded(record: Any, record_type: type[Any], node: str) -> None:
    """Raise TypeError or ValueError unless a log can take the record that a node forwards.

    Otherwise the whole batch would fail in the log, and no error would name the record.
    """
    if not isinstance(record, Record | FixedKeyRecord):
        raise TypeError(f"node {node} forwards {record!r}: give a {record_type.__name__}")
    if record_type is FixedKeyRecord and not isinstance(record, FixedKeyRecord):
        raise TypeError(
            f"node {node} keeps keys and forwards a Record, which may have another one: forward "
            "record.with_value(…), or use a Processor"
        )
    check_times_and_headers(record.timestamp, record.headers, f"node {node} forwards")


def check_times_and_headers(timestamp: Any, headers: Any, who: str) -> None:
    """Raise TypeError or ValueError unless a log can take this timestamp and these headers.

    `who` begins the error: "node n forwards".
    """
    # The common case.
    if type(timestamp) is int and 0 <= timestamp <= LATEST_MS and headers == ():
        return
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise TypeError(f"{who} a record with timestamp {timestamp!r}: give a whole number of ms")
    if not 0 <= timestamp <= LATEST_MS:
        raise ValueError(
            f"{who} a record with timestamp {timestamp}: give 0 or more, in ms, below 2**63"
        )
    _check_headers(headers, who)


def _check_headers(headers: Any, who: str) -> None:
    if not isinstance(headers, tuple | list):
        raise TypeError(
            f"{who} a record with headers {headers!r}: give a tuple of pairs of name and bytes"
        )
    for header in headers:
        match header:
            case (str() as name, bytes() | None):
                try:
                    name.encode()
                except UnicodeEncodeError:
                    raise ValueError(
                        f"{who} a record with a header named {name!r}, which UTF-8 cannot write"
                    ) from None
            case _:
                raise TypeError(
                    f"{who} a record with header {header!r}: give a pair of name and bytes"
                )


def checked_schedule(
    interval_ms: Any,
    punctuation: Any,
    callback: Callable[[int], None],
    start_ms: Any,
    context: NodeContext,
) -> tuple[int, int | None]:
    """Return interval and start of a punctuator in ms.

    Raises TypeError, ValueError or TopologyError if a node cannot be punctuated like this.
    """
    node = context.node
    where = f"of a punctuator of node {node}"
    interval = check_span(interval_ms, f"interval_ms {where}")
    start = None if start_ms is None else check_instant(start_ms, f"start_ms {where}")
    for role, time, least in (("interval_ms", interval, 1), ("start_ms", start, 0)):
        if time is not None and time < least:
            raise ValueError(
                f"node {node} cannot punctuate with {role} {time}: give {least} or more, in ms"
            )
    if not isinstance(punctuation, PunctuationType):
        raise TypeError(
            f"node {node} cannot punctuate by {punctuation!r}: give PunctuationType.STREAM_TIME or "
            "PunctuationType.WALL_CLOCK_TIME"
        )
    if is_async(callback):
        raise TypeError(
            f"punctuator {callback!r} of node {node} is 'async def': use a plain function"
        )
    check_function(callback, 1, role="punctuator", of=f"node {node}")
    # The task of global stores has a negative number; it works only when a record comes.
    if punctuation is PunctuationType.WALL_CLOCK_TIME and context.task_id.subtopology < 0:
        raise TopologyError(
            f"node {node} of a global store cannot punctuate by the wall clock, as it works only "
            "when a record comes: give PunctuationType.STREAM_TIME, or schedule in a processor of "
            "a stream"
        )
    return interval, start


def checked_punctuator(callback: Callable[[int], object]) -> Callable[[int], None]:
    """Return a punctuator that raises TypeError when the callback returns an awaitable."""

    def call(time: int) -> None:
        if (result := callback(time)) is not None:
            refuse_awaitable(callback, result, awaited=False)

    return call
