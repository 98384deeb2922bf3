"""Joins of a table with others.

They are in a module of their own because of the many overloads for joiners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from ks_actors.system import Later

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._options import Materialized, TableJoined
    from ks_actors.dsl._table import Table

if TYPE_CHECKING:
    from ks_actors.dsl import joins
else:
    joins = Later("ks_actors.dsl.joins")

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
KO = TypeVar("KO")
VO = TypeVar("VO")


class TableJoins(Generic[K, V]):
    """The join operations of Table.

    Joiners get both values, and before them the key if they accept it; joiners of joins by a
    foreign key may get both keys. In Kafka Streams, joiners of tables get only the values.
    """

    @overload
    def join(
        self,
        other: Table[K, VO],
        joiner: Callable[[V, VO], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[K, VO],
        joiner: Callable[[K, V, VO], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[V, VO], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[K, V, VO], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[K, KO, V, VO], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[V, VO], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[K, V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[K, V, VO], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[K, V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[K, KO, V, VO], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[K, V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    def join(
        self,
        other: Table[Any, Any],
        joiner: Callable[..., Any],
        materialized: Materialized[K, Any] | str | None = None,
        *,
        name: str | None = None,
        foreign_key: Callable[..., Any] | None = None,
        joined: TableJoined[K, Any] | None = None,
    ) -> Table[K, Any]:
        """Return the table of rows that both tables have.

        The values are `joiner(value, other value)`, or `joiner(key, value, other value)`. With
        `foreign_key`, the other row has the key `foreign_key(value)`, or `foreign_key(key, value)`:
        many rows can refer to it (KIP-213, KIP-1104). Without such a row, or for a key None, there
        is no result. The joiner may also be `joiner(key, foreign key, value, other value)`.

        The method is `join`, as in Kafka Streams; the extractor is an argument by name, because
        `materialized` may be given by position. Extractor and joiner must return equal results for
        equal arguments. Both tables are stored. They exchange rows through two topics, so they may
        have different numbers of partitions.
        """
        table = cast("Table[K, V]", self)
        if foreign_key is None:
            return joins.table_table_join(
                table, other, joiner, materialized, name, joined, left=False, outer=False
            )
        return joins.foreign_key_join(
            table, other, foreign_key, joiner, joined, materialized, name, left=False
        )

    @overload
    def left_join(
        self,
        other: Table[K, VO],
        joiner: Callable[[V, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[K, VO],
        joiner: Callable[[K, V, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[V, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[K, V, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[K, KO | None, V, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[V, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[K, V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[K, V, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[K, V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[KO, VO],
        joiner: Callable[[K, KO | None, V, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        foreign_key: Callable[[K, V], KO | None],
        joined: TableJoined[K, KO] | None = None,
    ) -> Table[K, R]: ...
    def left_join(
        self,
        other: Table[Any, Any],
        joiner: Callable[..., Any],
        materialized: Materialized[K, Any] | str | None = None,
        *,
        name: str | None = None,
        foreign_key: Callable[..., Any] | None = None,
        joined: TableJoined[K, Any] | None = None,
    ) -> Table[K, Any]:
        """Return the table of all of this table's rows.

        The joiner is as in `join`, and gets None for the other value if there is no row. With
        `foreign_key`, the other row has the foreign key as its key, as in `join`; a row whose
        foreign key is None is joined with None.
        """
        table = cast("Table[K, V]", self)
        if foreign_key is None:
            return joins.table_table_join(
                table, other, joiner, materialized, name, joined, left=True, outer=False
            )
        return joins.foreign_key_join(
            table, other, foreign_key, joiner, joined, materialized, name, left=True
        )

    @overload
    def outer_join(
        self,
        other: Table[K, VO],
        joiner: Callable[[V | None, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, R]: ...
    @overload
    def outer_join(
        self,
        other: Table[K, VO],
        joiner: Callable[[K, V | None, VO | None], R | None],
        materialized: Materialized[K, R] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, R]: ...
    def outer_join(
        self,
        other: Table[K, Any],
        joiner: Callable[..., Any],
        materialized: Materialized[K, Any] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, Any]:
        """Return the table of rows that either table has.

        The joiner is as in `join`, and gets None for a missing value.
        """
        table = cast("Table[K, V]", self)
        return joins.table_table_join(
            table, other, joiner, materialized, name, None, left=True, outer=True
        )
