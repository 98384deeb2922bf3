"""Shared parts of batch forms: user functions over columns, with the failed record named."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ks_actors.processors.api import is_awaitable, plain, refuse_awaitable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Batch


def failed(context: NodeContext, batch: Batch, index: int, error: BaseException) -> None:
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
    context: NodeContext,
    batch: Batch,
    function: Callable[..., object],
    calls: Iterator[Any],
    decide: Callable[[Any], bool] | None = None,
    *,
    awaited: bool = True,
) -> tuple[list[Any], list[int]]:
    """Return the results of a `map` of the function over the batch, and the failed positions.

    With `decide` the results are those of `decide`. The result at a failed position is None. The
    same iterator continues after a failure: a map object has already taken the failed record's
    arguments. An awaitable result is a failure. Only the first result of a batch is checked, and
    the others only if the first is awaitable.
    """
    out: list[Any] = []
    failed_at: list[int] = []
    length = len(batch)
    if not length:
        return out, failed_at
    first: Any = None
    try:
        first = next(calls)
        refuse_awaitable(function, first, awaited=awaited)
        out.append(first if decide is None else decide(first))
    except BaseException as error:  # noqa: BLE001 - the handler decides on users' errors
        failed(context, batch, 0, error)
        failed_at.append(0)
        out.append(None)
        if is_awaitable(first):
            calls = map(partial(plain, function, awaited=awaited), calls)
    results = calls if decide is None else map(decide, calls)
    while len(out) < length:
        try:
            out.extend(results)
            if len(out) < length:  # A function that raises StopIteration looks like the end.
                raise StopIteration
        except BaseException as error:  # noqa: BLE001 - the handler decides on users' errors
            failed(context, batch, len(out), error)
            failed_at.append(len(out))
            out.append(None)
    return out, failed_at


def without(batch: Batch, failed_at: Sequence[int]) -> Batch:
    """Return the batch without the records at these positions."""
    left_out = set(failed_at)
    return batch.select([index not in left_out for index in range(len(batch))])
