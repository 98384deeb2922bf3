"""The job as a whole: load the data, run the topology until it is done, read the results."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from ks_actors import App, HandlerResponse, Response, StreamsConfig
from ks_actors.log import IsolationLevel, open_log

from . import members, topology
from .load import TOPICS, ends, load
from .results import Results, read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ks_actors import ErrorContext, FailedRecord
    from ks_actors.log import Log

    from .progress import Progress

APPLICATION = "flights"
LOOK_SECONDS = 0.1
CENTURY_MS = 100 * 365 * 24 * 3_600_000
PATIENCE_MS = 3_600_000


class Options(NamedTuple):
    """The options of a run: directory of topics and state, guarantee, and number of flights.

    In memory it needs no directory. With `servers` the topics are on a Kafka, and `processes` run
    the job.
    """

    directory: Path
    guarantee: Literal["exactly_once_v2", "at_least_once"]
    limit: int
    commit_interval_ms: int = 100
    in_memory: bool = False
    page: bool = False
    servers: str = ""
    processes: int = 0


class Outcome(NamedTuple):
    """The results of a run, and the number of flights and seconds.

    The seconds count from the start of the app to the last commit.
    """

    results: Results
    flights: int
    seconds: float


async def run(options: Options, show: Progress, tell: Callable[[str], None] = print) -> Outcome:
    """Run the whole job; `tell` is called with the address of its page, if it is to have one."""
    async with opened(options) as log:
        await load(log, options.limit, lambda loaded: show("loading", loaded, options.limit))
        before, mark = await processed(log), await written(log)
        began = perf_counter()
        async with members.working(options) if options.processes else working(options, log, tell) as caught_up:
            while not caught_up.done():
                done = before + await written(log) - mark
                show("processing", min(done, options.limit), options.limit)
                await asyncio.wait((caught_up,), timeout=LOOK_SECONDS)
            await caught_up
            seconds = perf_counter() - began
        show("processing", options.limit, options.limit)
        return Outcome(await read(log), options.limit - before, seconds)


@asynccontextmanager
async def working(options: Options, log: Log, tell: Callable[[str], None]) -> AsyncIterator[asyncio.Future[None]]:
    """Run the app during the block; the future is done when all flights are processed and committed."""
    app = App(topology.build(), configure(options), log=log)
    async with paged(app, tell) if options.page else nullcontext(), app:
        yield asyncio.ensure_future(app.wait_until_caught_up(PATIENCE_MS))


@asynccontextmanager
async def paged(app: App, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Serve the page of the app during the block; an app without it does not need the extra."""
    from ks_actors.web import serve_page  # noqa: PLC0415 - it needs the extra web

    async with serve_page(app, token=secrets.token_urlsafe(16)) as page:
        tell(page.link)
        yield


def configure(options: Options) -> StreamsConfig:
    """Return the settings of the app."""
    return complete(
        StreamsConfig(
            application_id=APPLICATION,
            state_dir=options.directory / "state",
            default_dsl_store="in_memory" if options.in_memory else "rocksdb",
            processing_guarantee=options.guarantee,
            commit_interval_ms=options.commit_interval_ms,
        )
    )


def complete(config: StreamsConfig) -> StreamsConfig:
    """Add the settings that belong to the topology."""
    return config.replace(
        deserialization_exception_handler=to_dead_letters,
        errors_dead_letter_queue_topic_name=topology.DEAD_LETTERS,
        windowstore_changelog_additional_retention_ms=CENTURY_MS,  # a Kafka goes by its own clock, and would delete the hours of 2013
    )


def to_dead_letters(context: ErrorContext, record: FailedRecord, error: Exception) -> Response:
    """Skip a row that does not parse, without a log entry, as there are many.

    `"continue"` does the same with a warning each.
    """
    del record
    return Response(HandlerResponse.RESUME, context.dead_letters(error))


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[Log]:
    """Open the log for the duration of the block; loader, app and reader share it."""
    embedded = "memory://" if options.in_memory else f"embedded://{options.directory.absolute() / 'log'}"
    log = open_log(f"kafka://{options.servers}" if options.servers else embedded)
    await log.start()
    try:
        yield log
    finally:
        await log.close()


async def processed(log: Log) -> int:
    """Return the number of committed flights: each is counted in an hour, or is a dead letter."""
    results = await read(log)
    return sum(delays.flights for delays in results.by_hour.values()) + len(results.dead_letters)


async def written(log: Log) -> int:
    """Return the sum of the results' end offsets.

    Each flight writes an update of its hour or a dead letter, and each commit a marker or two.
    """
    written = [await ends(log, TOPICS[name], IsolationLevel.READ_COMMITTED) for name in (topology.BY_HOUR, topology.DEAD_LETTERS)]
    return sum(map(sum, written))
