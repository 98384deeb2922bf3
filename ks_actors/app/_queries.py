"""Queries of an app's stores, on this instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ks_actors._errors import NotRunning
from ks_actors.app._checks import NOT_STARTED
from ks_actors.app._history import AppOverHistory
from ks_actors.lifecycle import check_timeout
from ks_actors.serdes import serde_of
from ks_actors.system import Later

if TYPE_CHECKING:
    from datetime import timedelta

    from ks_actors.log import IsolationLevel, Log
    from ks_actors.query import (
        LagInfo,
        LocalStores,
        StateQueryRequest,
        StateQueryResult,
        StoreQueries,
    )
    from ks_actors.serdes import SerdeOrType
    from ks_actors.state import ValueAndTimestamp
    from ks_actors.topology import QueryableStore

if TYPE_CHECKING:
    from ks_actors import query as queries
else:
    queries = Later("ks_actors.query")

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class AppQueries(AppOverHistory):
    """The part of an App that answers about its stores."""

    _log: Log | None = None
    _local: LocalStores

    @overload
    def store(
        self,
        name: QueryableStore[K, V],
        *,
        timestamped: Literal[True],
        partition: int | None = None,
        isolation: IsolationLevel | None = None,
        stale: bool = False,
        timeout_ms: int | timedelta = 10_000,
    ) -> StoreQueries[K, ValueAndTimestamp[V]]: ...
    @overload
    def store(
        self,
        name: QueryableStore[K, V],
        *,
        partition: int | None = None,
        isolation: IsolationLevel | None = None,
        stale: bool = False,
        timestamped: Literal[False] = False,
        timeout_ms: int | timedelta = 10_000,
    ) -> StoreQueries[K, V]: ...
    @overload
    def store(
        self,
        name: str,
        key: SerdeOrType[K],
        value: SerdeOrType[V],
        *,
        timestamped: Literal[True],
        partition: int | None = None,
        isolation: IsolationLevel | None = None,
        stale: bool = False,
        timeout_ms: int | timedelta = 10_000,
    ) -> StoreQueries[K, ValueAndTimestamp[V]]: ...
    @overload
    def store(
        self,
        name: str,
        key: SerdeOrType[K],
        value: SerdeOrType[V],
        *,
        partition: int | None = None,
        isolation: IsolationLevel | None = None,
        stale: bool = False,
        timestamped: Literal[False] = False,
        timeout_ms: int | timedelta = 10_000,
    ) -> StoreQueries[K, V]: ...
    @overload
    def store(
        self,
        name: str,
        *,
        partition: int | None = None,
        isolation: IsolationLevel | None = None,
        stale: bool = False,
        timestamped: bool = False,
        headers: bool = False,
        timeout_ms: int | timedelta = 10_000,
    ) -> StoreQueries[Any, Any]: ...
    def store(
        self,
        name: str | QueryableStore[Any, Any],
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        *,
        partition: int | None = None,
        isolation: IsolationLevel | None = None,
        stale: bool = False,
        timestamped: bool = False,
        headers: bool = False,
        timeout_ms: int | timedelta = 10_000,
    ) -> StoreQueries[Any, Any]:
        """Return a reader of a store.

        For example `await app.store("counts").get(key)`, or `async for key, value in
        app.store("counts").range("a", "k")`. With the types of its keys and values, or their
        serdes, or with `Table.queryable()` instead of the name, the answers are typed:
        `app.store("counts", str, int)`. Values of versioned stores are VersionedRecords, which such
        types cannot express: give only the name.

        It reads the store on this instance: one `partition`, or all local partitions. `isolation`
        defaults to the setting `default_interactive_query_isolation_level`. `stale` allows
        standbys, and tasks that are still being restored. `timestamped` gives each value with its
        timestamp, `headers` with timestamp and headers, of sessions with headers. A read waits at
        most `timeout_ms` for a task that a thread processes. Raises UnknownStore, QueryFailed for a
        store without timestamps or headers, and for serdes that are not the store's.
        """
        timeout_ms = check_timeout(timeout_ms)
        if not isinstance(name, str):
            key, value, name = name.key, name.value, name.name
        of = f"store {name}"
        self._local.check_serdes(
            name, serde_of(key, role="key", of=of), serde_of(value, role="value", of=of)
        )
        local = self._local
        how = queries.How(name, partition, local.committed(isolation), stale, timeout_ms)
        return queries.StoreQueries(
            queries.LocalReach(local),
            local.spec(name),
            how,
            timestamped=timestamped,
            headers=headers,
        )

    async def query(
        self, request: StateQueryRequest[R], timeout_ms: int | timedelta = 10_000
    ) -> StateQueryResult[R]:
        """Query a store's partitions on this instance, with a bound on their position (KIP-796).

        Each partition gives its answer, or the reason why it has none. Raises UnknownStore and
        NotRunning.
        """
        timeout_ms = check_timeout(timeout_ms)
        return await queries.answer(self._local, request, timeout_ms)

    async def store_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return the lag behind the changelog, by store and partition on this instance.

        Raises NotRunning.
        """
        self._local.check_running()
        if self._log is None:
            raise NotRunning(NOT_STARTED)
        return await queries.lags(self._local, self._log)
