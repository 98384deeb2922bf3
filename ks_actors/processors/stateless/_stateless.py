"""Stateless operators: one record in, some records out."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from operator import not_, truth
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from ks_actors.processors.api import (
    AsyncBound,
    Bound,
    never_alone,
    pair,
    refuse_awaitable,
    truth_of,
)
from ks_actors.processors.stateless._columns import collect, failed, without
from ks_actors.processors.stateless._inline import Inline
from ks_actors.records import Batch, Headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TextIO

    from ks_actors.processors.api import AsyncOptions, NodeContext

Function: TypeAlias = "Callable[..., Any]"


class Stateless(ABC):
    """Base of the operators with one user function.

    `asynchronous` is set for an `async def`, with its options.
    """

    record_context: bool = False

    def __init__(self, function: Function, asynchronous: AsyncOptions | None = None) -> None:
        self.function: Function = function
        self.asynchronous: AsyncOptions | None = asynchronous

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        if self.asynchronous is not None:
            return Bound(never_alone)
        return self._bind(context)

    def bind_async(self, context: NodeContext) -> AsyncBound:
        """Make the functions of one task for an async function."""
        return AsyncBound(self._call(), self._emit(context))

    @abstractmethod
    def _bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task for a plain function."""

    def _call(self) -> Callable[[Any, Any, int, Headers], Awaitable[Any]]:
        function = self.function
        return lambda key, value, _timestamp, _headers: function(key, value)

    @abstractmethod
    def _emit(self, context: NodeContext) -> Callable[[Any, Any, Any, int, Headers], None]:
        """Make the function that forwards the result of an async function."""


class PassThrough(Inline):
    """Forward records unchanged: merges, the ends of branches."""

    def bind(self, context: NodeContext) -> Bound:
        """Return the context's own functions, to avoid a call in between."""
        return Bound(context.forward, context.forward_batch)


class DropNullKeys(Inline):
    """Drop records without a key, for which no partition can be computed."""

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is not None:
                forward(key, value, timestamp, headers)

        def batch(records: Batch) -> None:
            left = records.select([key is not None for key in records.keys])
            if left.timestamps:
                forward_batch(left)

        return Bound(process, batch)


class Filter(Stateless):
    """Forward the records for which the predicate (key, value) holds.

    With `negate` forward those for which it does not hold.
    """

    def __init__(
        self, function: Function, asynchronous: AsyncOptions | None = None, *, negate: bool = False
    ) -> None:
        super().__init__(function, asynchronous)
        self.negate: bool = negate

    def _bind(self, context: NodeContext) -> Bound:
        predicate = self.function
        negate = self.negate
        decide = not_ if negate else truth
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            holds = predicate(key, value)
            if holds is not True and holds is not False:
                holds = truth_of(predicate, holds)
            if holds is not negate:
                forward(key, value, timestamp, headers)

        def batch(records: Batch) -> None:
            # Evaluate the truth of a result here, where an error still names its record.
            calls = map(predicate, records.keys, records.values)
            selectors, _ = collect(context, records, predicate, calls, decide)
            left = records.select(selectors)
            if left.timestamps:
                forward_batch(left)

        return Bound(process, batch)

    def _emit(self, context: NodeContext) -> Callable[[Any, Any, Any, int, Headers], None]:
        forward = context.forward
        decide = not_ if self.negate else truth

        def emit(result: Any, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if decide(result):
                forward(key, value, timestamp, headers)

        return emit


class MapValues(Stateless):
    """Replace values by the function of (value), or of (key, value) with `with_key`."""

    def __init__(
        self,
        function: Function,
        asynchronous: AsyncOptions | None = None,
        *,
        with_key: bool = False,
    ) -> None:
        super().__init__(function, asynchronous)
        self.with_key: bool = with_key

    def _bind(self, context: NodeContext) -> Bound:
        mapper = self.function
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            made = mapper(value)
            if type(made) is CoroutineType:
                refuse_awaitable(mapper, made)
            forward(key, made, timestamp, headers)

        def process_with_key(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            made = mapper(key, value)
            if type(made) is CoroutineType:
                refuse_awaitable(mapper, made)
            forward(key, made, timestamp, headers)

        with_key = self.with_key

        def batch(records: Batch) -> None:
            results = (
                map(mapper, records.keys, records.values)
                if with_key
                else map(mapper, records.values)
            )
            values, failed_at = collect(context, records, mapper, results)
            made = Batch(records.keys, values, records.timestamps, records.headers, records.offsets)
            if failed_at:
                made = without(made, failed_at)
            if made.timestamps:
                forward_batch(made)

        return Bound(process_with_key if with_key else process, batch)

    def _call(self) -> Callable[[Any, Any, int, Headers], Awaitable[Any]]:
        mapper = self.function
        return (
            super()._call()
            if self.with_key
            else lambda _key, value, _timestamp, _headers: mapper(value)
        )

    def _emit(self, context: NodeContext) -> Callable[[Any, Any, Any, int, Headers], None]:
        forward = context.forward
        return lambda result, key, _value, timestamp, headers: forward(
            key, result, timestamp, headers
        )


class SelectKey(Stateless):
    """Replace keys by the function of (key, value)."""

    def _bind(self, context: NodeContext) -> Bound:
        selector = self.function
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            made = selector(key, value)
            if type(made) is CoroutineType:
                refuse_awaitable(selector, made)
            forward(made, value, timestamp, headers)

        def batch(records: Batch) -> None:
            calls = map(selector, records.keys, records.values)
            keys, failed_at = collect(context, records, selector, calls)
            made = Batch(keys, records.values, records.timestamps, records.headers, records.offsets)
            if failed_at:
                made = without(made, failed_at)
            if made.timestamps:
                forward_batch(made)

        return Bound(process, batch)

    def _emit(self, context: NodeContext) -> Callable[[Any, Any, Any, int, Headers], None]:
        forward = context.forward
        return lambda result, _key, value, timestamp, headers: forward(
            result, value, timestamp, headers
        )


class Map(Stateless):
    """Replace records by the pair (key, value) that the function returns for (key, value)."""

    def _bind(self, context: NodeContext) -> Bound:
        mapper = self.function
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            made = mapper(key, value)
            try:
                new_key, new_value = made if type(made) is tuple else pair(mapper, made)
            except ValueError:
                new_key, new_value = pair(mapper, made)
            forward(new_key, new_value, timestamp, headers)

        def batch(records: Batch) -> None:
            keys: list[Any] = []
            values: list[Any] = []
            failed_at: list[int] = []
            for key, value in zip(records.keys, records.values, strict=True):
                try:
                    made = mapper(key, value)
                    try:
                        new_key, new_value = made if type(made) is tuple else pair(mapper, made)
                    except ValueError:
                        new_key, new_value = pair(mapper, made)
                except BaseException as error:  # noqa: BLE001 - the handler decides on users' errors
                    # Every earlier record either has a key or has failed, so both give this
                    # record's index.
                    index = len(keys) + len(failed_at)
                    failed(context, records, index, error)
                    failed_at.append(index)
                else:
                    keys.append(new_key)
                    values.append(new_value)
            if failed_at:
                records = without(records, failed_at)
            if keys:
                forward_batch(
                    Batch(keys, values, records.timestamps, records.headers, records.offsets)
                )

        return Bound(process, batch)

    def _emit(self, context: NodeContext) -> Callable[[Any, Any, Any, int, Headers], None]:
        mapper = self.function
        forward = context.forward

        def emit(result: Any, _key: Any, _value: Any, timestamp: int, headers: Headers) -> None:
            new_key, new_value = pair(mapper, result)
            forward(new_key, new_value, timestamp, headers)

        return emit


class Peek(Stateless):
    """Call the function with (key, value) and forward the record."""

    def _bind(self, context: NodeContext) -> Bound:
        action = self.function
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if (result := action(key, value)) is not None:
                refuse_awaitable(action, result)
            forward(key, value, timestamp, headers)

        def batch(records: Batch) -> None:
            calls = map(action, records.keys, records.values)
            _, failed_at = collect(context, records, action, calls)
            left = without(records, failed_at) if failed_at else records
            if left.timestamps:
                forward_batch(left)

        return Bound(process, batch)

    def _emit(self, context: NodeContext) -> Callable[[Any, Any, Any, int, Headers], None]:
        forward = context.forward
        return lambda _result, key, value, timestamp, headers: forward(
            key, value, timestamp, headers
        )


class ForEach(Stateless):
    """Call the function with (key, value) and forward nothing."""

    def _bind(self, context: NodeContext) -> Bound:
        action = self.function

        def process(key: Any, value: Any, _timestamp: int, _headers: Headers) -> None:
            if (result := action(key, value)) is not None:
                refuse_awaitable(action, result)

        def batch(records: Batch) -> None:
            collect(context, records, action, map(action, records.keys, records.values))

        return Bound(process, batch)

    def _emit(
        self,
        context: NodeContext,  # noqa: ARG002 - there is nothing to forward
    ) -> Callable[[Any, Any, Any, int, Headers], None]:
        return lambda _result, _key, _value, _timestamp, _headers: None


class Print(ForEach):
    """Write `[label]: key, value` to stdout or a file; with a mapper, its result after the label.

    The mapper is an attribute, so that marks on the mapper are found.
    """

    def __init__(self, label: str, file: TextIO | None, mapper: Function | None) -> None:
        super().__init__(self._show)
        self.label: str = label
        self.file: TextIO | None = file
        self.mapper: Function | None = mapper

    def _show(self, key: Any, value: Any) -> None:
        if self.mapper is None:
            text = f"{key}, {value}"
        else:
            text = self.mapper(key, value)
            refuse_awaitable(self.mapper, text, awaited=False)
        (sys.stdout if self.file is None else self.file).write(f"[{self.label}]: {text}\n")
