"""The node that runs a user's coroutine, by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, cast

import pytest

from ks_actors.processors import AsyncOptions, Retry
from ks_actors.processors.api._operator import Process
from ks_actors.processors.stateless._batched import Batched
from ks_actors.processors.stateless._stateless import MapValues
from ks_actors.task._node import NodeWork
from ks_actors.task._record_context import RecordContextHolder
from ks_actors.task.calls._async_node import AsyncNode
from ks_actors.task.calls._batch_node import BatchNode
from tests.ks_actors.runtime.helpers import in_virtual_time
from tests.waiting import PATIENCE_S, soon


class _Work:
    """The parts of a task that a node needs: the places for results and failures."""

    def __init__(self) -> None:
        self.node: str = "node"
        self.out: list[tuple[Any, Any]] = []
        self.failures: list[BaseException] = []
        self.forward: Process = lambda key, value, _timestamp, _headers: self.out.append((key, value))
        self.forward_batch: None = None

    def failed(self, error: BaseException, *_: object) -> None:
        self.failures.append(error)

    def retried(self, error: BaseException, _: object) -> None:
        """Note nothing: the node goes on."""


class _Node(AsyncNode):
    """A node with its surroundings."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]], **options: Any) -> None:
        self.surroundings: _Work = _Work()
        self.wakes: int = 0
        chosen = AsyncOptions(**options)
        super().__init__(cast("NodeWork", self.surroundings), MapValues(function, chosen), chosen, current=RecordContextHolder(), wake=self._note)

    def _note(self) -> None:
        self.wakes += 1

    def fill(self, key: Callable[[int], str]) -> int:
        """Add records as long as there is room; return how many."""
        added = 0
        while self.room:
            self.process(key(added), "value", 0, ())
            added += 1
        return added

    async def finish(self) -> list[tuple[Any, Any]]:
        """Let all calls end, and return the results that were handed on."""
        while self.in_flight:
            await asyncio.sleep(0.01)
            self.emit()
        return self.surroundings.out


@in_virtual_time
async def test_a_hot_key_takes_no_room_from_others() -> None:
    """Records are taken as long as no more queue than calls run, and no more than four behind one key; other keys run side by side."""

    async def call(value: str) -> str:
        await asyncio.sleep(1)
        return value

    node = _Node(call, max_in_flight=50)
    taken = node.fill(lambda index: "hot" if index % 2 else str(index))
    assert (taken, node.running) == (10, 6)
    assert len(await node.finish()) == taken
    # One key alone: a commit waits for two calls.
    assert node.fill(lambda _: "hot") == 2
    assert len(await node.finish()) == taken + 2


@in_virtual_time
async def test_calls_that_take_no_time_leave_room() -> None:
    """The mean time of calls may come as near to nothing as it will."""
    pause = 1.0

    async def call(value: str) -> str:
        if pause:
            await asyncio.sleep(pause)
        return value

    node = _Node(call)
    node.process("k", "value", 0, ())
    await node.finish()
    pause = 0.0
    for _ in range(4_000):
        node.process("k", "value", 0, ())
        await asyncio.sleep(0)
        node.emit()
    await node.finish()
    assert node.room == 100


@in_virtual_time
async def test_quick_calls_of_one_key_are_taken_by_the_batch() -> None:
    """As many may queue as are done in a moment, so that a key of quick calls does not wait for turns of its task."""

    async def call(value: str) -> str:
        await asyncio.sleep(0.001)
        return value

    node = _Node(call)
    node.process("k", "value", 0, ())
    await node.finish()
    taken = node.fill(lambda _: "k")
    assert 40 <= taken <= 51
    assert len(await node.finish()) == 1 + taken


@in_virtual_time
async def test_calls_do_not_see_the_context_of_those_before_them() -> None:
    """A context variable that a call sets is not there in the next call of the same key, which the first one's end has started."""
    variable: ContextVar[str] = ContextVar("variable", default="clean")
    seen: list[str] = []

    async def call(value: str) -> str:
        seen.append(variable.get())
        variable.set(value)
        await asyncio.sleep(0.01)
        return value

    node = _Node(call)
    for value in "abc":
        node.process("k", value, 0, ())
    assert await node.finish() == [("k", "a"), ("k", "b"), ("k", "c")]
    assert seen == ["clean"] * 3


class Mutable:
    """A key that can be neither hashed nor written."""

    __hash__: None = None  # type: ignore[assignment]  # as in a class with __eq__


@pytest.mark.parametrize(
    ("keys", "longest"),
    [
        ([None] * 4, 0.4),
        ([{"a": 1, "b": number} for number in range(4)], 0.4),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}, [{1, 2}], [{2, 1}]], 0.7),
        ([Mutable() for _ in range(4)], 1.0),
    ],
    ids=["none", "different", "equal", "strange"],
)
@in_virtual_time
async def test_calls_follow_each_other_where_their_keys_are_equal(keys: list[Any], longest: float) -> None:
    """Also keys that cannot be hashed; calls of records without a key run side by side. Keys that cannot be compared count as one."""

    async def call(value: int) -> int:
        await asyncio.sleep(value / 10)
        return value

    node = _Node(call)
    begun = asyncio.get_running_loop().time()
    for number, key in enumerate(keys):
        node.process(key, number + 1, 0, ())
    results = await node.finish()
    assert asyncio.get_running_loop().time() - begun == pytest.approx(longest, abs=0.011)
    assert [(key, value) for key, value in sorted(results, key=lambda row: row[1])] == [(key, number + 1) for number, key in enumerate(keys)]
    assert not node._lanes


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@in_virtual_time
async def test_nothing_comes_of_calls_that_were_given_up(order: str) -> None:
    """Results of calls that end although they were cancelled are void, for any result or error; they are leaving until then."""
    may = asyncio.Event()

    async def call(value: str) -> str:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await may.wait()
            if value == "raises":
                raise ValueError(value) from None
            if value == "obeys":
                raise
        return value

    node = _Node(call, order=order)
    for value in ("returns", "raises", "obeys"):
        node.process(value, value, 0, ())
        node.process(value, f"behind {value}", 0, ())
    await asyncio.sleep(0.5)
    node.cancel()
    assert (node.in_flight, node.room, node.leaving) == (0, 1 if order == "key" else 100, True)
    await asyncio.sleep(2)
    assert node.leaving
    before = node.wakes
    may.set()
    await asyncio.sleep(0.001)
    assert (node.leaving, node.has_results, node.wakes) == (False, False, before + 1)
    node.process("k", "works", 0, ())
    assert await node.finish() == [("k", "works")]
    assert node.surroundings.failures == []


@in_virtual_time
async def test_a_call_that_is_cancelled_by_others_has_failed() -> None:
    """A call that ends in a cancellation of its own doing fails, is not tried again, and does not stay in flight."""
    calls: list[str] = []

    async def call(value: str) -> str:
        calls.append(value)
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future  # type: ignore[no-any-return]  # it never gets there

    node = _Node(call, retry=Retry(attempts=5), timeout_ms=100)
    node.process("k", "v", 0, ())
    assert await node.finish() == []
    (failure,) = node.surroundings.failures
    assert "node was cancelled, but not by the app" in str(failure)
    assert isinstance(failure.__cause__, asyncio.CancelledError)
    assert calls == ["v"]


@in_virtual_time
async def test_a_call_whose_coroutine_is_closed_hands_nothing_on() -> None:
    """A loop that has ended closes what still waits: that is no failure of a record."""

    async def call(_: str) -> str:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # it never gets there

    node = _Node(call)
    node.process("k", "v", 0, ())
    await asyncio.sleep(0.01)
    oldest = node.oldest
    assert oldest is not None
    assert oldest.task is not None
    coroutine = oldest.task.get_coro()
    assert coroutine is not None
    coroutine.close()
    assert not node.has_results
    assert node.failures == 0


@in_virtual_time
async def test_the_time_of_each_call_is_its_own() -> None:
    """Calls are cancelled when their own time is over: neither earlier, because others are late, nor much later."""
    ends: dict[str, float] = {}

    async def call(value: str) -> None:
        try:
            await asyncio.sleep(0.09 if value == "quick" else 10)
        finally:
            ends[value] = asyncio.get_running_loop().time()

    node = _Node(call, timeout_ms=100, order="none")
    for value in ("first", "quick", "second", "third"):
        node.process(value, value, 0, ())
        await asyncio.sleep(0.03)
    await node.finish()
    assert ends == pytest.approx({"first": 0.1, "quick": 0.12, "second": 0.16, "third": 0.19})
    assert [type(failure) for failure in node.surroundings.failures] == [TimeoutError] * 3


@in_virtual_time
async def test_a_late_call_may_use_timeouts_of_its_own_when_it_is_tried_again() -> None:
    """The cancellation of a late call is taken back, so that timeouts inside the next try work as anywhere."""
    tries: list[int] = []

    async def call(value: str) -> str:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.sleep(10)
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            task = asyncio.current_task()
            assert task is not None
            return f"{value}, {task.cancelling()}"
        return "no timeout"

    node = _Node(call, timeout_ms=100, retry=Retry(attempts=2, backoff_ms=1))
    node.process("k", "in time", 0, ())
    assert await node.finish() == [("k", "in time, 0")]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_plain_function_of_many_records_is_leaving_until_it_returns(fails: bool) -> None:
    """A thread cannot be interrupted, however often its call is cancelled: only when it has ended may others be given the records again."""
    entered, may = threading.Event(), threading.Event()
    woken = asyncio.Event()

    def blocks(records: list[Any]) -> list[Any]:
        entered.set()
        if not may.wait(PATIENCE_S) or fails:
            raise ValueError("not at all")
        return records

    work = _Work()
    node = BatchNode(cast("NodeWork", work), Batched(blocks, 1, 0, AsyncOptions(order="partition")), current=RecordContextHolder(), wake=woken.set)
    node.process("k", "v", 0, ())
    assert await asyncio.to_thread(entered.wait, PATIENCE_S)
    (call,) = node._calls._running
    assert call.task is not None
    for _ in range(2):
        node.cancel()
        call.task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (node.in_flight, node.leaving, woken.is_set()) == (0, True, False)
    may.set()
    await soon(woken.wait())
    assert (node.leaving, node.has_results, work.out, work.failures) == (False, False, [], [])
    node.close()


@in_virtual_time
async def test_the_timer_of_timeouts_rests_while_no_call_has_a_deadline() -> None:
    """Calls that wait for a retry, or go on although they were cancelled, wake nobody; the deadline of the next attempt counts."""
    looks: list[float] = []

    class Watched(_Node):
        def _cancel_late(self, loop: asyncio.AbstractEventLoop) -> None:
            looks.append(loop.time())
            super()._cancel_late(loop)

    async def call(value: str) -> str:
        if value == "fails":
            raise ValueError(value)
        try:
            await asyncio.sleep(50)
        except asyncio.CancelledError:
            if value == "stays":
                await asyncio.sleep(100)
            raise
        return value

    loop = asyncio.get_running_loop()
    node = Watched(call, timeout_ms=20, retry=Retry(attempts=2, backoff_ms=10_000, max_backoff_ms=10_000))
    began = loop.time()
    for value in ("fails", "stays", "leaves"):
        node.process(value, value, 0, ())
    await asyncio.sleep(5)
    assert node.in_flight == 3
    assert len(looks) <= 2
    await node.finish()
    # Two attempts of 100 s that were cancelled, and a backoff between them.
    assert 210 < loop.time() - began < 210.1
    assert len(looks) <= 6
    assert [type(error) for error in node.surroundings.failures] == [ValueError, TimeoutError, TimeoutError]
