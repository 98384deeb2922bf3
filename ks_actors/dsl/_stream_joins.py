"""Joins of a stream with tables; in a module of their own for the many forms that a joiner can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from ks_actors._errors import TopologyError
from ks_actors.dsl import _joins, _table

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._options import Joined
    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl._table import GlobalTable, Table

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
R = TypeVar("R")
GK = TypeVar("GK")


class StreamJoins(Generic[K, V]):
    """The part of Stream that joins it with tables: a record meets the table as it is at the record's turn, and gives one result at most."""

    @overload
    def join(self, table: Table[K, W], joiner: Callable[[V, W], R], joined: Joined[K, V, W] | None = None) -> Stream[K, R]: ...
    @overload
    def join(self, table: Table[K, W], joiner: Callable[[K, V, W], R], joined: Joined[K, V, W] | None = None) -> Stream[K, R]: ...
    @overload
    def join(
        self, table: GlobalTable[GK, W], key_selector: Callable[[K, V], GK | None], joiner: Callable[[V, W], R], *, name: str | None = None
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self, table: GlobalTable[GK, W], key_selector: Callable[[K, V], GK | None], joiner: Callable[[K, V, W], R], *, name: str | None = None
    ) -> Stream[K, R]: ...
    def join(self, table: Any, *functions: Any, **options: Any) -> Stream[K, Any]:
        """Join records with what a table has for their key: joiner(value, other) or joiner(key, value, other); without a match there is no result.

        A global table is asked for the key that key_selector(key, value) tells. Records without a key or a value are dropped.
        """
        return self._join(table, functions, options, left=False)

    @overload
    def left_join(self, table: Table[K, W], joiner: Callable[[V, W | None], R], joined: Joined[K, V, W] | None = None) -> Stream[K, R]: ...
    @overload
    def left_join(self, table: Table[K, W], joiner: Callable[[K, V, W | None], R], joined: Joined[K, V, W] | None = None) -> Stream[K, R]: ...
    @overload
    def left_join(
        self, table: GlobalTable[GK, W], key_selector: Callable[[K, V], GK | None], joiner: Callable[[V, W | None], R], *, name: str | None = None
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self, table: GlobalTable[GK, W], key_selector: Callable[[K, V], GK | None], joiner: Callable[[K, V, W | None], R], *, name: str | None = None
    ) -> Stream[K, R]: ...
    def left_join(self, table: Any, *functions: Any, **options: Any) -> Stream[K, Any]:
        """Join as `join` does, and give the joiner None where there is no match: every record with a value has a result."""
        return self._join(table, functions, options, left=True)

    def _join(self, table: Any, functions: tuple[Any, ...], options: dict[str, Any], *, left: bool) -> Stream[K, Any]:
        stream = cast("Stream[K, V]", self)
        if isinstance(table, _table.GlobalTable):
            return _global(stream, table, *functions, left=left, **options)
        if isinstance(table, _table.Table):
            return _local(stream, table, *functions, left=left, **options)
        raise TopologyError(f"stream {stream.node.name} cannot be joined with {table!r}: give a Table or a GlobalTable")


def _local(stream: Stream[Any, Any], table: Any, joiner: Any, joined: Joined[Any, Any, Any] | None = None, *, left: bool) -> Stream[Any, Any]:
    return _joins.stream_table_join(stream, table, joiner, joined, left=left)


def _global(stream: Stream[Any, Any], table: Any, key_selector: Any, joiner: Any, *, left: bool, name: str | None = None) -> Stream[Any, Any]:
    return _joins.stream_global_table_join(stream, table, key_selector, joiner, left=left, name=name)
