"""A history and its expected results, to be checked also after kills."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ks_actors import App, serdes
from ks_actors.log import Log, NewTopic, TopicPartition
from ks_actors.log._open import open_log
from ks_actors.snapshots import SnapshotReader
from tests.ks_actors.batch.driver import MEET, TOPICS, Order, Point, config_of, filled_back, job
from tests.ks_actors.batch.histories import Input, Rows, difference, fill, last, plain, read_committed, rows_of, stores_in, streamed
from tests.ks_actors.batch.processes import drive


def _line(number: int) -> Input:
    text = MEET if number == 250 else f"the cat {number % 5} sat {number % 11}"
    return ("lines", f"k{number % 9}".encode(), text.encode(), number)


LINES = [_line(number) for number in range(600)]
HISTORY, TAIL = LINES[:450], LINES[450:]
UNTIL = 450


class Left(NamedTuple):
    """The content of topics and changelogs without its random part: see `compared`."""

    rows: dict[str, Rows]
    stores: dict[tuple[str, int], dict[bytes, Any]]


def compared(rows: Mapping[str, Iterable[Any]]) -> dict[str, Any]:
    """Return rows in a comparable form: behind the repartition topic keys and values count, in any order."""
    return {where: sorted(row[:2] for row in each) if where.startswith("by-word") else list(each) for where, each in rows.items()}


def tables(stores: Mapping[tuple[str, int], Mapping[bytes, Any]]) -> dict[tuple[str, int], dict[bytes, Any]]:
    """Return stores in a comparable form: the time of a count behind the repartition topic is that of its last record."""
    return {place: {key: row[0] for key, row in each.items()} if place[0] == "by-word" else dict(each) for place, each in stores.items()}


@cache
def _streamed() -> Left:
    settings = {
        "application_id": "app",
        "default_dsl_store": "rocksdb",
        "default_key_serde": serdes.STRING,
        "default_value_serde": serdes.STRING,
        "commit_interval_ms": 1_000_000,
    }
    written, stores = streamed(job(), settings, TOPICS, LINES)
    return Left(compared({str(where): rows for where, rows in written.items()}), tables(stores))


async def expected() -> Left:
    """Return the results of a stream over all records."""
    return await asyncio.to_thread(_streamed)


async def begin(order: Order) -> None:
    """Make a log of the order's that holds the history."""
    async with opened(order) as log:
        await log.create_topics([NewTopic(order.prefix + name, count) for name, count in TOPICS.items()])
        await put(log, order, HISTORY)


@asynccontextmanager
async def opened(order: Order) -> AsyncIterator[Log]:
    """Open the order's log; no process may have it that is in a directory."""
    log = open_log(order.log)
    await log.start()
    try:
        yield log
    finally:
        await log.close()


async def put(log: Log, order: Order, records: Iterable[Input]) -> None:
    topics = {order.prefix + name: count for name, count in TOPICS.items()}
    await fill(log, topics, [(order.prefix + topic, *others) for topic, *others in records])  # type: ignore[misc]  # they are what they were


async def changelogs(log: Log, order: Order) -> dict[tuple[str, int], dict[bytes, Any]]:
    """Return the rows of the stores' changelogs."""
    found: dict[tuple[str, int], dict[bytes, Any]] = {}
    for name, topic in (await log.describe_topics()).items():
        if name.startswith(f"{order.application_id}-") and name.endswith("-changelog"):
            store = name.removeprefix(f"{order.application_id}-").removesuffix("-changelog")
            for number in range(topic.partitions):
                found[store, number] = last(await read_committed(log, TopicPartition(name, number)))
    return tables(plain(job(), found))


async def sinks(log: Log, order: Order) -> dict[str, Rows]:
    """Return the records of the topics that the topology writes."""
    found: dict[str, Rows] = {}
    for name, count in TOPICS.items():
        for number in range(count) if name != "lines" else ():
            found[f"{name}-{number}"] = rows_of(await read_committed(log, TopicPartition(order.prefix + name, number)))
    return found


async def go_on(order: Order) -> dict[str, Rows]:
    """Start the app with the present state, have it process the tail, and return its output."""
    async with opened(order) as log:
        await put(log, order, TAIL)
        async with App(job(order.prefix), config_of(order), log=log) as app:
            await app.wait_until_caught_up()
        return await sinks(log, order)


async def handed_over(order: Order, point: Point = "") -> None:
    """Hand a backfill's snapshot over, be killed at some point, do it again, and go on: nothing is lost, nothing is there twice."""
    directory, happened = Path(order.directory), point in {"committed", "placing", "placed"}
    await begin(order)
    done = await filled_back(order)
    place = directory / "snapshots"
    manifest = SnapshotReader.open(f"{place}/{order.application_id}/{done.snapshot}").manifest
    snapshot = tables(stores_in(job(), manifest, place))
    seed = msgspec.structs.replace(order, what="seed")

    if point:
        assert await drive(msgspec.structs.replace(seed, point=point), directory / "said") == (-signal.SIGKILL, "")
    async with opened(order) as log:
        assert await changelogs(log, order) == (snapshot if happened else {})
    assert await drive(seed, directory / "said") == (0, str(not happened))
    async with opened(order) as log:
        assert await changelogs(log, order) == snapshot
        assert not any((await sinks(log, order)).values())

    live = await go_on(order)
    assert compared({where: done.rows.get(where, []) + rows for where, rows in live.items()}) == (await expected()).rows
    async with opened(order) as log:
        assert difference(job(), (await expected()).stores, await changelogs(log, order), len(LINES), live=True) == []
    shutil.rmtree(directory / "state")
    assert await counts(order) == Counter(word for record in LINES for word in (record[2] or b"").decode().split())


async def counts(order: Order) -> dict[str, int]:
    """Return the app's counts, starting from its disk and from the log."""
    async with opened(order) as log, App(job(order.prefix), config_of(order), log=log) as app:
        await app.wait_until_caught_up()
        return {word: number async for word, number in app.store("by-word").all()}
