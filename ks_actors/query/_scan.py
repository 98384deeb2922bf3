"""Scans of many rows, a slice at a time."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import aclosing
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from ks_actors._errors import FailureReason, QueryFailed, StoreClosed
from ks_actors.query._calls import NO_KEY, Call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator

    from ks_actors.query._local import LocalStores, Part
    from ks_actors.state import Rows

T_co = TypeVar("T_co", covariant=True)
SLICE_SECONDS: Final = 0.001
"""The time that a scan works before it yields to the event loop."""
GLANCES: Final = 16
"""The number of rows between two readings of the clock."""
_first: Final = itemgetter(0)


@final
class StoreScan(Generic[T_co]):
    """Rows of a store: `async for row in scan` reads them one by one, `await scan` as a list.

    The rows are those at the moment of the first read: the same moment for all partitions, or a
    moment for each partition where threads run blocking functions. Rows are read a millisecond at a
    time, and other coroutines run in between. A scan can be read once.
    """

    def __init__(self, slices: Callable[[], AsyncGenerator[list[T_co], None]]) -> None:
        self._slices = slices

    async def __aiter__(self) -> AsyncIterator[T_co]:
        slices = self._slices()
        try:
            async for rows in slices:
                for row in rows:
                    yield row
        finally:
            await slices.aclose()

    def __await__(self) -> Generator[Any, None, list[T_co]]:
        return self._all().__await__()

    async def _all(self) -> list[T_co]:
        found: list[T_co] = []
        async for rows in self._slices():
            found += rows
        return found


class Scan:
    """The functions to scan one kind of store.

    `begin` captures a reader's rows at that moment, `show` turns a row into the caller's form.
    """

    def __init__(
        self,
        begin: Callable[[Any], Rows],
        show: Callable[[tuple[Any, Any, Any]], Any],
        *,
        reverse: bool = False,
    ) -> None:
        self.begin: Callable[[Any], Rows] = begin
        self.show: Callable[[tuple[Any, Any, Any]], Any] = show
        self.reverse: bool = reverse

    @property
    def key(self) -> Any:
        """The key whose rows are scanned; NO_KEY for rows of many keys."""
        return self.begin.key if isinstance(self.begin, Call) else NO_KEY


async def slices(
    local: LocalStores, parts: list[Part], scan: Scan, timeout_ms: int
) -> AsyncGenerator[list[Any], None]:
    """Return the rows of some partitions, merged, a slice at a time.

    A slice without rows says that the scan goes on. Raises QueryFailed when one of the partitions
    moves to another instance.
    """
    merged: Iterator[Any]
    if any(part.in_thread for part in parts):
        collected: list[list[Any]] = []
        for part in parts:
            collected.append([])
            async with aclosing(_visits(local, part, scan, timeout_ms, collected[-1])) as visits:
                async for _ in visits:
                    yield []
        merged = heapq.merge(*collected, key=_first, reverse=scan.reverse)
    else:
        for part in parts:
            await _take(local, part, part.reader.prepare())
        begun = [_begin(part, scan) for part in parts]  # at one moment
        for part, rows in zip(parts, begun, strict=True):
            await _take(local, part, rows.steps)
        sources = [_telling(part, rows) for part, rows in zip(parts, begun, strict=True)]
        merged = (
            sources[0]
            if len(sources) == 1
            else heapq.merge(*sources, key=_first, reverse=scan.reverse)
        )
    while True:
        found: list[Any] = []
        more = _some(local, merged, found, scan.show)
        for part in parts:
            part.check()
        yield found
        if not more:
            return
        await asyncio.sleep(0)


def _begin(part: Part, scan: Scan) -> Rows:
    part.check()
    return part.read(scan.begin)


def _telling(part: Part, rows: Rows) -> Iterator[Any]:
    try:
        yield from rows
    except StoreClosed as closed:
        part.check()
        raise QueryFailed(
            str(closed),
            reason=FailureReason.STORE_EXCEPTION,
            store=part.reader.name,
            partition=part.partition,
        ) from closed


async def _take(local: LocalStores, part: Part, steps: Iterator[None]) -> None:
    """Take all steps, and yield to the event loop in between."""
    while part.read(lambda _: _step(local, steps)):
        await asyncio.sleep(0)
        part.check()


def _step(local: LocalStores, steps: Iterator[None]) -> bool:
    """Take steps for the time of a slice; return whether there may be more."""
    began = local.now()
    return any(local.now() - began >= SLICE_SECONDS for _ in steps)


def _some(
    local: LocalStores, rows: Iterator[Any], found: list[Any], show: Callable[[Any], Any]
) -> bool:
    """Take rows for the time of a slice; return whether there may be more."""
    began = local.now()
    for count, row in enumerate(rows, 1):
        found.append(show(row))
        if not count % GLANCES and local.now() - began >= SLICE_SECONDS:
            return True
    return False


async def _visits(
    local: LocalStores, part: Part, scan: Scan, timeout_ms: int, found: list[Any]
) -> AsyncGenerator[None, None]:
    """Collect all rows of a task that threads process; yield after each visit.

    The rows are read between slices of processing, and kept until all rows are read.
    """

    def collect() -> Iterator[None]:
        yield from part.reader.prepare()
        begun = scan.begin(part.reader)
        yield from begun.steps
        for row in _telling(part, begun):
            found.append(row)
            yield

    steps = collect()
    while await part.at(lambda _: _step(local, steps), timeout_ms):
        yield
        await asyncio.sleep(0)
