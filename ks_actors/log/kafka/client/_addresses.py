"""Connect to a name with several addresses."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# Seconds before the next address is tried beside those that have not answered (RFC 8305).
_NEXT_S: Final = 0.25


class _Address(NamedTuple):
    """An address, as sockets take it."""

    family: int
    kind: int
    protocol: int
    where: tuple[Any, ...]

    @property
    def name(self) -> str:
        return str(self.where[0])


async def connect_to_any(host: str, port: int, tried: dict[str, str]) -> socket.socket:
    """Return a socket that is connected to one of a name's addresses.

    They are tried in turn, each next one as soon as those before it have failed, or have been
    silent for a moment: an address may swallow all that is sent to it. `tried` gets each address
    with its failure, also if this is cancelled. Raises OSError when all of them fail.
    """
    left = deque(_in_turns(await _addresses(host, port)))
    attempts: dict[asyncio.Task[socket.socket], _Address] = {}
    error: BaseException | None = None
    try:
        while left or attempts:
            if left:
                address = left.popleft()
                tried[address.name] = "no answer"
                attempt = asyncio.create_task(
                    _connect(address), name=f"connect to {address.name}:{port}"
                )
                attempts[attempt] = address
            done, _ = await asyncio.wait(
                attempts,
                timeout=_NEXT_S if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                error = attempt.exception()
                if error is None:
                    del attempts[attempt]
                    return attempt.result()
                if not isinstance(error, OSError):
                    raise error
                tried[attempts.pop(attempt).name] = error.strerror or str(error)
        if len(tried) == 1 and error is not None:
            raise error
        raise OSError(f"none of its addresses answers: {listed(tried)}")
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_close)
        if attempts:
            await asyncio.wait(attempts)


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
    return await asyncio.get_running_loop().run_in_executor(None, look_up, 0)


def _in_turns(addresses: Iterable[_Address]) -> Iterable[_Address]:
    """Return addresses of each family in turn: often it is a whole family that has no route."""
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


def _close(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that is no longer needed."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
