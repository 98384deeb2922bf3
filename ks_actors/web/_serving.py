"""An ASGI application on a socket, served on the running event loop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from starlette.applications import Starlette

_CLOSE_S = 2


@asynccontextmanager
async def serving(
    made: Starlette, listening: socket.socket, end: Callable[[], None]
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Serve an ASGI application; yield a function that closes it, and first calls `end`."""
    server = _Server(
        uvicorn.Config(
            made,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=_CLOSE_S,
        )
    )
    task = asyncio.create_task(server.serve([listening]))

    async def close() -> None:
        end()
        server.should_exit = True
        await asyncio.shield(task)
        listening.close()

    try:
        yield close
    finally:
        await close()


def url_of(host: str, listening: socket.socket) -> str:
    """Return the address of a server."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


def is_loopback(listening: socket.socket) -> bool:
    """Return whether only this machine reaches a socket."""
    return ip_address(listening.getsockname()[0]).is_loopback


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Raises OSError when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program."""
        yield
