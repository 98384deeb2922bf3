"""The topics of a running app, for the program around it."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from ks_actors._errors import LogTimeout, NotRunning
from ks_actors.app._checks import NOT_STARTED
from ks_actors.app._orders import AppOrders
from ks_actors.runtime.shared import InstanceState
from ks_actors.topics import TopicAccess, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.lifecycle import Closing
    from ks_actors.log import Log


class AppTopics(AppOrders, TopicAccess):
    """The part of an App that sends and reads records.

    It works from the moment at which the start has the log and the given topics, so for services
    too, until these are exited.
    """

    _closing: Closing
    _access: Topics | None = None
    # Set when the topics are open, or the start has ended.
    _access_known: asyncio.Event

    def _begin_topics(self, log: Log, clock: Callable[[], int]) -> None:
        who = f"app {self.config.application_id}"
        self._access = Topics(log, self.config, self._topology, clock=clock, who=who)
        self._access_known.set()

    async def _end_topics(self) -> None:
        if self._access is not None:
            await self._access.close(self._closing.end(inf))

    async def _open_topics(self) -> Topics:
        self._check_loop()
        if self.state is InstanceState.ERROR:
            raise NotRunning(
                f"app {self.config.application_id} has ended by an error: it sends and reads no "
                "more records"
            ) from self.error
        if self._access is None:
            if not self._begun:
                raise NotRunning(NOT_STARTED)
            await self._wait_for_topics()
        if self._access is None:
            raise NotRunning(
                f"app {self.config.application_id} has ended before its log was open"
            ) from self.error
        return self._access

    async def _wait_for_topics(self) -> None:
        timeout_ms = self.config.delivery_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._access_known.wait()
        except TimeoutError:
            raise LogTimeout(
                f"app {self.config.application_id} starts, and has not opened its log within "
                f"{timeout_ms} ms (delivery_timeout_ms)"
            ) from None
