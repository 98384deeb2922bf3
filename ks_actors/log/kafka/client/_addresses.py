"""Connect to a name with several addresses."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ks_actors.lifecycle import in_thread
from ks_actors.log.kafka.client._racing import NoneAnswered, first_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")

# Seconds before the next address is tried beside those that have not answered (RFC 8305).
_NEXT_S: Final = 0.25
# The longer wait (s) once an address has accepted the connection: TLS and a login take longer.
_ACCEPTED_S: Final = 1.0


class _Address(NamedTuple):
    """An address in the form that sockets take."""

    family: int
    kind: int
    protocol: int
    where: tuple[Any, ...]

    @property
    def name(self) -> str:
        return str(self.where[0])


class NoAddress(OSError):
    """No address of a name can be used; `failures` has the error of each address."""

    def __init__(self, tried: dict[str, str], failures: Iterable[Exception]) -> None:
        super().__init__(f"none of its addresses answers: {listed(tried)}")
        self.failures: tuple[Exception, ...] = tuple(failures)


async def connect_to_any(
    host: str,
    port: int,
    tried: dict[str, str],
    use: Callable[[socket.socket], Coroutine[Any, Any, T]],
    *,
    others_may: Callable[[BaseException], bool],
    unwanted: Callable[[T], object],
) -> T:
    """Return the result of `use` on a socket that is connected to one of a name's addresses.

    The addresses are tried in turn. The next address is tried when the previous address has failed
    or has been silent for a moment: an address may drop all packets, before or after it has
    accepted a connection. `unwanted` closes the sockets of slower addresses. `tried` gets each
    address with its failure, also if this call is cancelled. Raises an error at once if
    `others_may` is false for it. If all fail, raises the error of the only address, or NoAddress.
    """
    accepted = set[_Address]()

    async def attempt(address: _Address) -> T:
        tried[address.name] = "no answer"
        try:
            connected = await _connect(address)
            accepted.add(address)
            tried[address.name] = "accepted, then no answer"
            return await use(connected)
        except Exception as error:
            text = error.strerror if isinstance(error, OSError) else None
            tried[address.name] = text or str(error) or type(error).__name__
            raise

    try:
        return await first_answer(
            _in_turns(await _addresses(host, port)),
            attempt,
            patience_s=lambda address: _ACCEPTED_S if address in accepted else _NEXT_S,
            others_may=others_may,
            unwanted=unwanted,
            may_take_long=lambda _: True,
        )
    except NoneAnswered as none:
        failures = list(none.failures.values())
        if len(failures) == 1:
            raise failures[0] from None
        raise NoAddress(tried, failures) from failures[-1]


def listed(tried: dict[str, str]) -> str:
    """Return the addresses of `connect_to_any`, each with its failure."""
    return ", ".join(f"{address} ({failure})" for address, failure in tried.items())


async def _addresses(host: str, port: int) -> list[_Address]:
    def look_up(flags: int) -> list[_Address]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        return [_Address(family, kind, number, where) for family, kind, number, _, where in found]

    with suppress(OSError):
        # An address needs no thread to be looked up.
        return look_up(socket.AI_NUMERICHOST)
    return await in_thread(look_up, 0, name=f"look up {host}")


def _in_turns(addresses: Iterable[_Address]) -> Iterable[_Address]:
    """Return the addresses with their families alternating: often a whole family has no route."""
    families: dict[int, list[_Address]] = {}
    for address in addresses:
        families.setdefault(address.family, []).append(address)
    turns = chain.from_iterable(zip_longest(*families.values()))
    return [address for address in turns if address is not None]


async def _connect(address: _Address) -> socket.socket:
    made = socket.socket(address.family, address.kind, address.protocol)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address.where)
    except BaseException:
        made.close()
        raise
    return made
