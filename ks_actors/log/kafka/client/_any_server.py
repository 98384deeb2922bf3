"""Ask any broker or bootstrap server that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._racing import NoneAnswered, first_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

# Seconds for a connection, and for an answer, before the next server is asked as well.
_NEXT_S: Final = 1.0
_ANSWER_S: Final = 3.0
# The most servers in an error.
_SHOWN: Final = 5


async def ask_any(
    servers: Iterable[int],
    ask: Callable[[int], Coroutine[Any, Any, Any]],
    *,
    name: Callable[[int], str],
    connected: Callable[[int], bool],
) -> tuple[int, Any]:
    """Return the server that answered first, and its response.

    The servers are asked in turn. A silent server may be frozen, so the next server is asked as
    well: after a second without a connection, or three without an answer. Raises Unavailable with
    the failures of all servers. When all others have failed, the call does not wait for a server
    that is still connecting: a retry finds that connection, or another server that has returned.
    """

    async def answer(server: int) -> tuple[int, Any]:
        return server, await ask(server)

    try:
        return await first_answer(
            servers,
            answer,
            patience_s=lambda server: _ANSWER_S if connected(server) else _NEXT_S,
            others_may=lambda error: isinstance(error, Unavailable),
            unwanted=lambda _: None,
            may_take_long=connected,
        )
    except NoneAnswered as none:
        failures = [error for error in none.failures.values() if isinstance(error, Unavailable)]
        if len(failures) == 1 and not none.silent:
            raise failures[0] from None
        reasons = list(dict.fromkeys(str(error) for error in failures))
        reasons += [f"{name(server)} has not accepted a connection yet" for server in none.silent]
        if len(reasons) > _SHOWN:
            reasons[_SHOWN:] = [f"so do {len(reasons) - _SHOWN} others"]
        raise Unavailable(
            "; ".join(reasons),
            refresh=any(error.refresh for error in failures),
            away=all(error.away for error in failures),
            reported=all(error.reported for error in failures),
        ) from failures[-1]
