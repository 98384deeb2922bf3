"""A network in memory, for queries across instances in virtual time: real connections would stop the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Pipe(asyncio.Transport):
    """One end of a connection; what is written arrives in the next turn of the loop."""

    def __init__(self, protocol: asyncio.StreamReaderProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.peer: Pipe | None = None
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and self.peer is not None:
            asyncio.get_running_loop().call_soon(self.peer.arrive, bytes(data))

    def arrive(self, data: bytes) -> None:
        if not self._closing:
            self.protocol.data_received(data)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self.protocol.connection_lost, None)
            if self.peer is not None:
                loop.call_soon(self.peer.ended)

    abort = close

    def ended(self) -> None:
        if not self._closing:
            self.protocol.eof_received()
            self.close()

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._closing

    def pause_reading(self) -> None:
        """Do nothing: all that is written arrives."""

    def resume_reading(self) -> None:
        """Do nothing, likewise."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Listening:
    """A server's place in the network."""

    def __init__(self, network: Network, at: tuple[str, int]) -> None:
        self._network = network
        self._at = at

    @property
    def sockets(self) -> tuple[Listening]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self._at

    def close(self) -> None:
        self._network.servers.pop(self._at, None)


class Network:
    """The servers of a test by their addresses; it takes the place of asyncio's connections."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.servers: dict[tuple[str, int], Connected] = {}
        self._next = 1
        patch.setattr(asyncio, "start_server", self.start_server)
        patch.setattr(asyncio, "open_connection", self.open_connection)

    async def start_server(self, connected: Connected, host: str, port: int, **_: Any) -> Listening:
        at = host, port or self._next
        self._next += 1
        if at in self.servers:
            raise OSError(f"{at} is taken")
        self.servers[at] = connected
        return Listening(self, at)

    async def open_connection(self, host: str, port: int, **_: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await asyncio.sleep(0)
        connected = self.servers.get((host, port))
        if connected is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        loop = asyncio.get_running_loop()
        reader, there = asyncio.StreamReader(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        mine, yours = Pipe(protocol), Pipe(asyncio.StreamReaderProtocol(there, connected))
        mine.peer, yours.peer = yours, mine
        yours.protocol.connection_made(yours)
        protocol.connection_made(mine)
        return reader, asyncio.StreamWriter(mine, protocol, reader, loop)
