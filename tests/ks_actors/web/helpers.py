"""An app with a page, on an embedded log, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from ks_actors import App, StreamsBuilder, StreamsConfig
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, TimeWindows
from ks_actors.log import Log, NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.records import Batch
from ks_actors.serdes import LONG, STRING
from ks_actors.topology import Topology
from ks_actors.web import create_app

TOKEN = "a token for tests"  # noqa: S105 - it guards nothing
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}
PARTITIONS = 2


class Visits:
    """Visits of pages, looked up by an asynchronous function that can be held up, and counted."""

    def __init__(self) -> None:
        self.gate: asyncio.Event = asyncio.Event()
        self.gate.set()
        self.mended: bool = False

    async def look_up(self, page: str) -> str:
        if page == "stuck":
            await self.gate.wait()
        if page.startswith("bad") and not self.mended:
            raise ValueError(f"no page {page}")
        return page

    def topology(self) -> Topology:
        builder = StreamsBuilder()
        pages = builder.stream("visits", Consumed(STRING, STRING)).map_values(self.look_up, name="looks-up", max_in_flight=20)
        pages.to("seen", Produced(STRING, STRING))
        counted = pages.group_by(_page, Grouped(STRING, STRING, "by-page"))
        counted.count(Materialized("per-page", STRING, LONG))
        counted.windowed_by(TimeWindows.of_size_with_no_grace(60_000)).count(Materialized("per-minute", STRING, LONG))
        return builder.build()


def _page(_: str, page: str) -> str:
    return page


async def fresh_log() -> Log:
    """Return a started log in memory with the topics of the visits."""
    log = open_log("memory://")
    await log.start()
    await create_topics(log)
    return log


async def create_topics(log: Log) -> None:
    """Create the topics of the visits."""
    await log.create_topics([NewTopic("visits", PARTITIONS), NewTopic("seen", PARTITIONS), NewTopic("dead", 1)])


def visiting(log: Log, directory: Path, visits: Visits, who: str = "site-a", **settings: Any) -> App:
    """Return an app that is not started."""
    config = StreamsConfig.of(
        {
            "application_id": "site",
            "client_id": who,
            "state_dir": str(directory / who),
            "commit_interval_ms": 50,
            "processing_exception_handler": "continue",
            "errors_dead_letter_queue_topic_name": "dead",
            **settings,
        }
    )
    return App(visits.topology(), config, log=log)


async def visit(log: Log, *pages: str, partition: int = 0) -> None:
    """Write visits of pages, in the first minute of 1970."""
    producer = await log.producer(client_id="browser")
    keys = [f"user{number}".encode() for number, _ in enumerate(pages)]
    batch = Batch(keys, [page.encode() for page in pages], [30_000] * len(pages))
    await producer.send([Outgoing(TopicPartition("visits", partition), batch)])
    await producer.close()


@asynccontextmanager
async def client_of(app: App, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the app's page, without a socket."""
    transport = httpx.ASGITransport(create_app(app, **options))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
