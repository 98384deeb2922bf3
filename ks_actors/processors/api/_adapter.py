"""The adapter that runs user processors as operators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast, final

from ks_actors._errors import StreamsError, TopologyError
from ks_actors.processors.api._api import Context, FixedKeyProcessor, Processor
from ks_actors.processors.api._argument_checks import check_function, check_supplier
from ks_actors.processors.api._async_options import AsyncOptions, check_promise, is_async
from ks_actors.processors.api._context_checks import LATEST_MS, check_forwarded, checked_schedule
from ks_actors.processors.api._operator import AsyncBound, Bound, never_alone, too_early
from ks_actors.processors.api._plain_results import refuse_awaitable
from ks_actors.processors.api._record import FixedKeyRecord, Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from datetime import datetime, timedelta

    from ks_actors.processors.api._operator import NodeContext, PunctuationType, RecordMetadata
    from ks_actors.records import Headers, TaskId
    from ks_actors.topology import StoreSpec

AnyRecord: TypeAlias = "Record[Any, Any] | FixedKeyRecord[Any, Any]"
AnyProcessor: TypeAlias = "Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]"
AnySupplier: TypeAlias = Callable[
    [], "Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]"
]


class _Call:
    """One call of an async processor: its forwarded records, and the origin of its record."""

    __slots__ = ("ended", "forwarded", "metadata", "owner", "timestamp")

    def __init__(
        self, owner: _TaskContext, metadata: RecordMetadata | None, timestamp: int
    ) -> None:
        self.owner: _TaskContext = owner
        self.timestamp: int = timestamp
        self.metadata: RecordMetadata | None = metadata
        self.forwarded: list[tuple[AnyRecord, str | None]] = []
        self.ended: bool = False


_current: ContextVar[_Call | None] = ContextVar("ks_actors_current_call", default=None)


def call_time() -> int | None:
    """Return the timestamp of the record of this async call; None outside of a call."""
    call = _current.get()
    return None if call is None else call.timestamp


@final
class ProcessorOperator:
    """A user's processor as an operator: `supplier` makes a new one for each task.

    `asynchronous` is set when its `process` is an `async def`; `stores` are those that the supplier
    declares.
    """

    record_context: bool = True

    def __init__(
        self,
        node: str,
        supplier: AnySupplier,
        options: AsyncOptions | None = None,
        *,
        fixed_key: bool | None = None,
    ) -> None:
        processor = _checked(node, supplier)
        self.supplier: AnySupplier = supplier
        self.stores: tuple[StoreSpec, ...] = tuple(getattr(supplier, "stores", ()))
        self.processor: type[AnyProcessor] = type(processor)
        self.fixed_key: bool = isinstance(processor, FixedKeyProcessor)
        if fixed_key not in (None, self.fixed_key):
            wanted = (
                "a FixedKeyProcessor for process_values" if fixed_key else "a Processor for process"
            )
            raise TopologyError(
                f"{supplier!r} of node {node} supplies {processor!r}: give {wanted}"
            )
        self.asynchronous: AsyncOptions | None = (
            (options or AsyncOptions()) if is_async(processor.process) else None
        )
        if options is not None and self.asynchronous is None:
            raise TopologyError(
                f"processor {node} has options for asynchronous calls, but a plain process: make "
                "it 'async def', or remove them"
            )

    def bind(self, context: NodeContext) -> Bound:
        """Make and initialize the processor of one task."""
        if self.asynchronous is not None:
            return Bound(never_alone)
        handle: Callable[[AnyRecord], object] = too_early(context.node)
        record_type: type[AnyRecord] = FixedKeyRecord if self.fixed_key else Record
        own = _TaskContext(context, record_type)

        def begin(processor: AnyProcessor) -> None:
            nonlocal handle
            handle = cast("Callable[[AnyRecord], object]", processor.process)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            own.called = True
            try:
                result = handle(record_type(key, value, timestamp, headers))
            finally:
                own.called = False
            if result is not None:
                refuse_awaitable(handle, result)

        return Bound(process, None, self._start(context, own, begin))

    def bind_async(self, context: NodeContext) -> AsyncBound:
        """Make and initialize the asynchronous processor of one task.

        A call returns the records that it forwarded; `emit` forwards them to the children.
        """
        record_type: type[AnyRecord] = FixedKeyRecord if self.fixed_key else Record
        own = _AsyncContext(context, record_type)
        handle: Callable[[AnyRecord], Coroutine[Any, Any, None]] = too_early(context.node)

        def begin(processor: AnyProcessor) -> None:
            nonlocal handle
            handle = cast("Callable[[AnyRecord], Coroutine[Any, Any, None]]", processor.process)

        async def run(call: _Call, record: AnyRecord) -> list[tuple[AnyRecord, str | None]]:
            token = _current.set(call)
            try:
                await handle(record)
            finally:
                call.ended = True
                _current.reset(token)
            return call.forwarded

        def call(
            key: Any, value: Any, timestamp: int, headers: Headers
        ) -> Awaitable[list[tuple[AnyRecord, str | None]]]:
            # A plain function: it reads the metadata now, while the record is the current one, not
            # when the call runs.
            return run(
                _Call(own, context.record_metadata(), timestamp),
                record_type(key, value, timestamp, headers),
            )

        def emit(
            result: list[tuple[AnyRecord, str | None]],
            _key: Any,
            _value: Any,
            _timestamp: int,
            _headers: Headers,
        ) -> None:
            for record, child in result:
                own.hand_on(record, child)

        return AsyncBound(call, emit, self._start(context, own, begin))

    def _start(
        self, context: NodeContext, own: _TaskContext, begin: Callable[[AnyProcessor], None]
    ) -> Callable[[], None]:
        """Make and initialize the processor in its turn, then call `begin`.

        Return the function that closes it.
        """
        processor: AnyProcessor | None = None

        def make() -> None:
            nonlocal processor
            processor = self.supplier()

        def init() -> None:
            assert processor is not None
            # Also if a user's `init` does not call super. A processor that accepts no attribute
            # must keep the context in another way.
            if not hasattr(processor, "context"):
                with suppress(AttributeError, TypeError, ValueError):
                    processor.context = own
            own.within(processor.init)(own)
            begin(processor)

        def close() -> None:
            assert processor is not None
            own.within(processor.close)()

        context.when_made(make, init)
        return close


class _TaskContext(Context[Any]):
    """The context of one processor in one task.

    `called` is set while the processor is called. A record that it forwards later, from a callback
    or a task of its own, would be lost: its offset may have been committed.
    """

    __slots__ = ("_children", "_context", "_forward", "_type", "called")

    def __init__(self, context: NodeContext, record_type: type[AnyRecord]) -> None:
        self._context: NodeContext = context
        self._type: type[AnyRecord] = record_type
        self._forward: Callable[[Any, Any, int, Headers], None] = context.forward
        self._children: Any = context.children
        self.called: bool = False

    def within(self, function: Callable[..., object]) -> Callable[..., None]:
        """Wrap a function of the processor that may forward records."""

        def call(*arguments: Any) -> None:
            self.called = True
            try:
                result = function(*arguments)
            finally:
                self.called = False
            if result is not None:
                refuse_awaitable(function, result, awaited=False)

        return call

    @property
    def application_id(self) -> str:
        return self._context.application_id

    @property
    def task_id(self) -> TaskId:
        return self._context.task_id

    def forward(self, record: AnyRecord, child: str | None = None) -> None:
        # The common case, with a few comparisons and no call. Other cases may be mistakes.
        if (
            self.called
            and child is None
            and type(record) is self._type
            and type(record.timestamp) is int
            and 0 <= record.timestamp <= LATEST_MS
            and record.headers == ()
        ):
            self._forward(record.key, record.value, record.timestamp, record.headers)
        else:
            if not self.called:
                self._refuse_late()
            self._check(record, child)
            self.hand_on(record, child)

    def _refuse_late(self) -> NoReturn:
        raise StreamsError(
            f"forward was called after process had returned, at node {self._context.node}, or in "
            "a thread that it had not begun with asyncio.to_thread: the record would be lost in a "
            "failure; await the work in an 'async def process', or keep the record in a store and "
            "forward it from a punctuator"
        )

    def hand_on(self, record: AnyRecord, child: str | None) -> None:
        """Forward a record that has been checked."""
        forward = self._forward if child is None else self._children[child]
        forward(record.key, record.value, record.timestamp, record.headers)

    def _check(self, record: AnyRecord, child: str | None) -> None:
        check_forwarded(record, self._type, self._context.node)
        if child is not None and child not in self._children:
            known = ", ".join(self._children) or "none"
            raise TopologyError(
                f"node {self._context.node} has no child {child} to forward to, only: {known}; "
                "name one of these, or none for all"
            )

    def get_state_store(self, name: str) -> Any:
        return self._context.store(name)

    def schedule(
        self,
        interval_ms: int | timedelta,
        punctuation: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | datetime | timedelta | None = None,
    ) -> Callable[[], None]:
        interval, start = checked_schedule(
            interval_ms, punctuation, callback, start_ms, self._context
        )
        return self._context.schedule(interval, punctuation, self.within(callback), start)

    def commit(self) -> None:
        self._context.request_commit()

    def current_stream_time_ms(self) -> int:
        return self._context.stream_time()

    def current_system_time_ms(self) -> int:
        return self._context.wall_time()

    def record_metadata(self) -> RecordMetadata | None:
        return self._context.record_metadata()


@final
class _AsyncContext(_TaskContext):
    """The context of one asynchronous processor in one task.

    Calls run interleaved, so each collects the records that it forwards.
    """

    __slots__ = ()

    def forward(self, record: AnyRecord, child: str | None = None) -> None:
        call = _current.get()
        if call is not None and call.owner is self:
            if call.ended:
                self._refuse_late()
            # Checked now and not when the call is emitted: the traceback shows the line that
            # forwards.
            self._check(record, child)
            call.forwarded.append((record, child))
        else:
            super().forward(record, child)

    def record_metadata(self) -> RecordMetadata | None:
        call = _current.get()
        return (
            call.metadata if call is not None and call.owner is self else super().record_metadata()
        )


def _checked(node: str, supplier: AnySupplier) -> AnyProcessor:
    """Return a processor of this supplier, after checking both."""
    if isinstance(supplier, Processor | FixedKeyProcessor):
        raise TopologyError(
            f"{supplier!r} of node {node} is a processor, not a supplier: give its class, or a "
            "function that makes one"
        )
    processor = check_supplier(supplier, role="supplier", of=f"node {node}")
    if not isinstance(processor, Processor | FixedKeyProcessor):
        raise TopologyError(
            f"{supplier!r} of node {node} supplies {processor!r}, which is neither a Processor nor "
            "a FixedKeyProcessor: subclass one of these"
        )
    if supplier() is processor:
        raise TopologyError(
            f"{supplier!r} of node {node} supplied the same processor twice: tasks share nothing, "
            "so return a new one from every call"
        )
    for name in ("init", "close"):
        if is_async(getattr(processor, name)):
            raise TopologyError(
                f"{name} of {processor!r} at node {node} is 'async def', which only process may "
                "be: make it a plain method"
            )
    check_function(processor.process, 1, role="process", of=f"node {node}", awaited=True)
    if not is_async(processor.process):
        check_promise(processor.process, f"node {node}")
    check_function(processor.init, 1, role="init", of=f"node {node}")
    check_function(processor.close, 0, role="close", of=f"node {node}")
    return processor
