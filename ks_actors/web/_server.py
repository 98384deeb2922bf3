"""The servers of an app's page and probes, on the app's own event loop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, final
from urllib.parse import quote

import uvicorn

from ks_actors.web._create_app import create_app, create_probes
from ks_actors.web._security import LOOPBACK, checked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator

    from starlette.applications import Starlette

    from ks_actors.app import App
    from ks_actors.runtime import HealthBounds

_CLOSE_S = 2


@final
class PageServer:
    """A page that is being served, with its address; `link` has the token after a `#`."""

    def __init__(self, url: str, token: str | None, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close
        self.url: str = url
        """The address of the page."""
        self.token: str | None = token
        """The token for orders that change something; None if there are no such orders."""

    @property
    def link(self) -> str:
        """The address to open in a browser; it contains the token, if any: keep it secret."""
        # Escaped: a + would be read as a space, and an & as the end.
        return self.url if self.token is None else f"{self.url}#token={quote(self.token, safe='')}"

    async def close(self) -> None:
        """Stop serving; the end of the block does the same."""
        await self._close()

    def __repr__(self) -> str:
        return f"<PageServer at {self.url}>"


@asynccontextmanager
async def serve_page(
    app: App,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    bounds: HealthBounds | None = None,
    dead_letter_topics: Collection[str] | None = None,
) -> AsyncIterator[PageServer]:
    """Serve the HTTP API and page of an app while the block runs, on this event loop.

    `async with serve_page(app, port=8080) as page: print(page.link)`. Port 0 is any free port. On
    loopback, the default, only requests for a loopback name are answered. Nothing is encrypted, so
    put a proxy in front for other hosts. The other options are those of `create_app`. No signal
    handler is installed. Raises OSError when the address is taken, ValueError for a bad token.
    """
    token = None if token is None else checked(token)
    with socket.create_server((host, port), family=_family(host)) as listening:
        made = create_app(
            app,
            token=token,
            bounds=bounds,
            dead_letter_topics=dead_letter_topics,
            allowed_hosts=(*LOOPBACK, host) if _is_loopback(listening) else None,
        )
        async with _serving(made, listening, made.state.events.close) as close:
            yield PageServer(_url(host, listening), token, close)


@asynccontextmanager
async def serve_probes(
    app: App, *, host: str = "127.0.0.1", port: int = 0, bounds: HealthBounds | None = None
) -> AsyncIterator[str]:
    """Serve `/health`, `/ready` and `/metrics` alone while the block runs; yield the address.

    The routes are for the probes of an orchestrator and for Prometheus, also on other hosts: they
    change nothing and show no records, only names of topics, stores and nodes. Port 0 is any free
    port. The server runs on this event loop, and answers before the app has started: the app is
    then live, but not ready. `bounds` are the limits of `/health` and `/ready`. Raises OSError when
    the address is taken.
    """
    with socket.create_server((host, port), family=_family(host)) as listening:
        made = create_probes(app, bounds=bounds)
        async with _serving(made, listening, lambda: None):
            yield _url(host, listening)


@asynccontextmanager
async def _serving(
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
    serving = asyncio.create_task(server.serve([listening]))

    async def close() -> None:
        end()
        server.should_exit = True
        await asyncio.shield(serving)
        listening.close()

    try:
        yield close
    finally:
        await close()


def _url(host: str, listening: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


def _is_loopback(listening: socket.socket) -> bool:
    return ip_address(listening.getsockname()[0]).is_loopback


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program."""
        yield
