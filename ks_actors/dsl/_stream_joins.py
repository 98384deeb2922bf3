"""Joins of a stream with tables and streams.

They are in a module of their own because of the many overloads for joiners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from ks_actors._errors import TopologyError
from ks_actors.system import Later

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ks_actors.dsl._options import Joined
    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl._table import GlobalTable, Table
    from ks_actors.dsl.joins import StreamJoined
    from ks_actors.dsl.windows import JoinWindows

if TYPE_CHECKING:
    from ks_actors.dsl import _table, joins
else:
    _table, joins = Later("ks_actors.dsl._table"), Later("ks_actors.dsl.joins")

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
R = TypeVar("R")
GK = TypeVar("GK")


class StreamJoins(Generic[K, V]):
    """The join operations of Stream.

    A record is joined with the table's row at the time of processing, and has at most one result.
    It is joined with records of another stream by their timestamps.
    """

    @overload
    def join(
        self, other: Table[K, W], joiner: Callable[[V, W], R], joined: Joined[K, V, W] | None = None
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: Table[K, W],
        joiner: Callable[[K, V, W], R],
        joined: Joined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: GlobalTable[GK, W],
        key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[V, W], R],
        *,
        name: str | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: GlobalTable[GK, W],
        key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[K, V, W], R],
        *,
        name: str | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: GlobalTable[GK, W],
        key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[K, GK, V, W], R],
        *,
        name: str | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: Stream[K, W],
        joiner: Callable[[V, W], R],
        windows: JoinWindows,
        joined: StreamJoined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: Stream[K, W],
        joiner: Callable[[K, V, W], R],
        windows: JoinWindows,
        joined: StreamJoined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    def join(self, other: Any, *functions: Any, **options: Any) -> Stream[K, Any]:
        """Join records with a table's row for their key; without a match there is no result.

        The joiner is joiner(value, other) or joiner(key, value, other). In a global table the row
        is looked up under key_selector(key, value); the joiner may also be joiner(key, mapped key,
        value, other), with both keys (KIP-1340). Records of two streams match if their timestamps
        fit the windows, whichever arrives first; the result has the later timestamp. Records
        without a key or a value are dropped.
        """
        return self._join(other, functions, options, left=False)

    @overload
    def left_join(
        self,
        other: Table[K, W],
        joiner: Callable[[V, W | None], R],
        joined: Joined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[K, W],
        joiner: Callable[[K, V, W | None], R],
        joined: Joined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: GlobalTable[GK, W],
        key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[V, W | None], R],
        *,
        name: str | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: GlobalTable[GK, W],
        key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[K, V, W | None], R],
        *,
        name: str | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: GlobalTable[GK, W],
        key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[K, GK | None, V, W | None], R],
        *,
        name: str | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: Stream[K, W],
        joiner: Callable[[V, W | None], R],
        windows: JoinWindows,
        joined: StreamJoined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: Stream[K, W],
        joiner: Callable[[K, V, W | None], R],
        windows: JoinWindows,
        joined: StreamJoined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    def left_join(self, other: Any, *functions: Any, **options: Any) -> Stream[K, Any]:
        """Join as `join` does, and give the joiner None where there is no match.

        Every record with a value has a result. With two streams, the result of an unmatched record
        follows as soon as no match is possible any more, with the record's own timestamp.
        """
        return self._join(other, functions, options, left=True)

    @overload
    def outer_join(
        self,
        other: Stream[K, W],
        joiner: Callable[[V | None, W | None], R],
        windows: JoinWindows,
        joined: StreamJoined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def outer_join(
        self,
        other: Stream[K, W],
        joiner: Callable[[K, V | None, W | None], R],
        windows: JoinWindows,
        joined: StreamJoined[K, V, W] | None = None,
    ) -> Stream[K, R]: ...
    def outer_join(
        self,
        other: Any,
        joiner: Any,
        windows: JoinWindows,
        joined: StreamJoined[Any, Any, Any] | None = None,
    ) -> Stream[K, Any]:
        """Join two streams as `left_join` does, from both sides.

        Every record of either stream has a result.
        """
        return joins.stream_stream_join(
            cast("Stream[K, V]", self), other, joiner, windows, joined, left=True, outer=True
        )

    @overload
    def join_asof(
        self,
        other: Stream[K, W],
        joiner: Callable[[V, W], R],
        tolerance_ms: int | timedelta,
        joined: StreamJoined[K, V, W] | None = None,
        *,
        grace_ms: int | timedelta = 0,
    ) -> Stream[K, R]: ...
    @overload
    def join_asof(
        self,
        other: Stream[K, W],
        joiner: Callable[[K, V, W], R],
        tolerance_ms: int | timedelta,
        joined: StreamJoined[K, V, W] | None = None,
        *,
        grace_ms: int | timedelta = 0,
    ) -> Stream[K, R]: ...
    def join_asof(
        self,
        other: Any,
        joiner: Any,
        tolerance_ms: int | timedelta,
        joined: StreamJoined[Any, Any, Any] | None = None,
        *,
        grace_ms: int | timedelta = 0,
    ) -> Stream[K, Any]:
        """Join each record with the latest record of another stream at or before its timestamp.

        The other record has the same key, and is at most `tolerance_ms` earlier; of several with
        the same timestamp, the last counts. Without such a record there is no result. The joiner is
        joiner(value, other) or joiner(key, value, other), and the result has the record's own key,
        timestamp and headers. Records of the other stream cause no results.

        With `grace_ms`, records wait until the stream time of both streams has passed their
        timestamps by that much, so other records may be that late; they are joined in the order of
        time, then key. Without `grace_ms` records are joined at once, with the other records so
        far. So is a record that is late by more than `grace_ms`.

        Records without key or value are dropped and counted. Records of the other stream are kept
        for tolerance and grace. Kafka Streams has no such join of streams; for tables with a
        history it has `Joined(grace_ms=…)`.
        """
        return joins.stream_asof_join(
            cast("Stream[K, V]", self),
            other,
            joiner,
            tolerance_ms,
            joined,
            grace_ms=grace_ms,
            left=False,
        )

    @overload
    def left_join_asof(
        self,
        other: Stream[K, W],
        joiner: Callable[[V, W | None], R],
        tolerance_ms: int | timedelta,
        joined: StreamJoined[K, V, W] | None = None,
        *,
        grace_ms: int | timedelta = 0,
    ) -> Stream[K, R]: ...
    @overload
    def left_join_asof(
        self,
        other: Stream[K, W],
        joiner: Callable[[K, V, W | None], R],
        tolerance_ms: int | timedelta,
        joined: StreamJoined[K, V, W] | None = None,
        *,
        grace_ms: int | timedelta = 0,
    ) -> Stream[K, R]: ...
    def left_join_asof(
        self,
        other: Any,
        joiner: Any,
        tolerance_ms: int | timedelta,
        joined: StreamJoined[Any, Any, Any] | None = None,
        *,
        grace_ms: int | timedelta = 0,
    ) -> Stream[K, Any]:
        """Join as `join_asof` does, and give the joiner None where there is no other record.

        Every record with a value has a result.
        """
        return joins.stream_asof_join(
            cast("Stream[K, V]", self),
            other,
            joiner,
            tolerance_ms,
            joined,
            grace_ms=grace_ms,
            left=True,
        )

    def _join(
        self, other: Any, functions: tuple[Any, ...], options: dict[str, Any], *, left: bool
    ) -> Stream[K, Any]:
        stream = cast("Stream[K, V]", self)
        if isinstance(other, _table.GlobalTable):
            return _global(stream, other, *functions, left=left, **options)
        if isinstance(other, _table.Table):
            return _local(stream, other, *functions, left=left, **options)
        if isinstance(other, StreamJoins):
            return _streams(stream, other, *functions, left=left, **options)
        raise TopologyError(
            f"stream {stream.node.name} cannot be joined with {other!r}: give a Table, a "
            "GlobalTable or a Stream"
        )


def _streams(
    stream: Stream[Any, Any],
    other: Any,
    joiner: Any,
    windows: JoinWindows | None = None,
    joined: StreamJoined[Any, Any, Any] | None = None,
    *,
    left: bool,
) -> Stream[Any, Any]:
    if windows is None:
        raise TopologyError(
            f"stream {stream.node.name} cannot be joined with stream {other.node.name} over all "
            "time: give JoinWindows, or a Table or a GlobalTable"
        )
    return joins.stream_stream_join(stream, other, joiner, windows, joined, left=left)


def _local(
    stream: Stream[Any, Any],
    table: Any,
    joiner: Any,
    joined: Joined[Any, Any, Any] | None = None,
    *,
    left: bool,
) -> Stream[Any, Any]:
    return joins.stream_table_join(stream, table, joiner, joined, left=left)


def _global(
    stream: Stream[Any, Any],
    table: Any,
    key_selector: Any,
    joiner: Any,
    *,
    left: bool,
    name: str | None = None,
) -> Stream[Any, Any]:
    return joins.stream_global_table_join(stream, table, key_selector, joiner, left=left, name=name)
