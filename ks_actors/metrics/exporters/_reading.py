"""Reading an app's metrics from any thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from ks_actors.metrics._values import MetricValues

_PATIENCE_S: Final = 5.0
# The names of an app's last states: its metrics do not change any more.
_ENDED: Final = frozenset({"NOT_RUNNING", "ERROR"})


class HasMetrics(Protocol):
    """An object with metrics, such as an App."""

    def metrics(self) -> MetricValues:
        """Return all values of this moment; called on the event loop."""
        ...


@final
class Reading:
    """The metrics of an app, read on its event loop, whichever thread asks."""

    def __init__(self, app: HasMetrics, *, patience_s: float = _PATIENCE_S) -> None:
        self._app = app
        self._patience_s = patience_s
        # An exporter that is made before the loop runs can be read only on the loop.
        self._loop: asyncio.AbstractEventLoop | None = _running_loop()

    def values(self) -> MetricValues:
        """Return all values of this moment.

        Raises TimeoutError when the loop does not answer within `patience_s`.
        """
        here = _running_loop()
        if self._loop is None and here is not None:
            self._loop = here
        loop = self._loop
        # An app that has ended is read at once: its loop may be waiting for this very thread.
        if loop is None or here is loop or not loop.is_running() or self._has_ended():
            return self._app.metrics()
        asked = asyncio.run_coroutine_threadsafe(self._read(), loop)
        try:
            return asked.result(self._patience_s)
        except TimeoutError:
            asked.cancel()
            raise TimeoutError(
                f"the event loop of the app did not answer within {self._patience_s:g} s: a "
                "function blocks it"
            ) from None

    def _has_ended(self) -> bool:
        state = getattr(self._app, "state", None)
        return getattr(state, "name", None) in _ENDED

    async def _read(self) -> MetricValues:
        return self._app.metrics()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
