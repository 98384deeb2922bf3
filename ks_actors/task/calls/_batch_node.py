"""The node of a user's function that takes many records at once."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast, final

from ks_actors.metrics import STILL
from ks_actors.processors.api import AsyncBound, Record
from ks_actors.processors.stateless import Batched
from ks_actors.task.calls._async_node import AsyncNode
from ks_actors.task.calls._call_spans import CallSpans
from ks_actors.task.calls._turnover import Turnover
from ks_actors.tracing import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ks_actors.metrics import Timing, Window
    from ks_actors.processors.api import AsyncOperator, Operator
    from ks_actors.records import Headers
    from ks_actors.task._node import NodeWork
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.calls._in_flight import Call, InFlight
    from ks_actors.task.origins import OriginPage
    from ks_actors.tracing import TaskTracing

_AT_ONCE = 1000


@final
class _Collected:
    """Records that go to the function together, and their origins."""

    __slots__ = ("places", "records", "turn")

    def __init__(self) -> None:
        self.records: list[Record[Any, Any]] = []
        self.places: list[tuple[OriginPage | None, int]] = []
        # The mark of the first record; the other records leave with it.
        self.turn: int = 0


@final
class BatchNode:
    """Collect records, pass them to the node's function in batches, and emit its rows in order.

    A batch is sent when it is full, when its first record has waited for `max_wait_ms`, and when it
    is flushed, as a commit does. While the function has its maximum of batches, the node collects
    one more batch; then there is no room. Calls are made by an `AsyncNode`, with its timeouts and
    retries. A failed call is a failure of each of its records: the processing handler is asked
    about one record after the other.

    Rows are emitted with the time of the last record of their batch. Rows have no single source
    record unless the batch has only one record. A `replayable` node has no clock: a batch is sent
    when it is full or flushed.
    """

    def __init__(
        self,
        work: NodeWork,
        operator: Batched,
        *,
        current: RecordContextHolder,
        wake: Callable[[], None],
        replayable: bool = False,
        window: Window = STILL,
        tracing: TaskTracing = UNTRACED,
    ) -> None:
        self.node: str = work.node
        self.in_flight: int = 0
        self.turnover: Turnover = Turnover()
        self._work = work
        self._current = current
        self._max_records: int = operator.max_records
        self._max_wait: float | None = None if replayable else operator.max_wait_ms / 1000
        # The batches in flight, and the batch that is being collected.
        self._most: int = operator.max_records * (operator.asynchronous.max_in_flight + 1)
        self._collected = _Collected()
        self._late: bool = False
        self._timer: asyncio.TimerHandle | None = None
        self._rows: deque[tuple[_Collected, Iterator[Record[Any, Any]]]] = deque()
        self._calls = AsyncNode(
            cast("NodeWork", _LotWork(self)),
            cast("AsyncOperator", _LotOperator(self, operator)),
            operator.asynchronous,
            current=current,
            wake=wake,
            window=window,
            spans=CallSpans(self.node, tracing, _of_batch) if tracing.on else None,
        )
        self.times: Timing = self._calls.times

    @property
    def running(self) -> int:
        """The number of calls in the user's code."""
        return self._calls.running

    @property
    def failures(self) -> int:
        """The number of calls that have failed, after their retries."""
        return self._calls.failures

    @property
    def retries_at(self) -> float:
        """The end of the last pause before a retry, past or future, on the loop's clock (s)."""
        return self._calls.retries_at

    @property
    def room(self) -> int:
        """The number of records that may be added now."""
        return max(0, self._most - self.in_flight)

    @property
    def has_results(self) -> bool:
        """Whether `emit` has work."""
        return bool(self._rows) or self._calls.has_results

    @property
    def settled(self) -> bool:
        """Whether the function has no batch, and no batch waits for it.

        The batch that is being collected does not count.
        """
        return self._calls.settled

    @property
    def oldest(self) -> Call | None:
        """The function's call that has been running for longest."""
        return self._calls.oldest

    @property
    def leaving(self) -> bool:
        """Whether cancelled calls are still running in the user's code."""
        return self._calls.leaving

    @property
    def waits(self) -> bool:
        """Whether `flush` would send records."""
        return bool(self._collected.records) and self._calls.room > 0

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Add a record to the batch."""
        batch, current = self._collected, self._current
        batch.records.append(Record(key, value, timestamp, headers))
        batch.places.append((current.page, current.offset))
        self.in_flight += 1
        count = len(batch.records)
        if count == 1:
            batch.turn = self.turnover.enter()
        if count >= self._max_records:
            self._send()
        elif count == 1 and self._max_wait is not None:
            self._timer = asyncio.get_running_loop().call_later(self._max_wait, self._time_is_up)

    def emit(self) -> bool:
        """Emit some of the rows; return whether there were any."""
        any_results = self._calls.emit() or bool(self._rows)
        left = _AT_ONCE
        while self._rows and left > 0:
            batch, rows = self._rows[0]
            left -= self._hand_on(batch, rows, left)
        if self._late:
            self.flush()
        return any_results

    def flush(self) -> None:
        """Send the collected records as soon as the function may be called."""
        if self.waits:
            self._send()
        else:
            self._late = bool(self._collected.records)

    def cancel(self) -> None:
        """Cancel all records in flight, and drop their results."""
        self._calls.cancel()
        self._begin_batch()
        self._rows.clear()
        self.turnover.clear()
        self.in_flight = 0

    def close(self) -> None:
        """Cancel calls in flight, and close the user's processor."""
        self.cancel()
        self._calls.close()

    # --- batches ----------------------------------------------------------------------------------

    def _time_is_up(self) -> None:
        self._timer = None
        self.flush()

    def _send(self) -> None:
        batch = self._begin_batch()
        current, last = self._current, batch.records[-1]
        was = current.page, current.offset
        current.page, current.offset = batch.places[-1]
        try:
            self._calls.process(None, batch, last.timestamp, last.headers)
        finally:
            current.page, current.offset = was

    def _begin_batch(self) -> _Collected:
        batch, self._collected = self._collected, _Collected()
        self._late = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return batch

    def come_back(self, rows: list[Record[Any, Any]], batch: _Collected) -> None:
        """Queue the rows of a batch for `emit`."""
        self._rows.append((batch, iter(rows)))

    def failed(self, error: BaseException, batch: _Collected) -> None:
        """Ask the handler about each record of a batch; raises the error that ends the task."""
        for index, record in enumerate(batch.records):
            self._go_to(batch, index)
            self._work.failed(error, record.key, record.value, record.timestamp, record.headers)
        self._leave(batch)

    def retried(self, error: BaseException) -> None:
        """Note that the call of a batch is made again."""
        self._work.retried(error, None)

    def _hand_on(self, batch: _Collected, rows: Iterator[Record[Any, Any]], limit: int) -> int:
        """Emit up to `limit` rows; return how many."""
        self._go_to(batch, -1)
        if len(batch.records) > 1:  # any record of the batch may have caused a row's error
            self._current.nowhere()
        forward = self._work.forward
        for done in range(limit):
            row = next(rows, None)
            if row is None:
                self._rows.popleft()
                self._leave(batch)
                return done
            try:
                forward(row.key, row.value, row.timestamp, row.headers)
            except BaseException as error:  # noqa: BLE001 - whatever a user's code raised
                self._work.failed(error, row.key, row.value, row.timestamp, row.headers)
        return limit

    def _leave(self, batch: _Collected) -> None:
        self.in_flight -= len(batch.records)
        self.turnover.leave(batch.turn)

    def _go_to(self, batch: _Collected, index: int) -> None:
        current, record = self._current, batch.records[index]
        current.page, current.offset = batch.places[index]
        current.timestamp, current.headers = record.timestamp, record.headers


def in_flight_node(
    operator: Operator,
    work: NodeWork,
    *,
    current: RecordContextHolder,
    wake: Callable[[], None],
    replayable: bool,
    window: Window = STILL,
    tracing: TaskTracing = UNTRACED,
) -> InFlight:
    """Make the node of an operator with asynchronous user code."""
    if isinstance(operator, Batched):
        return BatchNode(
            work,
            operator,
            current=current,
            wake=wake,
            replayable=replayable,
            window=window,
            tracing=tracing,
        )
    assert operator.asynchronous is not None
    return AsyncNode(
        work,
        cast("AsyncOperator", operator),
        operator.asynchronous,
        current=current,
        wake=wake,
        replayable=replayable,
        window=window,
        spans=CallSpans(work.node, tracing, _of_record) if tracing.on else None,
    )


def _of_record(call: Call) -> Sequence[Headers]:
    return (call.headers,)


def _of_batch(call: Call) -> Sequence[Headers]:
    batch: _Collected = call.value
    return [record.headers for record in batch.records]


@final
class _LotWork:
    """The part of a node's services that its batch calls use."""

    def __init__(self, owner: BatchNode) -> None:
        self.node: str = owner.node
        self._owner = owner

    def failed(
        self,
        error: BaseException,
        _key: Any,
        batch: _Collected,
        _timestamp: int,
        _headers: Headers,
    ) -> None:
        """Report a failed batch."""
        self._owner.failed(error, batch)

    def retried(self, error: BaseException, _: object) -> None:
        """Report the call of a batch that is made again; it concerns no single record."""
        self._owner.retried(error)


@final
class _LotOperator:
    """The function of a batch node, as an operator on one batch."""

    def __init__(self, owner: BatchNode, operator: Batched) -> None:
        self._owner = owner
        self._operator = operator

    def bind_async(self, _context: object) -> AsyncBound:
        """Return functions that pass records in, and collect rows."""
        function, owner = self._operator.call, self._owner

        def call(
            _key: Any, batch: _Collected, _timestamp: int, _headers: Headers
        ) -> Awaitable[list[Record[Any, Any]]]:
            return function(list(batch.records))  # a copy: the function owns its list

        def emit(
            rows: list[Record[Any, Any]],
            _key: Any,
            batch: _Collected,
            _timestamp: int,
            _headers: Headers,
        ) -> None:
            owner.come_back(rows, batch)

        return AsyncBound(call, emit)
