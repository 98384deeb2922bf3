"""The topics of a running app, for the program around it."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogTimeout, NotRunning
from ks_actors.app._checks import NOT_STARTED
from ks_actors.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.config import StreamsConfig
    from ks_actors.lifecycle import Closing
    from ks_actors.log import Log
    from ks_actors.topology import Topology


@final
class AppTopics:
    """The topics of an app, open as soon as a start has opened the log and created missing topics.

    Services are entered later and exited before the topics are closed, so they can use the topics.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, closing: Closing) -> None:
        self._topology = topology
        self._config = config
        self._closing = closing
        self._who = f"app {config.application_id}"
        self._topics: Topics | None = None
        # Set when the topics are open, or the start has ended.
        self._settled = asyncio.Event()

    def open(self, log: Log, clock: Callable[[], int]) -> None:
        """Open the topics; the log is open."""
        who = self._who
        self._topics = Topics(log, self._config, self._topology, clock=clock, who=who)
        self._settled.set()

    def settle(self) -> None:
        """Note the end of the start: calls that wait for the start continue, or fail."""
        self._settled.set()

    async def opened(self, *, begun: bool, error: Exception | None) -> Topics:
        """Return the topics; wait for them if the start has `begun`.

        Raises LogTimeout after `delivery_timeout_ms`, and NotRunning before and after a start, and
        after an `error` of the app.
        """
        if error is not None:
            raise NotRunning(
                f"{self._who} has ended by an error: it sends and reads no more records"
            ) from error
        if self._topics is None:
            if not begun:
                raise NotRunning(NOT_STARTED)
            await self._wait()
        if self._topics is None:
            raise NotRunning(f"{self._who} has ended before its log was open")
        return self._topics

    async def _wait(self) -> None:
        timeout_ms = self._config.delivery_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._settled.wait()
        except TimeoutError:
            raise LogTimeout(
                f"{self._who} starts, and has not opened its log within {timeout_ms} ms "
                "(delivery_timeout_ms)"
            ) from None

    async def close(self, *, at_once: bool = False) -> None:
        """Wait for sent records until the app's deadline, or not at all; end reads."""
        if self._topics is not None:
            await self._topics.close(0.0 if at_once else self._closing.end(inf))
