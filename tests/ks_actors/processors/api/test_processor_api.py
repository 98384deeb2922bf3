"""Users' processors: records, contexts, plain and async ones."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, ClassVar

import pytest

from ks_actors._errors import TopologyError
from ks_actors.processors import (
    AsyncOptions,
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordMetadata,
    Retry,
)
from ks_actors.processors.api._adapter import ProcessorOperator
from ks_actors.processors.api._async_options import is_async
from tests.ks_actors.processors.helpers import Node, Row


class Doubling(Processor[str, int, str, int]):
    """Forwards a record twice: to all children, and once more to one."""

    closed: ClassVar[list[Doubling]] = []

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_value(record.value * 2))
        self.context.forward(record.with_key("again").with_timestamp(99).with_headers((("a", None),)), "left")

    def close(self) -> None:
        self.closed.append(self)


def node_with_children() -> tuple[Node, list[Row]]:
    node, child = Node({"store": "the store"}), Node({})
    node.children = {"left": child.forward}
    return node, child.rows


def test_a_processor_forwards_to_all_or_to_one() -> None:
    """Key, value, time and headers as given; others stay."""
    node, left = node_with_children()
    bound = ProcessorOperator("NODE", Doubling).bind(node)
    assert bound.batch is None
    bound.process("k", 4, 7, (("h", b"1"),))
    assert node.rows == [Row("k", 8, 7, (("h", b"1"),), None)]
    assert left == [Row("again", 4, 99, (("a", None),), None)]


def test_every_task_has_a_processor_of_its_own_and_closes_it() -> None:
    """Those made to look at are never initialized."""
    Doubling.closed.clear()
    operator = ProcessorOperator("NODE", Doubling)
    bounds = [operator.bind(node_with_children()[0]) for _ in range(2)]
    for bound in bounds:
        bound.close()
    assert len(set(map(id, Doubling.closed))) == 2
    assert operator.record_context
    assert operator.asynchronous is None


class Asking(Processor[Any, Any, Any, Any]):
    answers: ClassVar[list[Any]] = []

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.STREAM_TIME, self.tick)
        context.schedule(20, PunctuationType.WALL_CLOCK_TIME, self.tick, 5)

    def tick(self, time: int) -> None:
        """Do nothing."""

    def process(self, record: Record[Any, Any]) -> None:
        context = self.context
        Asking.answers[:] = [
            context.application_id,
            str(context.task_id),
            context.get_state_store("store"),
            context.current_stream_time_ms(),
            context.current_system_time_ms(),
            context.record_metadata(),
        ]
        context.commit()


def test_the_context_answers_for_the_task() -> None:
    """Ids, stores, times, where the record came from; commits and punctuators are passed on."""
    node, _ = node_with_children()
    node.metadata = RecordMetadata("topic", 1, 2)
    bound = ProcessorOperator("NODE", Asking).bind(node)
    bound.process(None, None, 0, ())
    bound.close()
    assert Asking.answers == ["app", "0_0", "the store", -1, 1_000, RecordMetadata("topic", 1, 2)]
    assert node.commits == 1
    assert node.scheduled == [(10, "stream_time", None), (20, "wall_clock_time", 5)]


def failing(act: Any) -> Processor[Any, Any, Any, Any]:
    class Failing(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            act(self.context, record)

    return Failing()


async def async_punctuator(time: int) -> None:
    """Do nothing, later."""


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda c, r: c.forward(r, "right"), TopologyError, "node NODE has no child right to forward to, only: left"),
        (lambda c, r: c.forward(r.with_timestamp(-1)), ValueError, "node NODE forwards a record with timestamp -1"),
        (lambda c, r: c.schedule(0, PunctuationType.STREAM_TIME, print), ValueError, "node NODE cannot punctuate with interval_ms 0"),
        (lambda c, r: c.schedule(1, PunctuationType.STREAM_TIME, async_punctuator), TypeError, "of node NODE is 'async def'"),
        (lambda c, r: c.schedule("1s", PunctuationType.STREAM_TIME, print), TypeError, "interval_ms of a punctuator of node NODE is '1s'"),
        (lambda c, r: c.schedule(True, PunctuationType.STREAM_TIME, print), TypeError, "interval_ms of a punctuator of node NODE is True"),
        (lambda c, r: c.schedule(1, PunctuationType.STREAM_TIME, print, 0.5), TypeError, "start_ms of a punctuator of node NODE is 0.5"),
        (lambda c, r: c.schedule(1, PunctuationType.STREAM_TIME, print, -1), ValueError, "node NODE cannot punctuate with start_ms -1"),
        (lambda c, r: c.schedule(1, "STREAM_TIME", print), TypeError, "node NODE cannot punctuate by 'STREAM_TIME'"),
        (lambda c, r: c.schedule(1, PunctuationType.STREAM_TIME, None), TopologyError, "punctuator of node NODE is None, which cannot be called"),
        (lambda c, r: c.schedule(1, PunctuationType.STREAM_TIME, lambda: None), TopologyError, "punctuator of node NODE cannot be called"),
        (lambda c, r: c.forward((r.key, r.value)), TypeError, r"node NODE forwards \('k', 'v'\): give a Record"),
        (lambda c, r: c.forward(None), TypeError, "node NODE forwards None: give a Record"),
        (lambda c, r: c.forward(r.with_timestamp(1.5)), TypeError, "node NODE forwards a record with timestamp 1.5"),
        (lambda c, r: c.forward(r.with_timestamp(None)), TypeError, "node NODE forwards a record with timestamp None"),
        (lambda c, r: c.forward(r.with_timestamp(1 << 63)), ValueError, "node NODE forwards a record with timestamp 9223372036854775808"),
        (lambda c, r: c.forward(r.with_headers({"a": b"b"})), TypeError, "node NODE forwards a record with headers {'a': b'b'}"),
        (lambda c, r: c.forward(r.with_headers(None)), TypeError, "node NODE forwards a record with headers None"),
        (lambda c, r: c.forward(r.with_headers((("a", "b"),))), TypeError, r"node NODE forwards a record with header \('a', 'b'\)"),
        (lambda c, r: c.forward(r.with_headers((("\ud800", b"b"),))), ValueError, "node NODE forwards a record with a header named"),
    ],
)
def test_impossible_requests_are_errors(act: Any, error: type[Exception], message: str) -> None:
    """With the node's name."""
    node, _ = node_with_children()
    bound = ProcessorOperator("NODE", partial(failing, act)).bind(node)
    with pytest.raises(error, match=message):
        bound.process("k", "v", 0, ())


class Moving(FixedKeyProcessor[str, int, str]):
    def process(self, record: FixedKeyRecord[str, int]) -> None:
        self.context.forward(Record("other", "v", record.timestamp))  # type: ignore[arg-type] # that is the fault


def test_a_fixed_key_processor_cannot_forward_another_key() -> None:
    """A Record may have another key, which would be in the wrong partition: it is refused, also where type checkers do not look."""
    bound = ProcessorOperator("NODE", Moving, fixed_key=True).bind(Node({}))
    with pytest.raises(TypeError, match="node NODE keeps keys and forwards a Record"):
        bound.process("k", 1, 2, ())


def test_a_node_without_children_says_so() -> None:
    """When one is named."""
    bound = ProcessorOperator("NODE", partial(failing, lambda c, r: c.forward(r, "x"))).bind(Node({}))
    with pytest.raises(TopologyError, match="only: none"):
        bound.process("k", "v", 0, ())


class Keeping(FixedKeyProcessor[str, int, str]):
    def process(self, record: FixedKeyRecord[str, int]) -> None:
        self.context.forward(record.with_value("v").with_timestamp(3).with_headers((("x", b"y"),)))


def test_a_fixed_key_processor_keeps_the_key() -> None:
    """Its records have no way to another one."""
    node = Node({})
    bound = ProcessorOperator("NODE", Keeping, fixed_key=True).bind(node)
    bound.process("k", 1, 2, ())
    bound.close()
    assert node.rows == [Row("k", "v", 3, (("x", b"y"),), None)]
    assert not hasattr(FixedKeyRecord("k", 1, 2), "with_key")


@pytest.mark.parametrize(
    ("supplier", "fixed_key", "wanted"), [(Keeping, False, "a Processor for process"), (Doubling, True, "a FixedKeyProcessor for")]
)
def test_each_kind_has_its_operation(supplier: Any, fixed_key: bool, wanted: str) -> None:
    """A processor that may change keys is not for process_values, and the other way round."""
    with pytest.raises(TopologyError, match=wanted):
        ProcessorOperator("NODE", supplier, fixed_key=fixed_key)


def test_records_are_values() -> None:
    """Equal by content, and never changed."""
    record = Record("k", 1, 2)
    assert record == Record("k", 1, 2, ())
    with pytest.raises(AttributeError):
        record.key = "other"  # type: ignore[misc]


class Asynchronous(Processor[str, int, str, Any]):
    """Forwards before and after it waits for its turn, from another task too."""

    gates: ClassVar[dict[int, asyncio.Event]] = {}
    seen: ClassVar[list[tuple[int, Any]]] = []

    async def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_value((record.value, "first")))
        await self.gates[record.value].wait()
        self.seen.append((record.value, self.context.record_metadata()))
        await asyncio.create_task(self.helper(record))

    async def helper(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_value((record.value, "second")), "left")
        await asyncio.sleep(0)


async def test_async_calls_run_side_by_side_and_are_emitted_in_the_order_wanted() -> None:
    """Forwards of a call are its own, also from tasks that it starts, and are handed on by emit only."""
    node, left = node_with_children()
    operator = ProcessorOperator("NODE", Asynchronous)
    assert operator.asynchronous == AsyncOptions()
    bound = operator.bind_async(node)
    Asynchronous.gates.update({1: asyncio.Event(), 2: asyncio.Event()})
    Asynchronous.seen.clear()
    calls = []
    for number in (1, 2):
        node.metadata = RecordMetadata("topic", 0, number)
        calls.append(asyncio.ensure_future(bound.call("k", number, number, ())))
    node.metadata = None
    Asynchronous.gates[2].set()
    second = await calls[1]
    assert not calls[0].done()
    Asynchronous.gates[1].set()
    first = await calls[0]
    assert node.rows == []
    bound.emit(first, "k", 1, 1, ())
    bound.emit(second, "k", 2, 2, ())
    assert [row.value for row in node.rows] == [(1, "first"), (2, "first")]
    assert [row.value for row in left] == [(1, "second"), (2, "second")]
    assert Asynchronous.seen == [(2, RecordMetadata("topic", 0, 2)), (1, RecordMetadata("topic", 0, 1))]
    bound.close()


class AsyncWithPunctuator(Processor[Any, Any, Any, Any]):
    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        context.schedule(1, PunctuationType.STREAM_TIME, self.tick)

    def tick(self, time: int) -> None:
        self.context.forward(Record("tick", self.context.record_metadata(), time))

    async def process(self, record: Record[Any, Any]) -> None:
        """Do nothing."""


async def test_a_punctuator_of_an_async_processor_forwards_at_once() -> None:
    """Only calls are collected."""
    node = Node({})
    ProcessorOperator("NODE", AsyncWithPunctuator).bind_async(node)
    (tick,) = node.callbacks
    tick(5)
    assert node.rows == [Row("tick", None, 5, (), None)]


async def test_an_async_call_that_forwards_wrongly_fails_itself() -> None:
    """The call's own record fails, not the one that is emitted after it."""

    class Wrong(Processor[Any, Any, Any, Any]):
        async def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(record, "nobody")

    bound = ProcessorOperator("NODE", Wrong).bind_async(Node({}))
    with pytest.raises(TopologyError, match="no child nobody"):
        await bound.call("k", "v", 0, ())


def test_an_async_processor_does_not_process_by_itself() -> None:
    """It is bound another way."""
    with pytest.raises(RuntimeError, match="bind_async"):
        ProcessorOperator("NODE", Asynchronous).bind(Node({})).process("k", 1, 0, ())


class CallableObject:
    async def __call__(self, key: object, value: object) -> None:
        """Do nothing."""


async def some(key: object, value: object) -> None:
    """Do nothing."""


def test_hidden_async_functions_are_found() -> None:
    """Behind a partial, and in an object."""
    assert is_async(some)
    assert is_async(partial(some, 1))
    assert is_async(CallableObject())
    assert not is_async(print)
    assert not is_async(lambda key, value: None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AsyncOptions(max_in_flight=0), "max_in_flight is 0"),
        (lambda: AsyncOptions(order="keys"), "order is 'keys'"),  # type: ignore[arg-type]
        (lambda: AsyncOptions(timeout_ms=0), "timeout_ms is 0"),
        (lambda: Retry(attempts=0), "attempts of 1 or more"),
        (lambda: Retry(backoff_ms=20_000), "from 0 to max_backoff_ms"),
    ],
)
def test_options_that_cannot_be_are_refused(make: Any, message: str) -> None:
    """When they are made."""
    with pytest.raises(TopologyError, match=message):
        make()
