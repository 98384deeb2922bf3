"""The servers of an app's page and probes, on the app's own event loop."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final
from urllib.parse import quote

from ks_actors.web._create_app import create_app, create_probes
from ks_actors.web._security import LOOPBACK, checked
from ks_actors.web._serving import is_loopback, listen, serving, url_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection
    from pathlib import Path

    from ks_actors.app import App
    from ks_actors.runtime import HealthBounds


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
    with listen(host, port) as listening:
        made = create_app(
            app,
            token=token,
            bounds=bounds,
            dead_letter_topics=dead_letter_topics,
            allowed_hosts=(*LOOPBACK, host) if is_loopback(listening) else None,
        )
        made.state.events.trends.begin()
        async with serving(made, listening, made.state.events.close) as close:
            yield PageServer(url_of(host, listening), token, close)


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
    with listen(host, port) as listening:
        made = create_probes(app, bounds=bounds)
        async with serving(made, listening, lambda: None):
            yield url_of(host, listening)


@asynccontextmanager
async def serve_member(app: App, path: Path, *, token: str | None = None) -> AsyncIterator[None]:
    """Serve the HTTP API and page of a member at a Unix socket, for its supervisor.

    Raises OSError, and ValueError for a bad token.
    """
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        made = create_app(app, token=token)
        made.state.events.trends.begin()
        async with serving(made, listening, made.state.events.close):
            yield
