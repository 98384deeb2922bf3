"""Sending and reading without a topology."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from ks_actors._errors import ConfigError, NotRunning
from ks_actors.config import StreamsConfig, opened
from ks_actors.lifecycle import LogClient, check_loop
from ks_actors.topics._access import TopicAccess
from ks_actors.topics._topics import Topics
from ks_actors.topology import by_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from ks_actors.log import Log, NewTopic
    from ks_actors.topology import ByTopic

_ID = "publisher"


class Publisher(TopicAccess):
    """Send records to topics, and read them, without a topology.

    `async with Publisher("localhost:9092") as publisher:` connects, and waits at the end for all
    records that are being sent, at most `close_timeout_ms`. In place of the servers give a
    StreamsConfig, or a dict of settings, such as a login; its `application_id` (default:
    `publisher`) names the client. `log` is an open Log, which stays open, or the URL of a log; it
    replaces the log of the config.

    A publisher has one idempotent producer, and no transactions. Use it on one event loop, from any
    task. Raises ConfigError, and the errors of the connection at the start.
    """

    def __init__(
        self,
        servers: str | StreamsConfig | Mapping[str, Any] | None = None,
        /,
        *,
        log: Log | str | None = None,
    ) -> None:
        if log is None if servers is None else log is not None and isinstance(servers, str):
            raise ConfigError(
                'Publisher needs its Kafka or its log, and one of both: Publisher("localhost:9092")'
                ", Publisher(config), or Publisher(log=log)"
            )
        settings: StreamsConfig | Mapping[str, Any]
        if isinstance(servers, str):
            settings = {"bootstrap_servers": servers}
        else:
            settings = {} if servers is None else servers
        if not isinstance(settings, StreamsConfig):
            settings = StreamsConfig.of({"application_id": _ID, **settings})
        if isinstance(log, str):
            settings = settings.replace(log=log)
        self._config: StreamsConfig = settings
        self._given: Log | None = None if isinstance(log, str) else log
        self._stack: AsyncExitStack | None = None
        self._topics: Topics | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        where = self._given if self._given is not None else self._config.log
        return f"<Publisher of {where}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect; call it once. Raises ConfigError, LogTimeout, NotAuthorized."""
        if self._topics is not None:
            raise NotRunning("this Publisher was started before; make a new one")
        self._loop = asyncio.get_running_loop()
        with LogClient(self._config.client_id).named():
            async with AsyncExitStack() as stack:
                log = await stack.enter_async_context(opened(self._config, self._given))
                self._topics = Topics(
                    log,
                    self._config,
                    clock=lambda: time.time_ns() // 1_000_000,
                    who="the Publisher",
                )
                self._stack = stack.pop_all()

    async def close(self) -> None:
        """Wait for the records that are being sent, at most `close_timeout_ms`, and disconnect.

        Records without an acknowledgment by then fail with NotRunning, as do later calls. Does
        nothing before the start, and when called again.
        """
        stack, self._stack = self._stack, None
        if stack is None or self._topics is None or self._loop is None:
            return
        async with stack:
            await self._topics.close(self._loop.time() + self._config.close_timeout_ms / 1000)

    async def _open_topics(self) -> Topics:
        if self._topics is None or self._loop is None:
            raise NotRunning(
                "the Publisher was not started: enter `async with publisher`, or await "
                "`publisher.start()`"
            )
        check_loop(self._loop, "the Publisher")
        return self._topics

    async def create_topics(self, topics: ByTopic[int | NewTopic]) -> None:
        """Create topics that do not exist: the number of partitions by topic, or a NewTopic.

        Topics that exist stay as they are. Raises LogError, ConfigError, NotRunning.
        """
        await (await self._open_topics()).create(by_name(topics))
