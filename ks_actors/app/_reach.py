"""The app's part in queries across instances: its server, and its calls of other instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

from ks_actors._errors import ConfigError, FailureReason, QueryFailed
from ks_actors.config import split_server
from ks_actors.lifecycle import in_thread
from ks_actors.records import TaskId
from ks_actors.system import Later
from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.config import StreamsConfig
    from ks_actors.log import Lease
    from ks_actors.query import LocalStores
    from ks_actors.query.remote import (
        AppMap,
        Caller,
        Endpoint,
        Everywhere,
        Here,
        InstanceEndpoint,
        KeyOwner,
        QueryServer,
        StoreFacts,
        Wire,
    )
    from ks_actors.runtime.membership import MemberStatus
    from ks_actors.task import TaskParts
    from ks_actors.topology import StoreSpec, Topology

if TYPE_CHECKING:
    from ks_actors.query import remote
else:
    remote = Later("ks_actors.query.remote")


@final
class AppReach:
    """Serve the stores of an app at its `application_server`, and ask other instances for theirs.

    Entering it binds the address, before the app joins its group and tells it the address.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        local: LocalStores,
        *,
        parts: Callable[[], TaskParts],
        lease: Callable[[], Lease],
        status: Callable[[], MemberStatus],
    ) -> None:
        self._topology = topology
        self._config = config
        self._local = local
        self._parts = parts
        self._lease = lease
        self._status = status
        self._server: QueryServer | None = None
        self._caller: Caller | None = None
        self._wires: dict[str, Wire] = {}

    async def __aenter__(self) -> Self:
        config = self._config
        if config.application_server is not None:
            found = split_server(config.application_server)
            assert found is not None
            context = await in_thread(
                remote.server_context,
                config.query_ssl_certificate_location,
                config.query_ssl_key_location,
            )
            server = remote.QueryServer(self._here(), self.described, config.query_token)
            at = remote.Endpoint(*found)
            try:
                await server.start(at, context)
            except OSError as error:
                raise ConfigError(
                    f"application_server: {config.application_server} cannot be listened at: "
                    f"{error.strerror or error}"
                ) from error
            self._server = server
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._caller is not None:
            self._caller.close()
        if self._server is not None:
            await self._server.close()

    def address(self) -> str:
        """Return the URL to tell the group; empty without a server."""
        return "" if self._server is None else str(self._server.endpoint)

    # The map.

    def endpoints(self) -> tuple[InstanceEndpoint, ...]:
        """Return all instances as of the last assignment; none if no instance has an endpoint.

        Raises NotRunning.
        """
        self._local.check_running()  # else the map would be that of the end
        return tuple(
            remote.InstanceEndpoint(
                self._endpoint(host.endpoint),
                frozenset(TaskId(*task) for task in host.active),
                frozenset(TaskId(*task) for task in host.standbys),
            )
            for host in self._status().hosts
        )

    def _endpoint(self, address: str) -> Endpoint | None:
        """Return the endpoint of a member; None without one, and for one that is malformed."""
        try:
            return remote.Endpoint.of(address) if address else None
        except ValueError:
            return None  # the other instances can be asked all the same

    async def refresh(self) -> None:
        """Do nothing: the group tells its members of each change."""

    def facts(self, store: str) -> StoreFacts:
        """Return the facts about a store. Raises UnknownStore."""
        local, spec = self._local, self._local.spec(store)
        topic = spec.source_topic or self._parts().topics.changelog(store)
        if local.is_global(store):
            return remote.StoreFacts(spec.kind.value, None, 0, topic)
        return remote.StoreFacts(
            spec.kind.value,
            local.subtopology(store),
            local.partitions(store),
            topic,
            grouped=self._parts().topics.grouping.custom,
            tasks=local.grouped(store),
        )

    def described(self) -> AppMap:
        """Return the map of the app. Raises NotRunning."""
        self._local.check_running()
        stores = (*self._topology.stores, *self._topology.global_stores)
        return remote.AppMap(
            self._status().generation,
            self.endpoints(),
            {name: self.facts(name) for name in stores},
            self._local.committed(None),
        )

    def owner(self, store: str, key: Any) -> KeyOwner:
        """Return the instances with the partition of a key."""
        self._local.check_running()
        facts = self.facts(store)
        encoded = self._wire(store).keys.key_bytes(key)
        partition = facts.home(store, encoded)
        return remote.owner_of(self.endpoints(), facts, partition, self._status().tasks)

    # Queries.

    def _here(self) -> Here:
        return remote.Here(self._local, self._wire, lambda: self._lease().holds())

    def _wire(self, store: str) -> Wire:
        found = self._wires.get(store)
        if found is None:
            spec = self._complete(store)
            found = remote.Wire(spec, self.facts(store).topic)
            self._wires[store] = found
        return found

    def _complete(self, store: str) -> StoreSpec:
        self._local.check_running()
        spec = self._local.spec(store)
        if spec.kind is StoreKind.CUSTOM:
            raise QueryFailed(
                f"store {store} is a custom store: only its own instance can query it",
                reason=FailureReason.UNKNOWN_QUERY_TYPE,
                store=store,
            )
        (complete,) = self._parts().stores.complete({store: spec})
        return complete

    def everywhere(self, store: str) -> Everywhere:
        """Return the reach over all instances for one store. Raises NotRunning."""
        wire, config = self._wire(store), self._config
        if self._caller is None:
            self._caller = remote.Caller(
                config.query_token,
                authorities=config.query_ssl_ca_location,
                insecure=config.query_insecure,
            )
        return remote.Everywhere(self, self._caller, wire, self._here())
