"""Operators that make any number of records from one."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from ks_actors.processors.api import MANY_RESULTS, ONE_RESULT, Bound, pair, refuse_one
from ks_actors.processors.stateless._columns import failed
from ks_actors.processors.stateless._stateless import MapValues, Stateless
from ks_actors.records import Batch, Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.processors.api import NodeContext


def spread(records: Batch, keys: list[Any] | None, values: list[Any], counts: list[int]) -> Batch:
    """Return a batch in which each record is repeated by its count.

    The records have these keys (None: their own) and values.
    """
    headers = records.headers
    if counts.count(1) == len(counts):
        return Batch(
            records.keys if keys is None else keys,
            values,
            records.timestamps,
            headers,
            records.offsets,
        )

    def spread(column: Iterable[Any]) -> list[Any]:
        return list(chain.from_iterable(map(repeat, column, counts)))

    return Batch(
        spread(records.keys) if keys is None else keys,
        values,
        spread(records.timestamps),
        None if headers is None else spread(headers),
        spread(records.offsets) if records.offsets else (),
    )


class FlatMap(Stateless):
    """Replace each record by all the pairs (key, value) that the function returns for it.

    When the function, or the iterator that it returned, raises, both forms have already forwarded
    the earlier pairs.
    """

    def _bind(self, context: NodeContext) -> Bound:
        mapper = self.function
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            made = mapper(key, value)
            if type(made) not in MANY_RESULTS and isinstance(made, ONE_RESULT):
                refuse_one(mapper, made)
            for one in made:
                try:
                    new_key, new_value = (
                        one if type(one) is tuple else pair(mapper, one, among=True)
                    )
                except ValueError:
                    new_key, new_value = pair(mapper, one, among=True)
                forward(new_key, new_value, timestamp, headers)

        def batch(records: Batch) -> None:
            keys: list[Any] = []
            values: list[Any] = []
            counts: list[int] = []
            before = 0
            for key, value in zip(records.keys, records.values, strict=True):
                try:
                    made = mapper(key, value)
                    if type(made) not in MANY_RESULTS and isinstance(made, ONE_RESULT):
                        refuse_one(mapper, made)
                    for one in made:
                        try:
                            new_key, new_value = (
                                one if type(one) is tuple else pair(mapper, one, among=True)
                            )
                        except ValueError:
                            new_key, new_value = pair(mapper, one, among=True)
                        keys.append(new_key)
                        values.append(new_value)
                except BaseException as error:  # noqa: BLE001 - the handler decides on users' errors
                    failed(context, records, len(counts), error)
                counts.append(len(keys) - before)
                before = len(keys)
            if keys:
                forward_batch(spread(records, keys, values, counts))

        return Bound(process, batch)

    def _emit(self, context: NodeContext) -> Callable[[Any, Any, Any, int, Headers], None]:
        mapper = self.function
        forward = context.forward

        def emit(result: Any, _key: Any, _value: Any, timestamp: int, headers: Headers) -> None:
            if isinstance(result, ONE_RESULT):
                refuse_one(mapper, result)
            for one in result:
                new_key, new_value = pair(mapper, one, among=True)
                forward(new_key, new_value, timestamp, headers)

        return emit


class FlatMapValues(MapValues):
    """Replace each value by all results of the function.

    The function gets (value), or (key, value) with `with_key`. Errors are handled as in FlatMap.
    """

    def _bind(self, context: NodeContext) -> Bound:
        mapper = self.function
        with_key = self.with_key
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            made = mapper(key, value) if with_key else mapper(value)
            if type(made) not in MANY_RESULTS and isinstance(made, ONE_RESULT):
                refuse_one(mapper, made)
            for new_value in made:
                forward(key, new_value, timestamp, headers)

        def batch(records: Batch) -> None:
            values: list[Any] = []
            counts: list[int] = []
            before = 0
            for key, value in zip(records.keys, records.values, strict=True):
                try:
                    made = mapper(key, value) if with_key else mapper(value)
                    if type(made) not in MANY_RESULTS and isinstance(made, ONE_RESULT):
                        refuse_one(mapper, made)
                    values.extend(made)
                except BaseException as error:  # noqa: BLE001 - the handler decides on users' errors
                    failed(context, records, len(counts), error)
                counts.append(len(values) - before)
                before = len(values)
            if values:
                forward_batch(spread(records, None, values, counts))

        return Bound(process, batch)

    def _emit(self, context: NodeContext) -> Callable[[Any, Any, Any, int, Headers], None]:
        mapper = self.function
        forward = context.forward

        def emit(result: Any, key: Any, _value: Any, timestamp: int, headers: Headers) -> None:
            if isinstance(result, ONE_RESULT):
                refuse_one(mapper, result)
            for new_value in result:
                forward(key, new_value, timestamp, headers)

        return emit
