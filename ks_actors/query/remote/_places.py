"""The instances of an app: their endpoints and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self, final

import msgspec

from ks_actors._errors import FailureReason, QueryFailed
from ks_actors.config import is_loopback, split_server
from ks_actors.records import TaskId
from ks_actors.records import partition as partition_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence


class Endpoint(NamedTuple):
    """The address at which an instance answers queries; `tls` if it speaks https."""

    host: str
    port: int
    tls: bool = False

    @classmethod
    def of(cls, address: str) -> Self:
        """Return the endpoint of `host:port`, or of an `http://` or `https://` URL.

        An IPv6 address has brackets. Raises ValueError.
        """
        scheme, mark, rest = address.strip().rpartition("://")
        found = split_server(rest.removesuffix("/"))
        if found is None or (scheme if mark else "http") not in ("http", "https"):
            # Do not show it: people put logins into URLs.
            raise ValueError("an address is not host:port, such as https://10.0.0.5:7070")
        return cls(*found, scheme == "https")

    @property
    def is_loopback(self) -> bool:
        """Whether only processes on this machine can reach the endpoint."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


@final
class InstanceEndpoint(msgspec.Struct, frozen=True):
    """An instance of the app, with its endpoint and tasks.

    `endpoint` is None for an instance without `application_server`. A task that is to move counts
    for its owner until the owner has given it up.
    """

    endpoint: Endpoint | None
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

    `subtopology` is None for a global store, which every instance has as a whole. The store is
    `grouped` if a user's partition grouper makes its tasks; `tasks` are their numbers, which may
    have gaps.
    """

    kind: str
    subtopology: int | None
    partitions: int
    topic: str
    grouped: bool = False
    tasks: tuple[int, ...] = ()

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of all partitions; 0 for a global store."""
        if self.grouped:
            return self.tasks
        return range(1 if self.subtopology is None else self.partitions)

    def home(self, store: str, key: bytes) -> int:
        """Return the partition where Kafka's partitioner puts a key; 0 for a global store.

        Raises QueryFailed for a grouped store: only its grouper knows.
        """
        if self.grouped:
            raise not_present(
                f"store {store}: a partition grouper decides which task has a key, so pass "
                "`partition`",
                store,
            )
        if self.subtopology is None or not self.partitions:
            return 0
        return partition_of(key, self.partitions)


class AppMap(msgspec.Struct, frozen=True):
    """The instances of an app in a `generation` of its group, and its stores.

    `committed` says whether the app's default isolation is that of committed rows.
    """

    generation: int
    instances: tuple[InstanceEndpoint, ...]
    stores: dict[str, StoreFacts]
    committed: bool


def owner_of(
    instances: Iterable[InstanceEndpoint],
    facts: StoreFacts,
    partition: int,
    here: Container[TaskId] = (),
) -> KeyOwner:
    """Return the instances with a partition of a store; `here` are the caller's own tasks."""
    task = TaskId(facts.subtopology if facts.subtopology is not None else -1, partition)
    active, standbys = None, []
    for one in instances:
        if task in one.active:
            active = one.endpoint
        elif task in one.standbys and one.endpoint is not None:
            standbys.append(one.endpoint)
    return KeyOwner(partition, active, tuple(standbys), task in here)


def not_present(text: str, store: str, partition: int | None = None) -> QueryFailed:
    """Return the error for a partition that no reachable instance has."""
    return QueryFailed(text, reason=FailureReason.NOT_PRESENT, store=store, partition=partition)
