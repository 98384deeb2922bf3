"""The views of an app as server-sent events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from ks_actors.web._answers import refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from ks_actors.web._sampler import Sampler
    from ks_actors.web._trends import Trends

_MOST_READERS = 50


class Events:
    """The streams of all readers; `close` ends them, so that a server can shut down."""

    def __init__(self, sampler: Sampler, trends: Trends) -> None:
        self._sampler = sampler
        self.trends: Trends = trends
        self._closed = asyncio.Event()

    def handler(self) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler that streams a view each second."""

        async def handle(_: Request) -> Response:
            if self._sampler.readers >= _MOST_READERS or self._closed.is_set():
                return refused(f"there are {self._sampler.readers} readers already", 503)
            headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
            return StreamingResponse(self._views(), 200, headers, "text/event-stream")

        return handle

    async def _views(self) -> AsyncIterator[bytes]:
        closed = asyncio.ensure_future(self._closed.wait())
        view: asyncio.Future[bytes] | None = None
        try:
            async with self._sampler.reader() as queue:
                # A browser reconnects after this number of ms.
                yield b"retry: 1000\n\n"
                while True:
                    view = asyncio.ensure_future(queue.get())
                    await asyncio.wait({view, closed}, return_when=asyncio.FIRST_COMPLETED)
                    if not view.done():
                        return
                    yield b"event: view\ndata: " + view.result() + b"\n\n"
        finally:
            # A reader that disconnects cancels the wait, but not the sampler.
            closed.cancel()
            if view is not None:
                view.cancel()

    def close(self) -> None:
        """End all streams and samples, and accept no more readers."""
        self._closed.set()
        self.trends.close()
