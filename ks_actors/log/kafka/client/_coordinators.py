"""The coordinators of groups and transactional ids."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._rounds import Rounds
from ks_actors.log.kafka.wire import (
    COORDINATOR_NOT_AVAILABLE,
    RETRIABLE,
    SOON,
    STALE_METADATA,
    FindCoordinatorRequest,
    error_of,
    name_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

GROUP: Final = 0
TRANSACTION: Final = 1
_KINDS: Final = {GROUP: "group", TRANSACTION: "transactional id"}
_TOPICS: Final = {GROUP: "offsets.topic", TRANSACTION: "transaction.state.log"}


def name_of_coordinator(kind: int, key: str) -> str:
    """Return the name of a coordinator in errors."""
    return f"the coordinator of {_KINDS[kind]} {key}"


@final
class Coordinators:
    """The coordinators that the clients of one loop know; each lookup asks another broker."""

    __slots__ = ("_nodes", "_rounds")

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, str], int] = {}
        self._rounds: defaultdict[tuple[int, str], Rounds] = defaultdict(Rounds)

    def known(self, kind: int, key: str) -> int | None:
        """Return the coordinator's broker; None before `find`, or after `lose`."""
        return self._nodes.get((kind, key))

    def lose(self, kind: int, key: str) -> None:
        """Forget the broker: it may no longer have this role."""
        self._nodes.pop((kind, key), None)

    async def find(
        self, kind: int, key: str, ask: Callable[[Rounds, Any], Awaitable[tuple[int, Any]]]
    ) -> Any:
        """Ask for the coordinator; return the answer that names it.

        Raises Unavailable, NotAuthorized.
        """
        _, answer = await ask(self._rounds[kind, key], FindCoordinatorRequest(key, kind))
        who = name_of_coordinator(kind, key)
        if answer.error_code == COORDINATOR_NOT_AVAILABLE:
            raise Unavailable(
                f"the brokers have no coordinator of {_KINDS[kind]} {key} yet "
                f"({name_of(answer.error_code)}): if that lasts, check that the cluster has at "
                f"least {_TOPICS[kind]}.replication.factor brokers",
                refresh=False,
            )
        raise_retriable([answer.error_code], f"a broker that was asked for {who}")
        if answer.error_code:
            raise error_of(answer.error_code, f"failed to find {who}", answer.error_message)
        self._nodes[kind, key] = answer.coordinator_id
        return answer


def raise_retriable(codes: Iterable[int], who: str) -> None:
    """Raise Unavailable for the first retriable code among the error codes that `who` answered."""
    for code in codes:
        if code in RETRIABLE:
            raise Unavailable(
                f"{who} answered {name_of(code)}",
                refresh=code in STALE_METADATA,
                soon=code in SOON,
            )
