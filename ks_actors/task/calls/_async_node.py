"""The node of a user's coroutine."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from ks_actors._times import whole_ms
from ks_actors.lifecycle import closes, enter_user_code, passes
from ks_actors.metrics import STILL, Timing
from ks_actors.task.calls._in_flight import Call
from ks_actors.task.calls._turnover import Turnover

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

    from ks_actors.metrics import Window
    from ks_actors.processors.api import AsyncOperator, AsyncOptions
    from ks_actors.records import Headers
    from ks_actors.task._node import NodeWork
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.calls._call_spans import CallSpans

# The encoder writes equal keys as equal bytes, even dicts and sets.
_WRITTEN = msgspec.json.Encoder(order="deterministic").encode
_UNHASHABLE = object()
# Calls may queue for about this time (s), enough to keep a key busy.
_QUEUED_S = 0.05
# The number of calls that may always queue for one key, as keys are unevenly distributed.
_DEEP = 4
# The weight of the last call in the mean time of calls.
_NEWEST = 0.2


class AsyncNode:
    """Run a node's coroutine for up to `max_in_flight` records at once; emit results in order.

    By key (the default), calls of one key run one after another. Calls of different keys, and calls
    of records without a key, run side by side. By partition, all calls run side by side, and
    results come in the order of the records. Without an order, results come when they are ready.

    `emit` emits results when the task is processed, which `wake` requests. A call that takes longer
    than `timeout_ms` is cancelled and fails with TimeoutError. A failed call is retried as `retry`
    says, then the processing handler decides. Records wait if they arrive without room, which
    happens if an upstream node makes many records of one record. With `replayable` results are
    always in the order of the records: `order` then only says which calls run side by side. `spans`
    has the spans of traced calls.

    Records that queue behind their keys take no room from calls that can run. Unless calls are
    quick, the queued records are never more than the running calls, and few have the same key. A
    commit of the task waits for all these records.
    """

    def __init__(
        self,
        work: NodeWork,
        operator: AsyncOperator,
        options: AsyncOptions,
        *,
        current: RecordContextHolder,
        wake: Callable[[], None],
        replayable: bool = False,
        window: Window = STILL,
        spans: CallSpans | None = None,
    ) -> None:
        self.node: str = work.node
        self.in_flight: int = 0
        self.turnover: Turnover = Turnover()
        self.times: Timing = Timing(window)
        self.failures: int = 0
        self.retries_at: float = 0.0
        self._work = work
        self._call: Callable[[Any, Any, int, Headers], Awaitable[Any]]
        self._emit: Callable[[Any, Any, Any, int, Headers], None]
        self._close: Callable[[], None]
        self._call, self._emit, self._close = operator.bind_async(work)
        self._options = options
        self._most: int = options.max_in_flight
        # When results are emitted depends only on the records, so the room must too.
        self._replayable: bool = replayable
        self._queued: int = 0
        self._deepest: deque[Call] = deque()
        self._mean: float = 0.0
        self._by_key: bool = options.order == "key"
        self._in_order: bool = replayable or options.order == "partition"
        self._timeout: float | None = (
            None if options.timeout_ms is None else whole_ms(options.timeout_ms) / 1000
        )
        self._current = current
        self._wake = wake
        self._spans = spans
        # Calls must not see context variables that the call before them has set.
        self._context: Context = copy_context()
        # The keys in process, each with the calls that wait for it.
        self._lanes: dict[Any, deque[Call] | None] = {}
        self._waiting: deque[Call] = deque()
        self._order: deque[Call] = deque()
        self._done: deque[Call] = deque()
        self._running: dict[Call, None] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        # One timer serves the timeouts of all calls.
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        """The number of records that may be added now."""
        most = self._most
        if not self._by_key or self._replayable:
            return max(0, most - self.in_flight)
        # Before the first call has ended, the duration of calls is unknown.
        soon = int(min(most, _QUEUED_S / self._mean)) if self._mean else 0
        if len(self._deepest) >= max(_DEEP, soon):
            return 0
        may_queue = min(most, max(1, len(self._running), soon))
        return max(0, min(most - self.in_flight + self._queued, may_queue - self._queued))

    @property
    def has_results(self) -> bool:
        """Whether `emit` has work."""
        return bool(self._done)

    @property
    def settled(self) -> bool:
        """Whether no call is running, or waits to run."""
        return not (self._running or self._waiting)

    @property
    def oldest(self) -> Call | None:
        """The call that has been running for longest."""
        return next(iter(self._running), None)

    @property
    def running(self) -> int:
        """The number of calls in the user's code."""
        return len(self._running)

    @property
    def leaving(self) -> bool:
        """Whether cancelled calls are still running in the user's code."""
        return bool(self._leaving)

    @property
    def waits(self) -> bool:
        """Whether `flush` would send records: never, as no record waits for others."""
        return False

    def flush(self) -> None:
        """Do nothing: no records wait for others."""

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Start a record's call; a later `emit` emits its result."""
        call = Call(key, value, timestamp, headers, self._current)
        self.in_flight += 1
        call.turn = self.turnover.enter()
        if self._in_order:
            self._order.append(call)
        # A call that waits for an earlier call of its key takes no room of its own.
        if self._by_key and key is not None and not self._enter(call):
            return
        if len(self._running) < self._most:
            self._start(call)
        else:
            self._waiting.append(call)

    def emit(self) -> bool:
        """Emit the finished results; return whether there were any."""
        done = self._done
        any_done = bool(done)
        while done:
            call = done.popleft()
            self.in_flight -= 1
            self.turnover.leave(call.turn)
            self._hand_on(call)
        return any_done

    def cancel(self) -> None:
        """Cancel all records in flight, and drop their results.

        Cancelled coroutines are `leaving` until they end.
        """
        running, self._running = self._running, {}
        for call in running:
            task = call.task
            if task is not None:
                task.cancel()
                self._leaving.add(task)
                # The coroutine may still use the stores while it handles the cancellation.
                task.add_done_callback(self._left)
        self._lanes.clear()
        self._deepest = deque()
        self._waiting.clear()
        self._order.clear()
        self._done.clear()
        self.turnover.clear()
        self.in_flight = self._queued = 0
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def close(self) -> None:
        """Cancel calls in flight, and close the user's processor."""
        self.cancel()
        self._close()

    # --- one call ---------------------------------------------------------------------------------

    def _enter(self, call: Call) -> bool:
        """Return whether the call is the first of its key; else queue it after earlier calls."""
        lanes, lane = self._lanes, call.key
        try:
            first = lane not in lanes
        except TypeError:
            lane = _lane_of(lane)
            first = lane not in lanes
        call.lane = lane
        if first:
            lanes[lane] = None
        else:
            self._queued += 1
            queue = lanes[lane]
            if queue is None:
                queue = lanes[lane] = deque((call,))
            else:
                queue.append(call)
            if len(queue) > len(self._deepest):
                self._deepest = queue
        return first

    def _start(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        self._running[call] = None
        call.began = loop.time()
        context, spans = self._context.copy(), self._spans
        ended = None if spans is None else spans.begin(call, context)
        call.task = loop.create_task(self._run(call), context=context)
        if ended is not None:
            call.task.add_done_callback(ended)

    async def _run(self, call: Call) -> None:
        enter_user_code()
        retry, attempt, timeout = self._options.retry, 1, self._timeout
        while True:
            if timeout is not None:
                self._set_deadline(call, timeout)
            try:
                call.result = await self._invoke(call)
                call.error = None
            except asyncio.CancelledError as cancelled:
                if call not in self._running:
                    raise  # given up
                # Neither the timeout nor the app cancelled the call: that is a failure of the
                # record.
                if not call.late:
                    call.error = self._cancelled(call, cancelled)
                    break
                call.error = self._too_late(call)
            except Exception as error:  # noqa: BLE001 - a user's code; the handler decides
                call.error = error
            except BaseException as error:
                if closes(error, call.task) or passes(error):
                    raise
                call.error = error
                break
            call.deadline = inf
            if call.late:
                call.late = False
                assert call.task is not None
                # The timeout cancelled this task: undo that, or the retry counts as cancelled.
                call.task.uncancel()
            if (
                call.error is None
                or retry is None
                or attempt >= retry.attempts
                or not isinstance(call.error, retry.on)
            ):
                break
            self._work.retried(call.error, call.origin)
            # Retry has made whole milliseconds of timedeltas.
            ms: Any = retry
            pause = min(ms.max_backoff_ms, ms.backoff_ms * 2 ** (attempt - 1)) / 1000
            self.retries_at = max(self.retries_at, asyncio.get_running_loop().time() + pause)
            await asyncio.sleep(pause)
            attempt += 1
        # If the call is not running, it was cancelled, and its result must be dropped.
        if call in self._running:
            self._over(call)

    def _invoke(self, call: Call) -> Awaitable[Any]:
        """Call the user's code with the call's record as the task's current record."""
        current = self._current
        # The coroutine begins in a turn of the event loop, between two records of the task or
        # during one.
        was = current.page, current.offset, current.timestamp, current.headers
        self._go_to(call)
        try:
            return self._call(call.key, call.value, call.timestamp, call.headers)
        finally:
            current.page, current.offset, current.timestamp, current.headers = was

    def _go_to(self, call: Call) -> None:
        current = self._current
        current.page, current.offset = call.page, call.offset
        current.timestamp, current.headers = call.timestamp, call.headers

    def _over(self, call: Call) -> None:
        del self._running[call]
        took = asyncio.get_running_loop().time() - call.began
        self.times.add(took)
        self._mean += _NEWEST * (took - self._mean) if self._mean else took
        self.failures += call.error is not None
        call.over = True
        call.task = None
        if self._in_order:
            order = self._order
            # Take calls only from the front: a finished call waits for the calls of earlier
            # records.
            while order and order[0].over:
                self._done.append(order.popleft())
        else:
            self._done.append(call)
        if self._by_key and call.key is not None:
            self._leave(call.lane)
        if self._waiting and len(self._running) < self._most:
            self._start(self._waiting.popleft())
        if self._done:
            self._wake()

    def _leave(self, lane: Any) -> None:
        """Start the next call of a key."""
        queue = self._lanes[lane]
        if not queue:
            del self._lanes[lane]
            return
        self._queued -= 1
        # Earlier calls wait for room, so queue after them.
        if self._waiting:
            self._waiting.append(queue.popleft())
        else:
            self._start(queue.popleft())

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        if not self._leaving:
            self._wake()

    def _hand_on(self, call: Call) -> None:
        self._go_to(call)
        try:
            if call.error is not None:
                raise call.error
            self._emit(call.result, call.key, call.value, call.timestamp, call.headers)
        except BaseException as error:  # noqa: BLE001 - whatever a user's code raised
            self._work.failed(error, call.key, call.value, call.timestamp, call.headers)

    # --- time -------------------------------------------------------------------------------------

    def _set_deadline(self, call: Call, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        call.deadline = loop.time() + timeout
        # One timer for all calls: a timer per record would cost more than the call of many
        # processors. An existing timer comes early enough: its deadline is the earliest.
        if self._sweep is None:
            self._sweep = loop.call_at(call.deadline, self._cancel_late, loop)

    def _cancel_late(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the overdue calls; schedule a check for the next deadline."""
        self._sweep = None
        now, following = loop.time(), inf
        for call in self._running:
            if call.deadline > now:
                following = min(following, call.deadline)
            elif call.task is not None:
                call.late, call.deadline = True, inf
                call.task.cancel()
        # Calls have no deadline while they wait for a retry, or do not end though cancelled.
        if following < inf:
            self._sweep = loop.call_at(following, self._cancel_late, loop)

    def _too_late(self, call: Call) -> TimeoutError:
        return TimeoutError(
            f"the asynchronous processor {self.node} did not return within "
            f"{self._options.timeout_ms} ms, for {where(call)}"
        )

    def _cancelled(self, call: Call, cancelled: BaseException) -> Exception:
        error = RuntimeError(
            f"the asynchronous processor {self.node} was cancelled, but not by the app that runs "
            f"it, for {where(call)}"
        )
        error.__cause__ = cancelled
        return error


def where(call: Call) -> str:
    """Describe the record of a call."""
    origin = call.origin
    return (
        "a record of a punctuation, or of unknown origin"
        if origin is None
        else f"{origin.topic}-{origin.partition} offset {origin.offset}"
    )


def _lane_of(key: Any) -> Any:
    """Return a common value of equal keys that cannot be hashed, such as dicts.

    Keys of types that msgspec does not know share one lane: their calls follow each other.
    """
    try:
        return _WRITTEN(key)
    except Exception:  # noqa: BLE001 - msgspec and the user's types have many reasons
        return _UNHASHABLE
