"""A client of an app's stores, for programs that run no app."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, final, overload

from ks_actors._errors import (
    ConfigError,
    LogError,
    NotRunning,
    SerializationError,
    UnknownStore,
)
from ks_actors.assignment import decode_member
from ks_actors.config import opened, query_token
from ks_actors.lifecycle import check_timeout, component_log
from ks_actors.log import IsolationLevel, TellsGroups
from ks_actors.query._reach import How
from ks_actors.query._store import StoreQueries
from ks_actors.query.remote._caller import Caller, Unreachable
from ks_actors.query.remote._everywhere import Everywhere
from ks_actors.query.remote._places import Endpoint, not_present, owner_of
from ks_actors.query.remote._rows import Wire
from ks_actors.serdes import serde_of
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    import ssl as tls
    from collections.abc import Iterable
    from datetime import timedelta
    from pathlib import Path

    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log
    from ks_actors.query.remote._places import AppMap, InstanceEndpoint, KeyOwner, StoreFacts
    from ks_actors.serdes import SerdeOrType
    from ks_actors.state import ValueAndTimestamp

K = TypeVar("K")
V = TypeVar("V")
_log = component_log(__name__)
_ASK_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 0.1
"""A shorter time between two lookups of the map would load the instances that still answer."""


@final
class Client:
    """Read the stores of a running app from a program that runs none.

    For example `async with Client(["https://10.0.0.5:7070"], token=…) as client: ...`.

    `addresses` are those of some instances, their settings `application_server`: `http://host:port`
    or `https://host:port`, or of a load balancer in front of them. The client asks one of them for
    the addresses of all, and then each instance for its own partitions. `token` is the app's
    `query_token`. `ssl` is the context by which certificates are checked (default: the system's
    certificates). The token goes only to `https` addresses and to this machine, unless `insecure`.

    Entering the block waits at most `timeout_ms` for an instance. Raises QueryFailed (NOT_PRESENT)
    when none answers, and ConfigError for a wrong token, a certificate that is not accepted, and
    for addresses that are none. After the block the client knows no instance. Needs the extra
    `query`.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        *,
        token: str | None = None,
        ssl: tls.SSLContext | None = None,
        timeout_ms: int | timedelta = 10_000,
        insecure: bool = False,
    ) -> None:
        if isinstance(addresses, str):
            raise ConfigError("addresses is a text: give a list of addresses")
        try:
            self._seeds: tuple[Endpoint, ...] = tuple(map(Endpoint.of, addresses))
        except ValueError as error:
            raise ConfigError(f"addresses: {error}") from None
        if not self._seeds:
            raise ConfigError("addresses has no address: give that of an instance")
        self._group: StreamsConfig | None = None
        self._given_log: Log | None = None
        self._start(token, ssl, timeout_ms, insecure=insecure)

    def _start(
        self,
        token: str | None,
        ssl: tls.SSLContext | None,
        timeout_ms: int | timedelta,
        *,
        insecure: bool,
        authorities: Path | None = None,
    ) -> None:
        try:
            secret = None if token is None else query_token(token)
        except ValueError as error:
            raise ConfigError(f"token {error}") from None
        self._caller = Caller(
            secret,
            ssl,
            authorities=authorities,
            insecure=insecure,
        )
        self._timeout_ms = check_timeout(timeout_ms)
        self._log: Log | None = None
        self._stack = AsyncExitStack()
        self._map: AppMap | None = None
        self._turn = 0
        self._looked_at = float("-inf")
        self._looking: asyncio.Future[None] | None = None

    @classmethod
    def of_group(
        cls,
        config: StreamsConfig,
        *,
        log: Log | None = None,
        timeout_ms: int | timedelta = 10_000,
    ) -> Self:
        """Return a client that finds the instances in the app's group, on its Kafka.

        `config` has the application id, the address and login of Kafka, and `query_token` and
        `query_ssl_ca_location` where the app has them. The client is no member of the group.
        `log` is an open log to use in place of the config's. Raises as the constructor and LogError
        when Kafka does not answer.
        """
        made = cls.__new__(cls)
        made._seeds = ()
        made._group = config
        made._given_log = log
        made._start(
            config.query_token,
            None,
            timeout_ms,
            insecure=config.query_insecure,
            authorities=config.query_ssl_ca_location,
        )
        return made

    def __repr__(self) -> str:
        if self._group is not None:
            return f"<Client of group {self._group.application_id}>"
        return f"<Client of {', '.join(map(str, self._seeds))}>"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._group is not None:
                self._log = await stack.enter_async_context(opened(self._group, self._given_log))
            stack.callback(self._caller.close)
            await self._find_instances()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._map = None

    async def _find_instances(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_ms / 1000
        error: Exception | None = None
        try:
            async with asyncio.timeout_at(deadline):
                while (error := await self._look()) is not None:
                    if loop.time() + _AGAIN_SECONDS >= deadline:
                        raise not_present(f"no instance answers: {error}", "") from error
                    await asyncio.sleep(_AGAIN_SECONDS)
        except TimeoutError as late:
            why = error or f"the deadline of {self._timeout_ms} ms is over"
            raise not_present(f"no instance answers: {why}", "") from late

    # The map.

    async def _look(self) -> Exception | None:
        """Ask instances in turn for a map that is not older; return the error if none answers.

        Raises ConfigError if none answers and an instance refuses this client.
        """
        known = self._map
        endpoints = dict.fromkeys(self._known_endpoints())
        # In a group all members may have been replaced since the last lookup.
        seeds = self._seeds if self._log is None else await self._members(self._log)
        for seed in seeds:
            endpoints.setdefault(seed)
        order = list(endpoints)
        self._turn += 1
        failed: Exception | None = None
        refused: ConfigError | None = None
        best: AppMap | None = None
        for number in range(len(order)):
            endpoint = order[(self._turn + number) % len(order)]
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    found = await self._caller.map(endpoint)
            except (Unreachable, NotRunning, TimeoutError) as error:
                failed = error if str(error) else Unreachable(f"{endpoint} does not answer in time")
                continue
            except ConfigError as error:
                refused = error  # of this instance: it may have an old certificate, for one
                continue
            if best is None or found.generation > best.generation:
                best = found
            if known is None or found.generation >= known.generation:
                break
        # All maps may be older: a group that was created anew counts from the beginning.
        if best is None:
            if refused is not None:
                raise refused
            return failed or Unreachable("no address is known")
        self._map = best
        return None

    async def _members(self, log: Log) -> list[Endpoint]:
        """Return the endpoints that the members of the group have told it."""
        assert self._group is not None
        if not isinstance(log, TellsGroups):
            raise ConfigError("Client.of_group: this log describes no groups: give addresses")
        try:
            members = await log.group_members(self._group.application_id)
        except LogError:
            # Known instances may answer all the same.
            _log.warning("the members of the group cannot be looked up", exc_info=True)
            return []
        found = []
        for member in members:
            # Members of another program have data of their own, and no endpoint.
            with suppress(SerializationError, ValueError):
                found.append(Endpoint.of(decode_member(member.user_data).endpoint))
        return found

    def _known_endpoints(self) -> list[Endpoint]:
        return [one.endpoint for one in self.endpoints() if one.endpoint is not None]

    async def refresh(self) -> None:
        """Look again at the instances and their tasks; queries that fail do it by themselves.

        Calls at the same time are one lookup. Instances that do not answer are left out.
        """
        loop = asyncio.get_running_loop()
        if self._looking is None:
            if loop.time() - self._looked_at < _AGAIN_SECONDS:
                return
            self._looking = asyncio.ensure_future(self._looked())
        await asyncio.shield(self._looking)

    async def _looked(self) -> None:
        try:
            await self._look()
        finally:
            self._looking = None
            self._looked_at = asyncio.get_running_loop().time()

    def endpoints(self) -> tuple[InstanceEndpoint, ...]:
        """Return the instances of the app with their endpoints and tasks, as last known."""
        return () if self._map is None else self._map.instances

    def _facts(self, store: str) -> tuple[AppMap, StoreFacts]:
        found = self._map
        if found is None:
            raise NotRunning("the client knows no instance: use it inside `async with Client(…)`")
        facts = found.stores.get(store)
        if facts is None:
            known = ", ".join(found.stores) or "none"
            raise UnknownStore(f"the app has no store {store!r}; it has {known}")
        return found, facts

    def facts(self, store: str) -> StoreFacts:
        """Return the facts about a store, as last known. Raises UnknownStore and NotRunning."""
        return self._facts(store)[1]

    def owner(self, store: str, key: Any, serde: SerdeOrType[Any]) -> KeyOwner:
        """Return the instances with the partition where Kafka's partitioner puts a key.

        `serde` writes the store's keys. Raises UnknownStore, and SerializationError.
        """
        found, facts = self._facts(store)
        encoded = serde_of(serde, role="key", of=f"store {store}").serializer(facts.topic)(key)
        return owner_of(found.instances, facts, facts.home(store, encoded))

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
        headers: Literal[False] = False,
        timeout_ms: int | timedelta = 10_000,
    ) -> StoreQueries[K, V]: ...
    @overload
    def store(
        self,
        name: str,
        key: SerdeOrType[Any],
        value: SerdeOrType[Any],
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
        name: str,
        key: SerdeOrType[Any],
        value: SerdeOrType[Any],
        *,
        partition: int | None = None,
        isolation: IsolationLevel | None = None,
        stale: bool = False,
        timestamped: bool = False,
        headers: bool = False,
        timeout_ms: int | timedelta = 10_000,
    ) -> StoreQueries[Any, Any]:
        """Return a reader of a store over all instances, as `App.store(…, everywhere=True)` does.

        `key` and `value` are the store's serdes, or types that have one. The default isolation is
        the app's. Raises UnknownStore, and QueryFailed for a store without timestamps or headers.
        """
        timeout_ms = check_timeout(timeout_ms)
        found, facts = self._facts(name)
        of = f"store {name}"
        spec = StoreSpec(
            name=name,
            kind=StoreKind(facts.kind),
            key=serde_of(key, role="key", of=of),
            value=serde_of(value, role="value", of=of),
        )
        committed = (
            found.committed
            if isolation is None
            else IsolationLevel(isolation) is IsolationLevel.READ_COMMITTED
        )
        return StoreQueries(
            Everywhere(self, self._caller, Wire(spec, facts.topic)),
            spec,
            How(name, partition, committed, stale, timeout_ms),
            timestamped=timestamped,
            headers=headers,
        )
