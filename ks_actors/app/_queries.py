"""Queries of an app's stores, on this instance."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ks_actors._errors import NotRunning
from ks_actors.app._checks import NOT_STARTED
from ks_actors.app._history import AppOverHistory
from ks_actors.app._reach import AppReach
from ks_actors.lifecycle import check_timeout
from ks_actors.serdes import serde_of
from ks_actors.system import Later

if TYPE_CHECKING:
    from datetime import timedelta

    from ks_actors.log import IsolationLevel, PatientLog
    from ks_actors.query import (
        InstanceEndpoint,
        KeyOwner,
        LagInfo,
        LocalStores,
        StateQueryRequest,
        StateQueryResult,
        StoreQueries,
    )
    from ks_actors.runtime.instance import Instance
    from ks_actors.runtime.membership import MemberStatus
    from ks_actors.serdes import SerdeOrType
    from ks_actors.state import ValueAndTimestamp
    from ks_actors.task import TaskParts
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

    _log: PatientLog | None = None
    _local: LocalStores
    _instance: Instance | None = None

    @cached_property
    def _reach(self) -> AppReach:
        return AppReach(
            self._topology,
            self.config,
            self._local,
            parts=self._shared_parts,
            lease=lambda: self._begun_instance().lease,
            status=self._member_status,
        )

    def _shared_parts(self) -> TaskParts:
        raise NotImplementedError

    def _begun_instance(self) -> Instance:
        if self._instance is None:
            raise NotRunning(NOT_STARTED)
        return self._instance

    def _member_status(self) -> MemberStatus:
        parts = self._begun_instance().parts
        if parts is None:
            raise NotRunning(NOT_STARTED)
        return parts.member.status()

    @overload
    def store(
        self,
        name: QueryableStore[K, V],
        *,
        timestamped: Literal[True],
        partition: int | None = None,
        isolation: IsolationLevel | None = None,
        stale: bool = False,
        everywhere: bool = False,
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
        everywhere: bool = False,
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
        everywhere: bool = False,
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
        everywhere: bool = False,
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
        everywhere: bool = False,
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
        everywhere: bool = False,
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

        It reads the store on this instance: one `partition`, or all local partitions. `everywhere`
        reads the partitions of all instances with `application_server`, and tries again for at most
        `timeout_ms` while some of them move or restore; it needs the extra `query`. `isolation`
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
            self._reach.everywhere(name) if everywhere else queries.LocalReach(local),
            local.spec(name),
            how,
            timestamped=timestamped,
            headers=headers,
        )

    def owner(self, store: str | QueryableStore[Any, Any], key: Any) -> KeyOwner:
        """Return the instances with the partition where Kafka's partitioner puts a key.

        Raises UnknownStore, NotRunning, and SerializationError for a key that is none of the
        store's.
        """
        return self._reach.owner(store if isinstance(store, str) else store.name, key)

    def endpoints(self) -> tuple[InstanceEndpoint, ...]:
        """Return all instances of the app with their endpoints and tasks.

        They are those of the last assignment; none if no instance has `application_server`. Raises
        NotRunning before the start and after the end.
        """
        return self._reach.endpoints()

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
