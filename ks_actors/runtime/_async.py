"""A user's coroutine in the middle of a task."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors._batch import Headers
    from ks_actors.processors._async_options import AsyncOptions
    from ks_actors.processors._operator import AsyncOperator
    from ks_actors.runtime._current import Current
    from ks_actors.runtime._node import NodeWork
    from ks_actors.runtime._queue import RecordQueue


class _Call:
    """One record in the hands of a user's coroutine."""

    __slots__ = ("error", "headers", "key", "offset", "over", "queue", "result", "started", "task", "timestamp", "value")

    def __init__(self, key: Any, value: Any, timestamp: int, headers: Headers, current: Current) -> None:
        self.key: Any = key
        self.value: Any = value
        self.timestamp: int = timestamp
        self.headers: Headers = headers
        self.queue: RecordQueue | None = current.queue
        self.offset: int = current.offset
        self.started: float = 0.0
        self.task: asyncio.Task[Any] | None = None
        self.result: Any = None
        self.error: Exception | None = None
        self.over: bool = False


class AsyncNode:
    """Run a node's coroutine for up to `max_in_flight` records at once, and hand their results on in order.

    By key (the default), calls of one key follow each other and calls of different keys run side by side; by partition, all run side by side and
    results are handed on in the order of the records; with none, as they come. Results are handed on in the task's own turns, by `emit`: `wake`
    asks for one. A call that takes longer than `timeout_ms` is cancelled and fails with TimeoutError; a failed call is tried again as `retry` says,
    then the processing handler decides.
    """

    def __init__(
        self,
        work: NodeWork,
        operator: AsyncOperator,
        options: AsyncOptions,
        *,
        current: Current,
        wake: Callable[[], None],
    ) -> None:
        self.node: str = work.node
        self._work = work
        self._call: Callable[[Any, Any, int, Headers], Awaitable[Any]]
        self._emit: Callable[[Any, Any, Any, int, Headers], None]
        self._close: Callable[[], None]
        self._call, self._emit, self._close = operator.bind_async(work)
        self._options = options
        self._current = current
        self._wake = wake
        self._waiting: dict[Any, deque[_Call]] = {}
        self._order: deque[_Call] = deque()
        self._done: deque[_Call] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._timeout: float | None = None if options.timeout_ms is None else options.timeout_ms / 1000
        self._running: dict[_Call, None] = {}
        self.in_flight: int = 0

    @property
    def room(self) -> int:
        """How many records may be taken now."""
        return max(0, self._options.max_in_flight - self.in_flight)

    @property
    def has_results(self) -> bool:
        """Return whether `emit` has something to do."""
        return bool(self._done)

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Take a record; its result comes out of a later `emit`."""
        call = _Call(key, value, timestamp, headers, self._current)
        self.in_flight += 1
        if self._options.order == "key":
            queue = self._waiting.get(key)
            if queue is not None:
                queue.append(call)
                return
            self._waiting[key] = deque()
        elif self._options.order == "partition":
            self._order.append(call)
        self._start(call)

    def emit(self) -> bool:
        """Hand on the results there are; return whether there were any."""
        done = self._done
        any_done = bool(done)
        while done:
            call = done.popleft()
            self.in_flight -= 1
            self._hand_on(call)
        return any_done

    def cancel(self) -> None:
        """Give up all records in flight: nothing of them will be handed on."""
        for call in list(self._running):
            if call.task is not None:
                call.task.cancel()
        self._running.clear()
        self._waiting.clear()
        self._order.clear()
        self._done.clear()
        self.in_flight = 0
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def close(self) -> None:
        """Cancel what is in flight, and close the user's processor."""
        self.cancel()
        self._close()

    # --- one call -------------------------------------------------------------------------------------------------------------

    def _start(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        call.started = loop.time()
        self._running[call] = None
        call.task = loop.create_task(self._run(call))
        if self._timeout is not None and self._sweep is None:
            self._sweep = loop.call_later(self._timeout, self._cancel_late, loop)

    async def _run(self, call: _Call) -> None:
        retry, attempt = self._options.retry, 1
        while True:
            try:
                call.result = await self._invoke(call)
                call.error = None
            except asyncio.CancelledError:
                if call not in self._running:
                    raise  # given up
                call.error = self._too_late(call)
            except Exception as error:  # noqa: BLE001 - a user's code; the handler decides
                call.error = error
            if call.error is None or retry is None or attempt >= retry.attempts or not isinstance(call.error, retry.on):
                break
            await asyncio.sleep(min(retry.max_backoff_ms, retry.backoff_ms * 2 ** (attempt - 1)) / 1000)
            attempt += 1
            call.started = asyncio.get_running_loop().time()
        self._over(call)

    def _invoke(self, call: _Call) -> Awaitable[Any]:
        """Call the user's code as if the task were at its record, which it may not be any more."""
        current = self._current
        was = current.queue, current.offset, current.timestamp, current.headers
        self._go_to(call)
        try:
            return self._call(call.key, call.value, call.timestamp, call.headers)
        finally:
            current.queue, current.offset, current.timestamp, current.headers = was

    def _go_to(self, call: _Call) -> None:
        current = self._current
        current.queue, current.offset, current.timestamp, current.headers = call.queue, call.offset, call.timestamp, call.headers

    def _over(self, call: _Call) -> None:
        self._running.pop(call, None)
        call.over = True
        call.task = None
        if self._options.order == "partition":
            order = self._order
            while order and order[0].over:
                self._done.append(order.popleft())
        else:
            self._done.append(call)
            if self._options.order == "key":
                self._start_next(call.key)
        if self._done:
            self._wake()

    def _start_next(self, key: Any) -> None:
        queue = self._waiting[key]
        if queue:
            self._start(queue.popleft())
        else:
            del self._waiting[key]

    def _hand_on(self, call: _Call) -> None:
        self._go_to(call)
        try:
            if call.error is not None:
                raise call.error
            self._emit(call.result, call.key, call.value, call.timestamp, call.headers)
        except Exception as error:  # noqa: BLE001 - whatever a user's code raised
            self._work.failed(error, call.key, call.value, call.timestamp, call.headers)

    # --- time -----------------------------------------------------------------------------------------------------------------

    def _cancel_late(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the calls that are overdue; look again when the oldest of the others will be."""
        self._sweep = None
        assert self._timeout is not None
        limit = loop.time() - self._timeout
        oldest: float | None = None
        for call in list(self._running):
            if call.started <= limit:
                if call.task is not None:
                    call.task.cancel()
            elif oldest is None or call.started < oldest:
                oldest = call.started
        if oldest is not None:
            self._sweep = loop.call_at(oldest + self._timeout, self._cancel_late, loop)
        elif self._running:
            self._sweep = loop.call_later(self._timeout, self._cancel_late, loop)

    def _too_late(self, call: _Call) -> TimeoutError:
        where = f"{call.queue.partition} offset {call.offset}" if call.queue is not None else "a punctuation"
        return TimeoutError(f"the asynchronous processor {self.node} did not return within {self._options.timeout_ms} ms, for {where}")
