"""The instances of an app: their endpoints and tasks."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, Self, final

import msgspec

from ks_actors._errors import FailureReason, QueryFailed
from ks_actors.records import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_PORT = 65_535


class Endpoint(NamedTuple):
    """The address at which an instance answers queries: its setting `application_server`."""

    host: str
    port: int

    @classmethod
    def of(cls, address: str) -> Self:
        """Return the endpoint of `host:port`, as `[host]:port` for IPv6. Raises ValueError."""
        host, colon, port = address.strip().rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        wrong = not colon or not bare or (":" in bare) != (bare != host)
        if wrong or not (port.isascii() and port.isdecimal()) or int(port) > _MOST_PORT:
            raise ValueError(f"{address!r} is not host:port, such as 10.0.0.5:7070")
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only processes on this machine can reach the endpoint."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@final
class InstanceEndpoint(msgspec.Struct, frozen=True):
    """An instance of the app, with its endpoint and tasks.

    `endpoint` is None for an instance without `application_server`. `process_id` is the instance's
    own id, which it keeps over restarts.
    """

    endpoint: Endpoint | None
    process_id: str
    active: frozenset[TaskId] = frozenset()
    standbys: frozenset[TaskId] = frozenset()


@final
class KeyOwner(msgspec.Struct, frozen=True):
    """The instances with the partition of a key: that with its active task, and standbys.

    `active` is None while no instance has the task, or when its instance has no endpoint. `here`
    says whether this instance has the active task.
    """

    partition: int
    active: Endpoint | None
    standbys: tuple[Endpoint, ...]
    here: bool


class StoreFacts(msgspec.Struct, frozen=True):
    """The facts about a store that a caller needs to ask for it.

    `subtopology` is None for a global store, which every instance has as a whole.
    """

    kind: str
    subtopology: int | None
    partitions: int
    topic: str


class AppMap(msgspec.Struct, frozen=True):
    """The instances of an app in a `generation` of its group, and its stores.

    `committed` says whether the app's default isolation is that of committed rows.
    """

    generation: int
    instances: tuple[InstanceEndpoint, ...]
    stores: dict[str, StoreFacts]
    committed: bool


def owner_of(
    instances: Iterable[InstanceEndpoint], facts: StoreFacts, partition: int, *, here: str | None
) -> KeyOwner:
    """Return the instances with a partition of a store; `here` is the caller's own process id."""
    task = TaskId(facts.subtopology if facts.subtopology is not None else -1, partition)
    active, standbys, local = None, [], False
    for one in instances:
        if task in one.active:
            active, local = one.endpoint, one.process_id == here
        elif task in one.standbys and one.endpoint is not None:
            standbys.append(one.endpoint)
    return KeyOwner(partition, active, tuple(standbys), local)


def not_present(text: str, store: str, partition: int | None = None) -> QueryFailed:
    """Return the error for a partition that no reachable instance has."""
    return QueryFailed(text, reason=FailureReason.NOT_PRESENT, store=store, partition=partition)
