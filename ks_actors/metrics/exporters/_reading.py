"""Reading an app's metrics from any thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from ks_actors.metrics._values import MetricValues

_PATIENCE_S: Final = 5.0


class HasMetrics(Protocol):
    """An object with metrics, such as an App."""

    def metrics(self) -> MetricValues:
        """Return all values of this moment; called on the event loop."""
        ...


@final
class Reading:
    """The metrics of an app, read on its event loop, whichever thread asks."""

    def __init__(self, app: HasMetrics) -> None:
        self._app = app
        # An exporter that is made before the loop runs is read on the loop, or not at all.
        self._loop: asyncio.AbstractEventLoop | None = _running_loop()

    def values(self) -> MetricValues:
        """Return all values of this moment.

        Raises TimeoutError when the loop does not answer within 5 s.
        """
        here = _running_loop()
        if self._loop is None and here is not None:
            self._loop = here
        loop = self._loop
        if loop is None or here is loop or loop.is_closed():
            return self._app.metrics()
        return asyncio.run_coroutine_threadsafe(self._read(), loop).result(_PATIENCE_S)

    async def _read(self) -> MetricValues:
        return self._app.metrics()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
