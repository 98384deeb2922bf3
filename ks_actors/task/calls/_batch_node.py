"""A user's function of many records in the middle of a task."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast, final

from ks_actors.processors.api import AsyncBound, Record
from ks_actors.processors.stateless import Batched
from ks_actors.task.calls._async_node import AsyncNode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ks_actors.processors.api import AsyncOperator, Operator
    from ks_actors.records import Headers
    from ks_actors.task._node import NodeWork
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.calls._async_node import Call
    from ks_actors.task.calls._in_flight import InFlight
    from ks_actors.task.origins import OriginPage

_AT_ONCE = 1000


@final
class _Lot:
    """Records that go to the function together, and where each came from."""

    __slots__ = ("places", "records")

    def __init__(self) -> None:
        self.records: list[Record[Any, Any]] = []
        self.places: list[tuple[OriginPage | None, int]] = []


@final
class BatchNode:
    """Collect a node's records, give them to its function many at a time, and hand on the rows that come back, in the order of the lots.

    A lot goes when it is full, when its first record has waited for `max_wait_ms`, and when it is flushed, which is what a commit does. While as many
    lots as may are with the function, records are collected for one more, and then there is no room. Calls are those of an `AsyncNode`, with its
    timeouts and retries. A failed call is a failure of each of its records: the processing handler is asked about one after the other. Rows are
    handed on at the time of the last record of their lot, and come from no single source record unless the lot has only one. A `replayable` one has
    no clock: a lot goes when it is full or flushed.
    """

    def __init__(
        self, work: NodeWork, operator: Batched, *, current: RecordContextHolder, wake: Callable[[], None], replayable: bool = False
    ) -> None:
        self.node: str = work.node
        self.in_flight: int = 0
        self._work = work
        self._current = current
        self._max_records: int = operator.max_records
        self._max_wait: float | None = None if replayable else operator.max_wait_ms / 1000
        self._most: int = operator.max_records * (operator.asynchronous.max_in_flight + 1)
        self._lot = _Lot()
        self._late: bool = False
        self._timer: asyncio.TimerHandle | None = None
        self._rows: deque[tuple[_Lot, Iterator[Record[Any, Any]]]] = deque()
        self._calls = AsyncNode(
            cast("NodeWork", _LotWork(self)), cast("AsyncOperator", _LotOperator(self, operator)), operator.asynchronous, current=current, wake=wake
        )

    @property
    def room(self) -> int:
        """How many records may be taken now."""
        return max(0, self._most - self.in_flight)

    @property
    def has_results(self) -> bool:
        """Return whether `emit` has something to do."""
        return bool(self._rows) or self._calls.has_results

    @property
    def settled(self) -> bool:
        """Return whether no lot is with the function, or waits to be; the one that is being collected is not sent yet."""
        return self._calls.settled

    @property
    def oldest(self) -> Call | None:
        """Return the call of the function that has been under way for longest."""
        return self._calls.oldest

    @property
    def leaving(self) -> bool:
        """Return whether calls that were given up are still on their way out of the user's code."""
        return self._calls.leaving

    @property
    def waits(self) -> bool:
        """Return whether `flush` would send something."""
        return bool(self._lot.records) and self._calls.room > 0

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Take a record."""
        lot, current = self._lot, self._current
        lot.records.append(Record(key, value, timestamp, headers))
        lot.places.append((current.page, current.offset))
        self.in_flight += 1
        count = len(lot.records)
        if count >= self._max_records:
            self._send()
        elif count == 1 and self._max_wait is not None:
            self._timer = asyncio.get_running_loop().call_later(self._max_wait, self._time_is_up)

    def emit(self) -> bool:
        """Hand on rows, some at a time; return whether there was anything."""
        any_results = self._calls.emit() or bool(self._rows)
        left = _AT_ONCE
        while self._rows and left > 0:
            lot, rows = self._rows[0]
            left -= self._hand_on(lot, rows, left)
        if self._late:
            self.flush()
        return any_results

    def flush(self) -> None:
        """Wait for no more records: send those that there are, as soon as the function may be called."""
        if self.waits:
            self._send()
        else:
            self._late = bool(self._lot.records)

    def cancel(self) -> None:
        """Give up all records in flight: nothing of them will be handed on."""
        self._calls.cancel()
        self._begin_anew()
        self._rows.clear()
        self.in_flight = 0

    def close(self) -> None:
        """Cancel what is in flight."""
        self.cancel()
        self._calls.close()

    # --- lots -----------------------------------------------------------------------------------------------------------------

    def _time_is_up(self) -> None:
        self._timer = None
        self.flush()

    def _send(self) -> None:
        lot = self._begin_anew()
        current, last = self._current, lot.records[-1]
        was = current.page, current.offset
        current.page, current.offset = lot.places[-1]
        try:
            self._calls.process(None, lot, last.timestamp, last.headers)
        finally:
            current.page, current.offset = was

    def _begin_anew(self) -> _Lot:
        lot, self._lot = self._lot, _Lot()
        self._late = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return lot

    def come_back(self, rows: list[Record[Any, Any]], lot: _Lot) -> None:
        """Take the rows of a lot, to be handed on."""
        self._rows.append((lot, iter(rows)))

    def failed(self, error: Exception, lot: _Lot) -> None:
        """Ask the handler about each record of a lot; raises what ends the task."""
        for index, record in enumerate(lot.records):
            self._go_to(lot, index)
            self._work.failed(error, record.key, record.value, record.timestamp, record.headers)
        self.in_flight -= len(lot.records)

    def _hand_on(self, lot: _Lot, rows: Iterator[Record[Any, Any]], limit: int) -> int:
        """Hand on up to so many rows; return how many."""
        self._go_to(lot, -1)
        if len(lot.records) > 1:  # any of them may be what is wrong with a row
            self._current.nowhere()
        forward = self._work.forward
        for done in range(limit):
            row = next(rows, None)
            if row is None:
                self._rows.popleft()
                self.in_flight -= len(lot.records)
                return done
            try:
                forward(row.key, row.value, row.timestamp, row.headers)
            except Exception as error:  # noqa: BLE001 - whatever a user's code raised
                self._work.failed(error, row.key, row.value, row.timestamp, row.headers)
        return limit

    def _go_to(self, lot: _Lot, index: int) -> None:
        current, record = self._current, lot.records[index]
        current.page, current.offset = lot.places[index]
        current.timestamp, current.headers = record.timestamp, record.headers


def in_flight_node(operator: Operator, work: NodeWork, *, current: RecordContextHolder, wake: Callable[[], None], replayable: bool) -> InFlight:
    """Make the node of an operator whose user code is asynchronous."""
    if isinstance(operator, Batched):
        return BatchNode(work, operator, current=current, wake=wake, replayable=replayable)
    assert operator.asynchronous is not None
    return AsyncNode(work, cast("AsyncOperator", operator), operator.asynchronous, current=current, wake=wake, replayable=replayable)


@final
class _LotWork:
    """What the calls of a batch node have of their task."""

    def __init__(self, owner: BatchNode) -> None:
        self.node: str = owner.node
        self._owner = owner

    def failed(self, error: Exception, _key: Any, lot: _Lot, _timestamp: int, _headers: Headers) -> None:
        """Tell about a lot."""
        self._owner.failed(error, lot)


@final
class _LotOperator:
    """The function of a batch node as one of a lot."""

    def __init__(self, owner: BatchNode, operator: Batched) -> None:
        self._owner = owner
        self._operator = operator

    def bind_async(self, _context: object) -> AsyncBound:
        """Give records, and collect rows."""
        function, owner = self._operator.call, self._owner

        def call(_key: Any, lot: _Lot, _timestamp: int, _headers: Headers) -> Awaitable[list[Record[Any, Any]]]:
            return function(list(lot.records))  # which is the function's own

        def emit(rows: list[Record[Any, Any]], _key: Any, lot: _Lot, _timestamp: int, _headers: Headers) -> None:
            owner.come_back(rows, lot)

        return AsyncBound(call, emit)
